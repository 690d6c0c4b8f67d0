// The messages that the gateway sends to clients: questions, defences and answers in the name of other clients.

package bindings

import (
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/mdlayher/ndp"

	"github.com/gateweigh/gateweigh/gateway/framelink"
)

// sender has the addresses of the gateway's own messages, and makes their frames.
type sender struct {
	mac  MAC
	addr netip.Addr // link-local
}

var allNodes = netip.MustParseAddr("ff02::1")

// question is the frame that asks a host whether it has an address (RFC 4861, section 7.3.3). It is for that host
// alone.
func (s sender) question(to Anchor, target netip.Addr) ([]byte, error) {
	return s.frame(to, target, &ndp.NeighborSolicitation{TargetAddress: target,
		Options: []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Source, Addr: s.mac[:]}}})
}

// defence is the frame that tells a host, which probes an address, that another host has it (RFC 4862, section 5.4.4).
// It is for all nodes, as the sender of a probe has no address, but goes to this host's MAC address alone (RFC 6085).
func (s sender) defence(to Anchor, target netip.Addr) ([]byte, error) {
	return s.advertisement(to, allNodes, &ndp.NeighborAdvertisement{Override: true, TargetAddress: target})
}

// proxied is the frame that answers a solicitation of a host for another one's address with the gateway's MAC address
// (RFC 4861, section 7.2.8: without the Override flag).
func (s sender) proxied(to Anchor, dest, target netip.Addr) ([]byte, error) {
	return s.advertisement(to, dest, &ndp.NeighborAdvertisement{Solicited: true, TargetAddress: target})
}

func (s sender) advertisement(to Anchor, dest netip.Addr, m *ndp.NeighborAdvertisement) ([]byte, error) {
	if to.Session == 0 { // PPP has no such addresses
		m.Options = []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Target, Addr: net.HardwareAddr(s.mac[:])}}
	}
	return s.frame(to, dest, m)
}

// frame makes the frame of a message. The error is ndp's, for an address that is not IPv6's.
func (s sender) frame(to Anchor, dest netip.Addr, m ndp.Message) ([]byte, error) {
	body, err := ndp.MarshalMessageChecksum(m, s.addr, dest)
	if err != nil {
		return nil, err
	}
	return framelink.Frame(to, s.mac, s.packet(dest, body)), nil
}

// packet is the IPv6 packet of an ICMPv6 message.
func (s sender) packet(dest netip.Addr, body []byte) []byte {
	b := make([]byte, 0, ipv6Len+len(body))
	b = append(b, 0x60, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(len(body)))
	b = append(b, icmpv6, hopLimit)
	b = append(append(b, s.addr.AsSlice()...), dest.AsSlice()...)
	return append(b, body...)
}

// linkLocalOf is the link-local address that a MAC address makes (RFC 4291, appendix A).
func linkLocalOf(mac MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80,
		8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]})
}
