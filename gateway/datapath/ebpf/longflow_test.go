// Tests of flows that last longer than connection tracking remembers a silent connection. twins are two gateways
// between wires, one with the cache of flows and one without, to which a test sends the same frames (twins_test.go). A
// flow is a connection that makes its packets with fromClient and fromPeer (flow_test.go). makeCached sends until the
// cache forwards a flow (follow_test.go).

package ebpf

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

var longFor = flag.Duration("long.for", 9*time.Second, "how long TestLongDownload downloads")

// tracked lists the connections of TCP and UDP of a namespace.
func tracked(t testing.TB, s *netnstest.Space) (all []*netlink.ConntrackFlow) {
	t.Helper()
	var err error
	s.Do(func() { all, err = netlink.ConntrackTableList(netlink.ConntrackTable, netlink.FAMILY_V4) })
	must(t, err)
	return all
}

// short returns a script by which connection tracking forgets every flow after some seconds without packets.
func short(seconds int) string {
	return fmt.Sprintf(
		"for t in tcp_timeout_established udp_timeout udp_timeout_stream; do sysctl -qw net.netfilter.nf_conntrack_$t=%d; "+
			"done", seconds)
}

// TestLongDownload: a TCP download and a UDP flow of a server, most of whose packets the cache forwards past connection
// tracking, go on for longer than connection tracking remembers an idle connection. The few packets that it sees keep
// the connections.
func TestLongDownload(t *testing.T) {
	t.Parallel()
	netnstest.NeedTCX(t)
	w := datapathtest.NewWorld(t, cachePath(t), datapathtest.Shape{})
	w.Router.Run(t, `nft 'table ip isp { chain out { type nat hook postrouting priority srcnat; oifname "wan0" masquerade random; }
chain in { type nat hook prerouting priority dstnat; iifname "wan0" udp dport 7000 dnat to 10.1.0.10; }; }'`)
	becomes(t, w, "flow cache", "netfilter has rules")
	w.Router.Run(t, short(4))
	must(t, w.Set(datapath.Client{Addrs: []netip.Addr{w.Alice.Addr}, MAC: w.Alice.MAC, Admitted: true}))
	x := w.NewStream(t, w.Alice, datapathtest.Server)
	sound := w.Up(t, w.Alice) // the server answers nothing
	sound.Begin()
	began, before := time.Now(), w.Packets(t)
	at := x.Server.RemoteAddr()
	for time.Since(began) < *longFor {
		x.Carry(t, x.Server, 200_000)
		time.Sleep(20 * time.Millisecond) // some 80 Mbit/s
	}
	known := tracked(t, w.Router) // now, because they are forgotten soon
	sound.Halt()
	sound.Whole(t, "one way")
	n := w.Packets(t)
	t.Logf("%.0f MB: %d packets by the cache, %d by the stack", float64(x.Came())/1e6, n["forwarded"]-before["forwarded"],
		n["stack"]-before["stack"])
	if n["forwarded"]-before["forwarded"] < 2*(n["stack"]-before["stack"]) {
		t.Errorf("%v became %v", before, n)
	}
	if len(known) != 2 {
		t.Errorf("%d connections are known: %v", len(known), known)
	}
	for _, f := range known {
		if port := netip.MustParseAddrPort(at.String()).Port(); f.Forward.Protocol == 6 && f.Reverse.DstPort != port {
			t.Errorf("the connection from port %d is known with %d", port, f.Reverse.DstPort)
		}
	}
}

// TestIdleFlow: a cached flow sends nothing for nearly as long as connection tracking remembers it, and then for
// longer. What becomes of its next packets is the same with the cache as without.
func TestIdleFlow(t *testing.T) {
	t.Parallel()
	tw := newTwins(t)
	tw.rules(t, "round1",
		`table ip round1 { chain from { type nat hook postrouting priority 100; oifname wan0 meta l4proto tcp masquerade
}
chain forward { type filter hook forward priority 0; policy drop; meta l4proto 253 accept; ct state established accept; ct state new tcp flags syn / syn,ack accept
}
}`)
	f := begin(t, tw, alice)
	tw.makeCached(t, f.fromClient(), f.fromPeer())
	tw.each(func(w *twin) { w.Router.Run(t, short(60)) })
	tw.untilStack(t, f)
	tw.left(t, f.client.Port(), 57)
	if all := tw.compare(t, f.fromClient(), f.fromPeer()); len(all.client) != 1 || len(all.server) != 1 {
		t.Errorf("after some seconds arrived %v", all)
	}
	tw.makeCached(t, f.fromClient(), f.fromPeer())
	tw.each(func(w *twin) { w.Router.Run(t, short(3)) })
	tw.untilStack(t, f)
	tw.left(t, f.client.Port(), 0)
	if all := tw.compare(t, f.fromClient(), f.fromPeer()); len(all.client) != 0 {
		t.Errorf("after the connection was forgotten arrived %v", all)
	}
}

// left waits until both gateways remember the connections from a port for at most so many more seconds; 0: until they
// have forgotten them.
func (tw *twins) left(t *testing.T, port uint16, seconds uint32) {
	t.Helper()
	netnstest.Await(t, "connections to be idle", func() error {
		for _, w := range []*twin{tw.cached, tw.plain} {
			for _, c := range tracked(t, w.Router) {
				if c.Forward.SrcPort == port && (c.TimeOut > seconds || seconds == 0) {
					return fmt.Errorf("one is remembered for %d s", c.TimeOut)
				}
			}
		}
		return nil
	})
}

