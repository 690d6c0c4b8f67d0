// Tests of the bounds of the cache of flows. scanGateway is a data path with the cache in this process, to which the
// test sends clients' frames. newNetwork makes a LAN with alice and bob and a WAN with a server, and open starts a data
// path between them (main_test.go).

package ebpf

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// scanGateway is a gateway within this process that masquerades and caches flows. The test sends its clients' frames.
type scanGateway struct {
	*Datapath
	network
	wire *wire
}

func newScanned(t *testing.T, entries uint32) *scanGateway {
	t.Helper()
	netnstest.NeedTCX(t)
	n := newNetwork(t)
	d := n.open(t, func(c *Config) { c.FlowCache, c.flowEntries = FlowCacheAuto, entries })
	run(t, `nft "table ip scan { chain out { type nat hook postrouting priority srcnat; oifname $wan masquerade; }; }"`,
		n.env()...)
	t.Cleanup(func() { run(t, "nft delete table ip scan") })
	netnstest.Await(t, "the cache", func() error {
		if word, reason := d.Forwarding(); word != "flow cache" {
			return errors.New(word + ": " + reason)
		}
		return nil
	})
	s := &scanGateway{d, n, n.wire(t)}
	run(t, "ip netns exec $server "+mute, n.env()...)
	for addr, mac := range map[netip.Addr]datapath.MAC{alice: aliceMAC, bob: bobMAC} {
		must(t, d.Set(datapath.Client{Addrs: []netip.Addr{addr}, MAC: mac, Admitted: true}))
	}
	return s
}

func (s *scanGateway) send(t *testing.T, frame []byte) {
	t.Helper()
	if _, err := unix.Write(s.wire.client, frame); err != nil {
		t.Fatal(err)
	}
}

// deliver sends a client's frame, and waits until it has been handled.
func (s *scanGateway) deliver(t *testing.T, client netip.Addr, frame []byte) {
	t.Helper()
	before := counters(t, s.Datapath, client).UpPackets
	s.send(t, frame)
	for late := time.Now().Add(2 * time.Minute); counters(t, s.Datapath, client).UpPackets == before; {
		if time.Now().After(late) {
			t.Fatal("a frame is not handled")
		}
	}
}

// entries lists a client's entries in the cache.
func (s *scanGateway) entries(t *testing.T, client netip.Addr) (keys []gatewayFlowKey) {
	t.Helper()
	place, err := s.placeOf(client)
	must(t, err)
	var k gatewayFlowKey
	var p gatewayFlowPath
	all := s.objs.FlowPaths.Iterate()
	for all.Next(&k, &p) {
		if p.At == place {
			keys = append(keys, k)
		}
	}
	must(t, all.Err())
	return keys
}

// caching returns the generation of entries in use; 0: none are.
func (s *scanGateway) caching(t *testing.T) uint32 {
	t.Helper()
	var all gatewayFlowSettings
	must(t, s.objs.FlowSettings.Lookup(uint32(0), &all))
	if now() >= all.Until {
		return 0
	}
	return all.Generation
}

// onlyForwarded fails the test if packets were counted as other than forwarded by the cache or left to the stack.
func onlyForwarded(t *testing.T, before, present map[string]uint64) {
	t.Helper()
	for reason, n := range change(before, present) {
		if n > 0 && reason != "forwarded" && reason != "stack" {
			t.Errorf("%d packets count as %s", n, reason)
		}
	}
}

