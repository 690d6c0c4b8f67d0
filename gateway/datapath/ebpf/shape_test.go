// Tests of the queues in which packets beyond a client's rate wait (shape.go, queue.go). newNetwork makes a LAN with
// alice and bob and a WAN with a server, and open starts a data path between them (main_test.go).

package ebpf

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

func shaped(c *Config) { c.Shaping = ShapingAuto }

// rated returns a client, alice, with rates, Mbit/s.
func rated(up, down uint64) datapath.Client {
	return datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Admitted: true,
		Limits: datapath.Limits{UpBps: up * 1e6, DownBps: down * 1e6}}
}

// TestShapedConnections: eight connections share a client's rate equally and lose nearly no packet, also at a low rate,
// and small packets of other flows do not wait behind theirs.
func TestShapedConnections(t *testing.T) {
	n := newNetwork(t)
	d := n.open(t, shaped)
	n.farther(t)
	run(t, "ip netns exec $client ethtool -K c0 tso off gso off; ip netns exec $server ethtool -K s0 tso off gso off",
		n.env()...)
	ping := n.ping(t, server)
	for _, c := range []struct {
		mbps uint64
		up   bool
		wait time.Duration // how long the connections are measured at a time
	}{{*rateBps / 1e6, true, time.Second}, {*rateBps / 1e6, false, time.Second}, {1, true, 2 * time.Second},
		{1, false, 2 * time.Second}} {
		must(t, d.Set(rated(c.mbps, c.mbps)))
		found := "never tried"
		good := false
		// Programs tell flows that wait from others by a hash, and the ping may have the hash of two connections, whatever
		// their ports are. Then it waits with them, and the test begins other connections.
		for sets := 0; sets < 20 && !good; sets++ {
			var all []*stream
			for range 8 {
				all = append(all, n.stream(t, server, c.up))
			}
			for looks := 0; looks < 10 && !good; looks++ { // connections that begin lose more
				f := d.felt(t, all, ping, c.up, c.wait)
				goodput, wait, beside := f.bps/float64(c.mbps*1e6), at(f.rtts, 0.5), at(f.pings, 0.5)
				found = fmt.Sprintf(
					"%d Mbit/s, up %v: loss %.3f, goodput %.3f, fairness %.3f, round trips of connections %v and beside them %v",
					c.mbps, c.up, f.loss, goodput, f.jain, wait, beside)
				good = f.loss <= 0.005 && goodput >= 0.8 && f.jain >= 0.98 && beside <= wait/2
			}
			for _, s := range all {
				s.from.SetLinger(0)
				s.from.Close()
			}
		}
		if !good {
			t.Fatal(found)
		}
		t.Log(found)
	}
}

// queues lists the interfaces' queues, without their counters.
func (n network) queues(t *testing.T) string {
	t.Helper()
	return run(t, "(tc qdisc show dev $lan; tc qdisc show dev $wan; tc class show dev $lan; tc class show dev $wan) | "+
		"sed 's/direct_packets_stat [0-9]*//'", n.env()...)
}

// holders returns what holds packets back, up and down.
func (d *Datapath) holders() [2]gatewayHolder {
	d.shaping.mu.Lock()
	defer d.shaping.mu.Unlock()
	return [2]gatewayHolder{d.shaping.wan.holder, d.shaping.lan.holder}
}

// TestQueuesRestored: gatewayd makes queues for the first client with a rate. They outlive the daemon and serve the
// next one, and detach restores the default queues. Long: the steps of one run, each of which needs the state that the
// one before left.
func TestQueuesRestored(t *testing.T) {
	n := newNetwork(t)
	before := n.queues(t)
	cfg := n.config(t)
	shaped(&cfg)
	d, err := Open(cfg)
	must(t, err)
	t.Cleanup(func() { d.Close(); detach(cfg) })
	unlimited := rated(0, 0)
	must(t, d.Set(unlimited))
	if now := n.queues(t); now != before {
		t.Errorf("without a client with a rate:\n%s", now)
	}
	must(t, d.Set(rated(5, 20)))
	made := n.queues(t)
	if d.holders()[0] == gatewayHolderHOLDER_NONE || d.holders()[1] == gatewayHolderHOLDER_NONE ||
		strings.Count(made, " 6a77:")+strings.Count(made, " 6a78:") < 2 {
		t.Fatalf("%v hold packets of a client with rates:\n%s", d.holders(), made)
	}
	must(t, d.Close())
	if now := n.queues(t); now != made {
		t.Errorf("after the daemon's end:\n%s\nnot\n%s", now, made)
	}
	d, err = Open(cfg)
	must(t, err)
	if now := n.queues(t); now != made || d.holders()[0] == gatewayHolderHOLDER_NONE {
		t.Errorf("the successor has %v hold packets in\n%s\nnot\n%s", d.holders(), now, made)
	}
	must(t, d.Set(unlimited))
	if now := n.queues(t); strings.Contains(now, "class htb") {
		t.Errorf("after the client's rates:\n%s", now)
	}
	must(t, d.Set(rated(5, 20)))
	must(t, d.Remove(datapath.IDOf(alice)))
	if now := n.queues(t); strings.Contains(now, "class htb") {
		t.Errorf("after the client:\n%s", now)
	}
	must(t, d.Close())
	must(t, detach(cfg))
	must(t, detach(cfg)) // a second call has no effect
	if now := n.queues(t); now != before {
		t.Errorf("after detach:\n%s\nnot\n%s", now, before)
	}
	d, err = Open(cfg)
	must(t, err)
	must(t, d.Set(rated(5, 20)))
	must(t, d.Close())
	cfg.Shaping = ShapingNever
	d, err = Open(cfg)
	must(t, err)
	if now := n.queues(t); now != before {
		t.Errorf("where packets are no longer held:\n%s\nnot\n%s", now, before)
	}
}