// untilStack makes the cache's entries void, and sends packets of a flow until the stack has forwarded one.
func (tw *twins) untilStack(t *testing.T, f *flow) {
	t.Helper()
	tw.each(func(w *twin) {
		w.Router.Run(t, "ip route add blackhole 233.252.0.1; ip route del blackhole 233.252.0.1")
	})
	netnstest.Await(t, "a packet by the stack", func() error {
		before := tw.cached.Packets(t)["forwarded"]
		tw.compare(t, f.fromClient())
		if tw.cached.Packets(t)["forwarded"] != before {
			return errors.New("the cache forwards it")
		}
		return nil
	})
}

// TestPathMTU: the MTU on the way of a cached flow becomes smaller than its packets. The client gets an ICMP error, and
// its shorter packets pass, by the cache again.
func TestPathMTU(t *testing.T) {
	t.Parallel()
	tw := newTwins(t)
	tw.rules(t, "round1",
		"table ip round1 { chain from { type nat hook postrouting priority 100; oifname wan0 meta l4proto tcp masquerade; "+
			"}; }")
	f := begin(t, tw, alice)
	whole := func(n int) []func(*datapathtest.Frame) {
		return []func(*datapathtest.Frame){
			datapathtest.Carrying(make([]byte, n)), func(fr *datapathtest.Frame) { fr.IP.Flags = layers.IPv4DontFragment }}
	}
	large, small := f.fromClient(whole(1300)...), f.fromClient(whole(500)...)
	tw.makeCached(t, large, f.fromPeer(whole(1300)...))
	tw.each(func(w *twin) { w.Router.Run(t, "ip route add 198.51.100.9 via 192.0.2.2 mtu lock 600") })
	netnstest.Await(t, "the route to count", func() error {
		cached, plain := tw.arrivals(t, large)
		if !cached.equal(plain) {
			return errors.New("with the cache arrived " + cached.String())
		}
		return nil
	})
	if all := tw.compare(t, large); len(all.server) != 0 || len(all.client) != 1 {
		t.Errorf("of a packet that does not fit arrived %v", all)
	}
	if all := tw.compare(t, small); len(all.server) != 1 {
		t.Errorf("of a packet that fits arrived %v", all)
	}
	tw.makeCached(t, small, f.fromPeer(whole(1300)...))
	if all := tw.compare(t, large); len(all.server) != 0 || len(all.client) != 1 {
		t.Errorf("of a packet that does not fit arrived %v", all)
	}
}

// TestPortsReused: a client uses one port towards two servers, two clients use the same port, and with NAT an outside
// port goes to another client when its connection is forgotten. Every packet goes to the same host with the cache as
// without.
func TestPortsReused(t *testing.T) {
	t.Parallel()
	tw := newTwins(t)
	tw.rules(t, "round1", `table ip round1 { chain from { type nat hook postrouting priority 100
oifname wan0 udp sport 6000 snat to 192.0.2.1:5000
oifname wan0 udp sport 6001 ip saddr 10.1.0.10 snat to 192.0.2.77
oifname wan0 udp sport 6001 snat to 192.0.2.78
}
}`)
	datagrams := func(client netip.Addr, port uint16, server, outside string) *flow {
		f := &flow{udp: true, up: true, client: netip.AddrPortFrom(client, port), wanted: netip.MustParseAddrPort(server),
			seen: netip.MustParseAddrPort(outside)}
		f.answered = f.wanted
		return f
	}
	first, second := datagrams(alice, 6001, "192.0.2.2:53", "192.0.2.77:6001"),
		datagrams(alice, 6001, "192.0.2.3:53", "192.0.2.77:6001")
	same := datagrams(bob, 6001, "192.0.2.2:53", "192.0.2.78:6001")
	var frames [][]byte
	for _, f := range []*flow{first, second, same} {
		frames = append(frames, f.fromClient(), f.fromPeer())
	}
	alicesFlow, bobsFlow := datagrams(alice, 6000, "192.0.2.2:53", "192.0.2.1:5000"),
		datagrams(bob, 6000, "192.0.2.2:53", "192.0.2.1:5000")
	tw.makeCached(t, append(frames, alicesFlow.fromClient(), alicesFlow.fromPeer())...)
	if all := tw.compare(t, bobsFlow.fromClient(), alicesFlow.fromPeer()); len(all.server) != 0 ||
		!isTo(all.client, alice) {
		t.Errorf("the port is taken, and arrived %v", all)
	}
	tw.each(func(w *twin) { w.Router.Run(t, short(3)) })
	tw.untilStack(t, alicesFlow)
	tw.left(t, 6000, 0)
	if all := tw.compare(t, bobsFlow.fromClient(), bobsFlow.fromPeer(), alicesFlow.fromClient(), bobsFlow.fromPeer()); len(
		all.server) != 1 ||
		!isTo(all.client, bob) {
		t.Errorf("the port is another client's, and arrived %v", all)
	}
}

// isTo reports whether there are frames, all for one client.
func isTo(frames [][]byte, client netip.Addr) bool {
	for _, f := range frames {
		if _, to := ends(f); to.Addr() != client {
			return false
		}
	}
	return len(frames) > 0
}
