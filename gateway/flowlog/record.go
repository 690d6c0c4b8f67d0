package flowlog

import (
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// shape is the set of optional fields in an IPFIX record. Each shape has a template.
type shape uint16

const (
	translated shape = 1 << iota // addresses after a translation, and ports where the protocol has them
	icmp                         // type and code instead of ports
	inbound                      // the peer began the flow, so the client's MAC address is the destination's
	ipv6                         // addresses of IPv6, and ICMPv6's type and code
	shapes                       // number of shapes
)

func (s shape) template() uint16 { return firstTemplateID + uint16(s) }

// field is a field of a template: IANA's number of the information element, its bytes, and whether it counts the
// reverse direction, towards the end that began the flow (RFC 5103).
type field struct {
	element, bytes uint16
	reverse        bool
}

// fields lists the fields of a shape. The fields of a translation are those of RFC 8158 without natEvent, because a
// record describes a whole flow, not the beginning or end of a translation.
func (s shape) fields() []field {
	all := []field{
		{element: 152, bytes: 8}, {element: 153, bytes: 8}, // flowStartMilliseconds, flowEndMilliseconds
	}
	all = append(all, s.pick( // sourceIPv4Address, destinationIPv4Address; sourceIPv6Address, destinationIPv6Address
		[]field{{element: 8, bytes: 4}, {element: 12, bytes: 4}},
		[]field{{element: 27, bytes: 16}, {element: 28, bytes: 16}})...) // the source is the end that began
	if s&icmp != 0 {
		// icmpTypeCodeIPv4, icmpTypeCodeIPv6, of the first message
		all = append(all, s.pick([]field{{element: 32, bytes: 2}}, []field{{element: 139, bytes: 2}})...)
	} else {
		// sourceTransportPort, destinationTransportPort
		all = append(all, field{element: 7, bytes: 2}, field{element: 11, bytes: 2})
	}
	mac := field{element: 56, bytes: 6} // sourceMacAddress
	if s&inbound != 0 {
		mac.element = 80 // destinationMacAddress
	}
	all = append(all,
		field{element: 4, bytes: 1},                              // protocolIdentifier
		field{element: 1, bytes: 8}, field{element: 2, bytes: 8}, // octetDeltaCount, packetDeltaCount
		field{element: 1, bytes: 8, reverse: true}, field{element: 2, bytes: 8, reverse: true},
		mac,
		field{element: 371, bytes: variableLength}, // userName
	)
	if s&translated != 0 {
		// postNATSourceIPv4Address, postNATDestinationIPv4Address; the same of IPv6
		all = append(all, s.pick([]field{{element: 225, bytes: 4}, {element: 226, bytes: 4}},
			[]field{{element: 281, bytes: 16}, {element: 282, bytes: 16}})...)
	}
	if s&translated != 0 && s&icmp == 0 {
		// postNAPTSourceTransportPort, postNAPTDestinationTransportPort
		all = append(all, field{element: 227, bytes: 2}, field{element: 228, bytes: 2})
	}
	return all
}

// pick returns what a shape has of two: v4, or v6 with addresses of IPv6.
func (s shape) pick(v4, v6 []field) []field {
	if s&ipv6 != 0 {
		return v6
	}
	return v4
}

// isICMP reports whether the flow's messages have a type and a code instead of ports.
func (f *Flow) isICMP() bool {
	return f.Protocol == unix.IPPROTO_ICMP && f.Client.Addr().Is4() ||
		f.Protocol == unix.IPPROTO_ICMPV6 && f.Client.Addr().Is6()
}

func (f *Flow) shape() (s shape) {
	if f.Outside.IsValid() || f.Asked.IsValid() {
		s |= translated
	}
	if f.isICMP() {
		s |= icmp
	}
	if f.Client.Addr().Is6() {
		s |= ipv6
	}
	if f.Inbound {
		s |= inbound
	}
	return s
}

// record encodes a flow by its template. The source is the end that began the flow.
func (f *Flow) record() []byte {
	from, to, fromAfter, toAfter := f.addresses()
	there, back := [2]uint64{f.UpBytes, f.UpPkts}, [2]uint64{f.DownBytes, f.DownPkts}
	if f.Inbound {
		there, back = back, there
	}
	b := make([]byte, 0, 128)
	b = binary.BigEndian.AppendUint64(b, uint64(f.Start.UnixMilli()))
	b = binary.BigEndian.AppendUint64(b, uint64(f.End.UnixMilli()))
	b = appendAddresses(b, from, to)
	if f.isICMP() {
		b = append(b, f.ICMPType, f.ICMPCode)
	} else {
		b = f.appendPorts(b, from, to)
	}
	b = append(b, f.Protocol)
	for _, n := range [][2]uint64{there, back} {
		b = binary.BigEndian.AppendUint64(b, n[0])
		b = binary.BigEndian.AppendUint64(b, n[1])
	}
	mac, err := net.ParseMAC(f.MAC)
	if err != nil || len(mac) != 6 {
		mac = make([]byte, 6)
	}
	b = append(b, mac...)
	user := f.User[:min(len(f.User), 254)] // from 255 bytes on, the length is encoded in another form
	b = append(append(b, byte(len(user))), user...)
	if s := f.shape(); s&translated != 0 {
		b = appendAddresses(b, fromAfter, toAfter)
		if s&icmp == 0 {
			b = f.appendPorts(b, fromAfter, toAfter)
		}
	}
	return b
}

// addresses returns the flow's source, which is the end that began it, and its destination: before address translation
// and after it.
func (f *Flow) addresses() (from, to, fromAfter, toAfter netip.AddrPort) {
	or := func(a, b netip.AddrPort) netip.AddrPort {
		if a.IsValid() {
			return a
		}
		return b
	}
	if f.Inbound {
		return f.Peer, or(f.Outside, f.Client), or(f.Asked, f.Peer), f.Client
	}
	return f.Client, or(f.Asked, f.Peer), or(f.Outside, f.Client), f.Peer
}

func appendAddresses(b []byte, from, to netip.AddrPort) []byte {
	return append(append(b, from.Addr().AsSlice()...), to.Addr().AsSlice()...)
}

// appendPorts appends two ports, or zeros for a protocol without ports, for which the flow may have a call ID or key in
// their place.
func (f *Flow) appendPorts(b []byte, from, to netip.AddrPort) []byte {
	ports := [2]uint16{from.Port(), to.Port()}
	switch f.Protocol {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_DCCP, unix.IPPROTO_SCTP, unix.IPPROTO_UDPLITE:
	default:
		ports = [2]uint16{}
	}
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, ports[0]), ports[1])
}
