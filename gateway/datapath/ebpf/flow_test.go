// Helpers: a flow is a connection through the gateways of twins (twins_test.go), with its addresses as each side sees
// them. shake opens it, fromClient and fromPeer make its packets.

package ebpf

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
)

// endpoint is an address and port.
type endpoint = netip.AddrPort

// flow is a connection through a gateway, with its addresses as each side sees them.
type flow struct {
	udp, up bool // up: the client began
	// client and wanted are the client's endpoint and the peer's, as the client sees them; seen and answered are the
	// client's endpoint and the peer's, as the peer sees them.
	client, wanted, seen, answered endpoint
	seq, ack                       uint32
	ends, gone                     bool // it may have ended; no more packets are sent
	oneWay                         bool // the peer answers nothing
	rounds                         int  // of matchStack, since the flow began
}

// shake opens a flow, by TCP's handshake or by datagrams both ways. It returns false if the rules did not let the flow
// begin: it cannot be used then, because packets of its peer would have the kernels draw ports, each another.
func (f *flow) shake(t *testing.T, tw *twins) bool {
	t.Helper()
	flags := func(set string) func(*datapathtest.Frame) {
		return func(fr *datapathtest.Frame) {
			if l, found := fr.L4.(*layers.TCP); found {
				l.SYN, l.ACK, l.PSH = strings.Contains(set, "S"), strings.Contains(set, "A"), false
				fr.Payload = nil
			}
		}
	}
	first, second := f.fromPeer, f.fromClient
	if f.up {
		first, second = f.fromClient, f.fromPeer
	}
	tw.apart = false
	all := tw.compare(t, first(flags("S")))
	arrived := all.client
	if f.up {
		arrived = all.server
	}
	if len(arrived) == 0 || tw.apart && !f.oneWay { // answers would be for another port in each gateway
		return false
	}
	from, to := ends(arrived[len(arrived)-1])
	if f.up {
		f.seen, f.answered = from, to
	} else {
		f.wanted, f.client = from, to
	}
	if f.oneWay {
		return true
	}
	tw.compare(t, second(flags("SA")))
	tw.compare(t, first(flags("A")))
	tw.compare(t, second(flags("A")))
	return true
}

// ends reads a frame's addresses and ports. For an IPv6 address it returns the IPv4 address of which it is made (Six).
func ends(frame []byte) (from, to endpoint) {
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	last := func(e gopacket.Endpoint) netip.Addr {
		raw := e.Raw()
		return netip.AddrFrom4([4]byte(raw[len(raw)-4:]))
	}
	ip := p.NetworkLayer().NetworkFlow()
	src, dst := last(ip.Src()), last(ip.Dst())
	switch l := p.TransportLayer().(type) {
	case *layers.TCP:
		return netip.AddrPortFrom(src, uint16(l.SrcPort)), netip.AddrPortFrom(dst, uint16(l.DstPort))
	case *layers.UDP:
		return netip.AddrPortFrom(src, uint16(l.SrcPort)), netip.AddrPortFrom(dst, uint16(l.DstPort))
	}
	return netip.AddrPortFrom(src, 0), netip.AddrPortFrom(dst, 0)
}

// fromClient and fromPeer make a packet of the flow.
func (f *flow) fromClient(edits ...func(*datapathtest.Frame)) []byte {
	mac := aliceMAC
	if f.client.Addr() == bob {
		mac = bobMAC
	}
	return f.make(f.client, f.wanted, f.seq, f.ack,
		append([]func(*datapathtest.Frame){from(f.client.Addr(), mac), to(f.wanted.Addr())}, edits...))
}

func (f *flow) fromPeer(edits ...func(*datapathtest.Frame)) []byte {
	return f.make(f.answered, f.seen, f.ack, f.seq, append([]func(*datapathtest.Frame){down, func(fr *datapathtest.Frame) {
		fr.IP.SrcIP = f.answered.Addr().AsSlice()
	}, to(f.seen.Addr())}, edits...))
}

func (f *flow) make(from, to endpoint, seq, ack uint32, edits []func(*datapathtest.Frame)) []byte {
	edits = append([]func(*datapathtest.Frame){source(from.Port())}, edits...)
	if f.udp {
		return udp(to.Port(), edits...)
	}
	return tcp(to.Port(), append([]func(*datapathtest.Frame){func(fr *datapathtest.Frame) {
		l := fr.L4.(*layers.TCP)
		l.Seq, l.Ack = seq, ack
	}}, edits...)...)
}