// TestScan: a client that sends to every port, again and again, gets only a few entries of the cache a second, and
// another client's flow stays in the cache. Long: the steps of one run, each of which needs the state that the one
// before left.
func TestScan(t *testing.T) {
	netnstest.OnOneCPU(t)
	const forget = "net.netfilter.nf_conntrack_udp_timeout"
	earlier := run(t, "sysctl -n "+forget)
	run(t, "sysctl -qw "+forget+"=600") // a busy machine may take longer for a scan than the usual 30 s
	t.Cleanup(func() { run(t, "sysctl -qw "+forget+"="+earlier) })
	s := newScanned(t, 0)
	his := udp(9, from(bob, bobMAC), source(5000))
	flushConnections(t) // an earlier packet of this test went to a port of the scan
	s.deliver(t, bob, his)
	began := s.packets(t)
	var scan [][]byte
	var ports []uint16
	for port := uint16(1); port != 0; port++ {
		scan, ports = append(scan, udp(port)), append(ports, port)
	}
	// Only flows that have lasted two seconds are cached. A CPU may stand still for two seconds while it has a packet
	// between connection tracking and the program that learns flows, which makes the packet's flow that old.
	slow := map[uint16]bool{} // ports
	for batch := range slices.Chunk(ports, 64) {
		sent := time.Now()
		for _, port := range batch {
			s.send(t, scan[port-1])
		}
		s.deliver(t, bob, his) // follows these on the same CPU, so that no queue on the way overflows
		if took := time.Since(sent); took > 1900*time.Millisecond {
			t.Logf("a machine that is held up: ports %d to %d took %v", batch[0], batch[len(batch)-1], took)
			for _, port := range batch {
				slow[port] = true
			}
		}
	}
	for _, f := range [][]byte{udp(10, from(bob, bobMAC), source(5000)), his} {
		// the first is younger than all of the scan's
		netnstest.Await(t, "the other client's flow in the cache", func() error {
			was := s.packets(t)["forwarded"]
			if s.deliver(t, bob, f); s.packets(t)["forwarded"] == was {
				return errors.New("the stack forwards it")
			}
			return nil
		})
	}
	for _, k := range s.entries(t, alice) {
		to := port(k.Dport)
		if k.Side == 2 { // FROM_WAN: what is waited for
			to = port(k.Sport)
		}
		if !slow[to] {
			t.Errorf("a first scan has an entry of port %d, which was handled in time: %+v", to, k)
		}
	}
	since, sent, cached, last := time.Now(), 0, uint64(0), uint32(0)
	for i, f := range scan { // all of these flows are old enough by now
		if s.send(t, f); i%64 != 0 {
			continue
		}
		was, before := s.packets(t)["forwarded"], s.caching(t)
		s.deliver(t, bob, his)
		// If the daemon got no CPU for seconds, the cache ends, and the stack forwards the next packet.
		if before != 0 && before == last && s.caching(t) == last {
			sent++
			cached += s.packets(t)["forwarded"] - was
		}
		last = before
	}
	seconds := int(time.Since(since).Seconds()) + 2 // parts of two
	entries := len(s.entries(t, alice))
	t.Logf("the scanner has %d entries; of the other client's %d packets the cache forwarded %d", entries, sent, cached)
	if entries == 0 || entries > seconds*2048 {
		t.Errorf("the scanner has %d entries after %d s", entries, seconds)
	}
	if cached == 0 || cached+uint64(seconds) < uint64(sent) {
		t.Errorf("of the other client's %d packets the cache forwarded %d", sent, cached)
	}
	onlyForwarded(t, began, s.packets(t))
}

// TestFullCache: the stack forwards all packets of flows for which the cache has no room.
func TestFullCache(t *testing.T) {
	s := newScanned(t, 128)
	arrived := func() uint64 {
		n, err := strconv.ParseUint(
			run(t, "ip netns exec $server cat /sys/class/net/s0/statistics/rx_packets", s.env()...), 10, 64)
		must(t, err)
		return n
	}
	earlier, before, sent := s.packets(t), arrived(), uint64(0)
	round := func() {
		for port := range uint16(400) {
			s.deliver(t, alice, udp(1000+port))
			sent++
		}
	}
	netnstest.Await(t, "flows in the cache", func() error {
		if round(); s.packets(t)["forwarded"] == earlier["forwarded"] {
			return errors.New("there are none")
		}
		return nil
	})
	round()
	n := change(earlier, s.packets(t))
	if n["forwarded"]+n["stack"] != sent {
		t.Errorf("of %d packets were %v", sent, n)
	}
	onlyForwarded(t, earlier, s.packets(t))
	netnstest.Await(t, "all packets", func() error {
		if n := arrived() - before; n < sent {
			return fmt.Errorf("%d of %d", n, sent)
		}
		return nil
	})
	if n := len(s.entries(t, alice)); n == 0 || n > 128 {
		t.Errorf("there are %d entries", n)
	}
}

// TestEntriesEnd: an entry of the cache can be used for a quarter of the time for which connection tracking remembers
// an idle connection, at most for 16 s, and only for a second where the kernel does not report the connection's end.
func TestEntriesEnd(t *testing.T) {
	s := newScanned(t, 0)
	t.Cleanup(func() { run(t, short(30)+"; sysctl -qw net.netfilter.nf_conntrack_events=2") })
	place, err := s.placeOf(bob)
	must(t, err)
	for i, c := range []struct {
		setting     string
		above, most time.Duration
	}{
		{short(100), 3 * time.Second, 16 * time.Second},
		{short(12), time.Second, 3 * time.Second},
		{short(100) + "; sysctl -qw net.netfilter.nf_conntrack_events=0", 0, time.Second},
	} {
		run(t, c.setting)
		netnstest.Await(t, "an entry", func() error {
			s.deliver(t, bob, udp(9, from(bob, bobMAC), source(uint16(6000+i))))
			if _, err := unix.Write(s.wire.server, udp(uint16(6000+i), source(9), down, to(routerWAN))); err != nil {
				return err
			}
			var k gatewayFlowKey
			var p gatewayFlowPath
			left := time.Duration(-1)
			all := s.objs.FlowPaths.Iterate()
			for all.Next(&k, &p) {
				if p.At == place && k.Sport == port(uint16(6000+i)) && p.Until > 0 {
					left = time.Duration(p.Until - now())
				}
			}
			must(t, all.Err())
			if left > c.most {
				t.Errorf("%s: an entry is valid for %v", c.setting, left)
			}
			if left <= c.above {
				return fmt.Errorf("%s: it is valid for %v", c.setting, left)
			}
			return nil
		})
	}
}