// TestForeignQueuesKept: queues that an operator has configured, before the start or later, stay, and clients' rates
// apply all the same.
func TestForeignQueuesKept(t *testing.T) {
	n := newNetwork(t)
	run(t, "tc qdisc add dev $wan root handle 7: pfifo limit 50", n.env()...)
	d := n.open(t, shaped)
	must(t, d.Set(rated(5, 5)))
	theirs := func() {
		t.Helper()
		if now := n.queues(t); !strings.Contains(now, "qdisc pfifo 7:") {
			t.Errorf("the operator's queue is gone:\n%s", now)
		}
	}
	theirs()
	if holder := d.holders(); holder[0] != gatewayHolderHOLDER_NONE || holder[1] == gatewayHolderHOLDER_NONE {
		t.Errorf("%v hold packets", holder)
	}
	run(t, "tc qdisc replace dev $lan root handle 8: pfifo limit 50", n.env()...)
	netnstest.Await(t, "the other queue is noticed", func() error {
		if holder := d.holders(); holder[1] != gatewayHolderHOLDER_NONE {
			return fmt.Errorf("%v hold packets", holder)
		}
		return nil
	})
	run(t, "tc qdisc del dev $lan root", n.env()...)
	netnstest.Await(t, "packets held again", func() error {
		if holder := d.holders(); holder[1] == gatewayHolderHOLDER_NONE {
			return fmt.Errorf("%v hold packets", holder)
		}
		return nil
	})
	theirs()
	run(t, "tc qdisc replace dev $lan root handle 8: pfifo limit 50", n.env()...)
	must(t, d.Close())
	must(t, detach(n.config(t)))
	theirs()
	if now := n.queues(t); !strings.Contains(now, "qdisc pfifo 8:") {
		t.Errorf("the operator's later queue is gone:\n%s", now)
	}
}

// TestQueueClockWraps: the clock by which the programs know that a flow waits wraps after 52 days. Times that they
// noted before it wrapped do not count. Long: the steps of one run, each of which needs the state that the one before
// left.
func TestQueueClockWraps(t *testing.T) {
	n := newNetwork(t)
	d := n.open(t, shaped)
	d.stop() // the daemon would renew what the test sets
	must(t, d.Set(rated(1, 1)))
	must(t, d.objs.RateShaping.Put(
		uint32(0), gatewayShaping{Until: now() + 3600e9, Down: uint32(gatewayHolderHOLDER_CLASS)}))
	at, err := d.placeOf(alice)
	must(t, err)
	const ticksMost = 1000
	send := func(place uint32, bytes int) (passes bool) {
		q := gatewayQueues{Class: 5}
		for i := range q.Down.Last {
			q.Down.Last[i] = place
		}
		must(t, d.objs.ClientQueues.Put(at, q))
		var m gatewayMeters
		m.Down.Ns = now() + 900e6
		must(t, d.objs.ClientMeters.Put(at, m))
		verdict, _, after := d.try(t, d.objs.WanIn, index(t, n.wan), tcp(443, down, payload(bytes)))
		return verdict != shot && after.Priority == 0
	}
	tick := uint32(now() >> 20)
	for name, c := range map[string]struct {
		place  uint32
		passes bool
	}{
		"a moment ago": {tick - 10, true}, "waiting": {tick + ticksMost/2, false}, "26 days ago": {tick + 1<<31, true},
		"before the wrap": {^uint32(0), true}, "52 days ago": {tick + 2*ticksMost, true},
	} {
		if passes := send(c.place, 100); passes != c.passes {
			t.Errorf("%s: a small packet passes: %v", name, passes)
		}
		if c.passes {
			netnstest.Await(t, name+": a full packet's wait noted", func() error { // one in seventy is dropped
				var q gatewayQueues
				if send(c.place, 1300) {
					return errors.New("it passes")
				}
				must(t, d.objs.ClientQueues.Lookup(at, &q))
				for _, place := range q.Down.Last {
					if ahead := place - uint32(now()>>20); place != c.place && ahead <= ticksMost {
						return nil
					}
				}
				return errors.New("no place is near")
			})
		}
	}
}
