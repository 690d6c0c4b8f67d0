// A test of restarts and changes under load. twins are two gateways between wires, one with the cache of flows and one
// without, to which a test sends the same frames (twins_test.go). A flow is a connection that makes its packets with
// fromClient and fromPeer (flow_test.go). pressure sends frames of cached flows as fast as it can.

package ebpf

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

var loadFor = flag.Duration(
	"load.for", 500*time.Millisecond, "how long TestNoLossOnRestartUnderLoad sends after each trigger")

// pressure sends frames of cached flows as fast as the machine handles them through twins: a gateway that caches flows,
// and one that does not (twins_test.go).
type pressure struct {
	*rand.Rand
	tw     *twins
	flows  []*flow
	frames int
}

const trackedMasquerade = `table ip round1 { chain from { type nat hook postrouting priority 100; oifname wan0 meta l4proto { tcp, udp } masquerade
}
chain forward { type filter hook forward priority 0; ct state established accept
}
}`

// newPressure opens flows and sends until they are cached.
func newPressure(t *testing.T) *pressure {
	l := &pressure{Rand: rand.New(rand.NewPCG(1, 0)), tw: newTwins(t)}
	l.tw.rules(t, "round1", trackedMasquerade)
	l.begin(t)
	return l
}

func (l *pressure) begin(t *testing.T) {
	t.Helper()
	l.flows = nil
	for _, client := range []netip.Addr{alice, bob, alice, bob} {
		l.flows = append(l.flows, begin(t, l.tw, client))
	}
	var all [][]byte
	for _, f := range l.flows {
		all = append(all, f.fromClient(datapathtest.Carrying(make([]byte, 1300))),
			f.fromPeer(datapathtest.Carrying(make([]byte, 1300))))
	}
	l.tw.makeCached(t, all...)
}

// batch returns frames of random flows, each with a number.
func (l *pressure) batch() (frames [][]byte) {
	for range 200 {
		l.frames++
		payload := fmt.Appendf(make([]byte, l.IntN(1200)), "%08d", l.frames)
		f := l.flows[l.IntN(len(l.flows))]
		if l.IntN(2) == 0 {
			f.seq += uint32(len(payload))
			frames = append(frames, f.fromClient(datapathtest.Carrying(payload)))
		} else {
			f.ack += uint32(len(payload))
			frames = append(frames, f.fromPeer(datapathtest.Carrying(payload)))
		}
	}
	return frames
}

// compare sends a batch: every frame has the same fate with the cache and without.
func (l *pressure) compare(t *testing.T) {
	t.Helper()
	if cached, plain := l.tw.arrivals(t, l.batch()...); !cached.equal(plain) && !(l.tw.dropped(t) && cached.lacks(plain)) {
		t.Fatal(cached.differs(plain))
	}
}

// during sends while action runs.
func (l *pressure) during(t *testing.T, action func() error) {
	t.Helper()
	l.tw.dropped(t) // do not count earlier drops
	ended := make(chan error, 1)
	var running sync.WaitGroup
	running.Go(func() { ended <- action() })
	defer running.Wait()
	for {
		l.compare(t)
		select {
		case err := <-ended:
			must(t, err)
			return
		default:
		}
	}
}

func (l *pressure) sendFor(t *testing.T, d time.Duration) {
	t.Helper()
	l.during(t, func() error { time.Sleep(d); return nil })
}

// untilCached sends until the cache forwards all frames.
func (l *pressure) untilCached(t *testing.T) {
	t.Helper()
	netnstest.Await(t, "flow cache", func() error {
		l.compare(t)
		if word, reason := l.tw.cached.ForwardingWhy(t); word != "flow cache" {
			return errors.New(word + ": " + reason)
		}
		before, sent := l.tw.cached.Packets(t)["forwarded"], l.frames
		l.compare(t)
		if by := l.tw.cached.Packets(t)["forwarded"] - before; by < uint64(l.frames-sent) {
			return fmt.Errorf("of %d frames the cache forwarded %d", l.frames-sent, by)
		}
		return nil
	})
}

