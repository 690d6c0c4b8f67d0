// Helpers for connections whose source ports the kernel had to change, because two connections clashed, and their test.
// twins are two gateways between wires, one with the cache of flows and one without, to which a test sends the same
// frames (twins_test.go). A flow is a connection that makes its packets with fromClient and fromPeer (flow_test.go).

package ebpf

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// tuple is one direction of a connection: the addresses and ports of its packets.
type tuple struct {
	from, to endpoint
	protocol uint8
}

func (t tuple) String() string { return fmt.Sprintf("%v to %v (%d)", t.from, t.to, t.protocol) }

// connections lists the connections that a namespace tracks: the tuple of the answers by the tuple of the packets that
// began.
func connections(t testing.TB, s *netnstest.Space) map[tuple]tuple {
	t.Helper()
	at := func(ip net.IP, port uint16) endpoint {
		addr, _ := netip.AddrFromSlice(ip)
		return netip.AddrPortFrom(addr.Unmap(), port)
	}
	all := map[tuple]tuple{}
	for _, c := range tracked(t, s) {
		f, r := c.Forward, c.Reverse
		all[tuple{at(f.SrcIP, f.SrcPort), at(f.DstIP, f.DstPort), f.Protocol}] = tuple{
			at(r.SrcIP, r.SrcPort), at(r.DstIP, r.DstPort), r.Protocol}
	}
	return all
}

// clashingConn is a connection whose source port the kernel had to change, because another connection had the same one.
type clashingConn struct {
	began tuple
	port  uint16 // that the kernel drew
	// other is the tuple by which another connection began. Its packets could not be told from the answers to this one, if
	// this one had kept its port.
	other tuple
}

// clash finds the connection of a frame that left, and the connection with which it would clash if it had kept its
// port. Where the answers to a new connection could not be told from packets of another one, the kernel draws a source
// port at random: from 1 to 511 for ports below 512, 600 to 1023 below 1024, else from 1024 on (Linux,
// net/netfilter/nf_nat_core.c). Two gateways draw different ones.
func clash(all map[tuple]tuple, frame []byte) (c clashingConn, found bool) {
	from, to := ends(frame)
	for began, answer := range all {
		if answer == (tuple{to, from, frame[23]}) {
			c, found = clashingConn{began: began, port: from.Port()}, true
		}
	}
	if !found || c.port == c.began.from.Port() {
		return c, false
	}
	want := tuple{to, netip.AddrPortFrom(from.Addr(), c.began.from.Port()), frame[23]}
	for began, answer := range all {
		if began != c.began && (began == want || answer == want) {
			c.other = began
			return c, true
		}
	}
	return c, false
}

// drewPorts reports whether the frames of two gateways, with and without the cache of flows, differ only in source
// ports that their kernels drew. It looks for the clash when a flow's ports first differ, and keeps the ports in
// tw.drawn, because the other connection may end first. It sets tw.apart if ports differed.
func (tw *twins) drewPorts(t testing.TB, cached, plain [][]byte) bool {
	t.Helper()
	if len(cached) != len(plain) {
		return false
	}
	var known [2]map[tuple]tuple
	for i, a := range cached {
		b := plain[i]
		if bytes.Equal(withoutOwnChoices(a), withoutOwnChoices(b)) {
			continue
		}
		if !equalButForSource(a, b) {
			return false
		}
		if known[0] == nil {
			known = [2]map[tuple]tuple{connections(t, tw.cached.Router), connections(t, tw.plain.Router)}
		}
		x, clashesHere := clash(known[0], a)
		y, clashesThere := clash(known[1], b)
		if x.began != y.began {
			return false
		}
		ports := [2]uint16{x.port, y.port}
		if clashesHere && clashesThere && x.other == y.other && tw.drawn[x.began] != ports {
			t.Logf("%v clashes with %v, which is answered as %v: its source port is %d with the cache and %d without", x.began,
				x.other, known[0][x.other], x.port, y.port)
			tw.drawn[x.began] = ports
		}
		if tw.drawn[x.began] != ports {
			return false
		}
		tw.apart = true
	}
	return true
}

// equalButForSource reports whether two packets of TCP or UDP have right checksums and are equal, except for their
// source ports.
func equalButForSource(a, b []byte) bool {
	x := withoutSource(a)
	return x != nil && bytes.Equal(x, withoutSource(b))
}

// withoutSource returns a packet of TCP or UDP without its source port and checksum; nil if it is not whole or its
// checksum is wrong.
func withoutSource(frame []byte) []byte {
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	ip, sum := p.NetworkLayer(), 0
	switch l := p.TransportLayer().(type) {
	case *layers.TCP:
		sum = 16
		l.SetNetworkLayerForChecksum(ip)
	case *layers.UDP:
		sum = 6
		l.SetNetworkLayerForChecksum(ip)
	default:
		return nil
	}
	if err, wrong := p.VerifyChecksums(); err != nil || len(wrong) > 0 {
		return nil
	}
	frame = bytes.Clone(frame)
	l4 := 14 + len(ip.LayerContents())
	clear(frame[l4 : l4+2])
	clear(frame[l4+sum : l4+sum+2])
	return frame
}

// TestClashingPorts has the kernels draw ports. In round 1 UDP flows pass untracked, so the peer sees the client's own
// address and port. In round 2 they are tracked and masqueraded. What the peer sends to the client's own address then
// opens a connection of its own, which clashes with the client's.
func TestClashingPorts(t *testing.T) {
	t.Parallel()
	tw := newTwins(t)
	rules := func(name, early string) {
		tw.rules(t, name, fmt.Sprintf(`table ip %s { chain early { type filter hook prerouting priority -300; %s
}
chain from { type nat hook postrouting priority 100; oifname wan0 meta l4proto udp masquerade; }; }`, name, early))
	}
	rules("round1", "udp dport 53 notrack")
	var flows []*flow
	for n := range uint16(4) { // that both kernels draw the same port for all four is next to impossible
		f := &flow{udp: true, up: true, oneWay: true, client: netip.AddrPortFrom(alice, 45000+n),
			wanted: netip.MustParseAddrPort("198.51.100.9:53")}
		if !f.shake(t, tw) || f.seen != f.client {
			t.Fatalf("%v is seen as %v", f.client, f.seen)
		}
		flows = append(flows, f)
	}
	rules("round2", "")
	for _, f := range flows {
		tw.compare(t, f.fromClient(), f.fromPeer())
	}
	for began, ports := range tw.drawn {
		f := flows[slices.IndexFunc(flows, func(f *flow) bool { return f.seen == began.to })]
		tw.makeCached(t, f.fromPeer())
		cached, plain := tw.arrivals(t, f.fromPeer())
		if !tw.drewPorts(t, cached.client, plain.client) {
			t.Fatalf("not the ports %v that were drawn:\n%s%s", ports, cached, plain)
		}
		port, sum := 34, 40
		for name, change := range map[string]func([]byte){
			"a wrong sum":           func(b []byte) { b[sum]++ },
			"a port of nobody":      func(b []byte) { b[port]++; b[sum]-- },
			"a payload and its sum": func(b []byte) { b[50]++; b[sum]-- },
		} {
			other := bytes.Clone(cached.client[0])
			if change(other); tw.drewPorts(t, [][]byte{other}, plain.client) {
				t.Errorf("%s is taken for the kernel's choice", name)
			}
		}
		return // one flow is enough
	}
	t.Error("no ports were drawn")
}
