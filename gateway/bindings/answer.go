package bindings

import (
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/mdlayher/ndp"
	"golang.org/x/sys/unix"
)

// sender is whom the gateway's messages come from.
type sender struct {
	mac  MAC
	addr netip.Addr // link-local
}

var allNodes = netip.MustParseAddr("ff02::1")

// question is the frame that asks a host whether it has an address (RFC 4861, section 7.3.3). It is for that host
// alone.
func (s sender) question(to MAC, target netip.Addr) ([]byte, error) {
	return s.frame(to, target, &ndp.NeighborSolicitation{TargetAddress: target,
		Options: []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Source, Addr: s.mac[:]}}})
}

// defence is the frame that tells a host, which probes an address, that another host has it (RFC 4862, section 5.4.4).
// It is for all nodes, as the sender of a probe has no address, but goes to this host's MAC address alone (RFC 6085).
func (s sender) defence(to MAC, target netip.Addr) ([]byte, error) {
	return s.advertisement(to, allNodes, &ndp.NeighborAdvertisement{Override: true, TargetAddress: target})
}

// proxied is the frame that answers a solicitation of a host for another one's address with the gateway's MAC address
// (RFC 4861, section 7.2.8: without the Override flag).
func (s sender) proxied(to MAC, dest, target netip.Addr) ([]byte, error) {
	return s.advertisement(to, dest, &ndp.NeighborAdvertisement{Solicited: true, TargetAddress: target})
}

func (s sender) advertisement(to MAC, dest netip.Addr, m *ndp.NeighborAdvertisement) ([]byte, error) {
	m.Options = []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Target, Addr: net.HardwareAddr(s.mac[:])}}
	return s.frame(to, dest, m)
}

// frame makes the Ethernet frame of a message. The error is ndp's, for an address that is not IPv6's.
func (s sender) frame(to MAC, dest netip.Addr, m ndp.Message) ([]byte, error) {
	body, err := ndp.MarshalMessageChecksum(m, s.addr, dest)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, ethernetLen+ipv6Len+len(body))
	b = append(append(b, to[:]...), s.mac[:]...)
	b = binary.BigEndian.AppendUint16(b, unix.ETH_P_IPV6)
	b = append(b, 0x60, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(len(body)))
	b = append(b, icmpv6, hopLimit)
	b = append(append(b, s.addr.AsSlice()...), dest.AsSlice()...)
	return append(b, body...), nil
}

// linkLocalOf is the link-local address that a MAC address makes (RFC 4291, appendix A).
func linkLocalOf(mac MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80,
		8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]})
}