// TestNoLossOnRestartUnderLoad: when the daemon is killed or restarted, and when rules and routes for other flows
// change, no packet of the flows is lost or changed. The next packet of a connection that was deleted is judged again,
// and rules and routes that concern the flows take effect once the daemon has been told of them.
func TestNoLossOnRestartUnderLoad(t *testing.T) {
	t.Parallel()
	l := newPressure(t)
	began, before := time.Now(), l.tw.cached.Packets(t)
	l.othersChange(t)
	n := l.tw.cached.Packets(t)
	t.Logf("%d frames, %.0f a second each way through two gateways; with the cache %d by it, %d by the stack", l.frames,
		float64(l.frames)/time.Since(began).Seconds(), n["forwarded"]-before["forwarded"], n["stack"]-before["stack"])
	for range 5 {
		l.tw.each(func(w *twin) {
			var err error
			w.Router.Do(func() { err = netlink.ConntrackTableFlush(netlink.ConntrackTable) })
			must(t, err)
		})
		l.sendFor(t, *loadFor/5)
	}
	l.rulesChange(t)
}

// othersChange kills and restarts the daemon, and changes rules and routes that concern other flows.
func (l *pressure) othersChange(t *testing.T) {
	cached := l.tw.cached
	admit := func() error {
		err := cached.Open()
		for _, s := range []datapathtest.Station{cached.Alice, cached.Bob} {
			err = errors.Join(err, cached.Set(datapath.Client{Addrs: []netip.Addr{s.Addr}, MAC: s.MAC, Admitted: true}))
		}
		return err
	}
	for range 3 {
		l.during(t, func() error { return errors.Join(cached.Restart(), admit()) })
		l.untilCached(t)
		l.during(t, func() error { return errors.Join(cached.Close(), admit()) })
		l.untilCached(t)
		l.during(t, func() (errs error) {
			l.tw.each(func(w *twin) {
				out, err := w.Router.Try(
					`ip rule add from 10.9.9.9 prohibit; ip rule del from 10.9.9.9 prohibit; ip route add 203.0.113.0/24 via 192.0.2.2; ip route del 203.0.113.0/24
nft add table ip other; nft add chain ip other f '{ type filter hook forward priority 5; }'; nft add rule ip other f ip saddr 10.9.9.9 drop; nft delete table ip other`)
				if err != nil {
					errs = errors.Join(errs, fmt.Errorf("%w: %s", err, out))
				}
			})
			return errs
		})
	}
}

// rulesChange changes rules and routes that concern the flows.
func (l *pressure) rulesChange(t *testing.T) {
	tw := l.tw
	for _, c := range []struct{ name, script, undo string }{
		{"nft flush ruleset", "nft flush ruleset", "nft '" + trackedMasquerade + "'"},
		{"ip rule add", "ip rule add from 10.1.0.10 ipproto tcp prohibit", "ip rule del from 10.1.0.10 ipproto tcp prohibit"},
		{"nft insert rule", "nft insert rule ip round1 forward ip saddr 10.1.0.11 drop", "nft flush chain ip round1 forward"},
	} {
		tw.each(func(w *twin) { w.Router.Run(t, c.script) })
		began, late := time.Now(), 0
		netnstest.Await(t, c.name+" to count", func() error {
			batch := l.batch()
			if cached, plain := tw.arrivals(t, batch...); !cached.equal(plain) {
				late += len(batch)
				return errors.New(cached.differs(plain))
			}
			return nil
		})
		t.Logf("%s counted after at most %d frames and %.1f ms", c.name, late, float64(time.Since(began).Microseconds())/1e3)
		l.sendFor(t, *loadFor)
		tw.each(func(w *twin) { w.Router.Run(t, c.undo) })
		becomes(t, tw.cached.World, "flow cache", "round1")
		l.begin(t)
		l.sendFor(t, *loadFor)
	}
}

// differs says where two arrivals begin to differ.
func (a arrival) differs(b arrival) string {
	for i, side := range [][2][][]byte{{a.client, b.client}, {a.server, b.server}} {
		for position := range max(len(side[0]), len(side[1])) {
			of := func(frames [][]byte) [][]byte { return frames[min(position, len(frames)):min(position+1, len(frames))] }
			if !equalFrames(of(side[0]), of(side[1])) {
				return fmt.Sprintf("at the %s frame %d of %d is with the cache\n%sand of %d without\n%s", []string{"client",
					"server"}[i], position, len(side[0]), describe(of(side[0])), len(side[1]), describe(of(side[1])))
			}
		}
	}
	return "nothing"
}
