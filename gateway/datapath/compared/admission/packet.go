package admission

import "encoding/binary"

// Packet is an IPv4 packet as received by a data path.
type Packet struct {
	// Bytes begin at the IPv4 header. They may be only the beginning of the packet, but should include the transport
	// header: without it ports count as absent.
	Bytes []byte
	// Length is the number of received bytes, padding included; 0: len(Bytes).
	Length int
	// Segments is the number of packets on the wire that were aggregated, each with its own headers; 0 and 1: not
	// aggregated.
	Segments int
	// Session is the PPPoE session in which it came from the LAN; 0: none.
	Session uint16
	// ToMany means that the frame's destination was broadcast or multicast: the stack does not forward such packets (RFC
	// 1812, 5.3.4).
	ToMany bool
	// Checked means that the stack has validated the header. It may since have changed options and left checksums for
	// later.
	Checked bool
}

// Protocol constants.
const (
	ipHeader  = 20
	tcpHeader = 20
	udpHeader = 8

	protocolICMP = 1
	protocolTCP  = 6
	protocolUDP  = 17

	portDNS        = 53
	portDHCPServer = 67
	portDHCPClient = 68
	portHTTP       = 80

	broadcast = 0xffffffff
)

// header is the parsed headers of a packet.
type header struct {
	source, dest     uint32
	srcPort, dstPort uint16 // ports; 0 where there are none
	length           int    // of the IP header
	protocol         uint8
	fragment         bool
	session          uint16 // PPPoE's
	toMany           bool   // only the gateway itself may receive it
	packets          uint64 // on the wire
	bytes            uint64 // on the wire, headers included
}

// validLengths reports whether a packet is IPv4 with consistent lengths and a right header checksum (RFC 1812, 5.2.2),
// and returns its length. Aggregated packets were checked by whoever aggregated them, and beyond 64 KiB have no length
// field.
func (p Packet) validLengths() (total int, ok bool) {
	b, came := p.Bytes, max(p.Length, len(p.Bytes))
	if len(b) < ipHeader || b[0]>>4 != 4 {
		return 0, false
	}
	length := int(b[0]&15) * 4
	total = int(binary.BigEndian.Uint16(b[2:]))
	if p.Segments > 1 && total == 0 {
		total = came
	}
	if length < ipHeader || length > len(b) || total < length || total > came {
		return 0, false
	}
	return total, p.Segments > 1 || p.Checked || isSummed(b[:length])
}

// isSummed reports whether a header's checksum is right (RFC 1071).
func isSummed(b []byte) bool {
	var sum uint64
	for ; len(b) >= 4; b = b[4:] {
		sum += uint64(binary.BigEndian.Uint32(b))
	}
	sum = sum>>32 + sum&0xffffffff
	sum = sum>>16 + sum&0xffff
	sum = sum>>16 + sum&0xffff
	return sum>>16+sum&0xffff == 0xffff
}

// parse reads a packet's headers; false: the packet is malformed.
func (p Packet) parse(h *header) bool {
	total, ok := p.validLengths()
	if !ok {
		return false
	}
	b := p.Bytes
	h.length, h.session, h.toMany = int(b[0]&15)*4, p.Session, p.ToMany
	h.source, h.dest = binary.BigEndian.Uint32(b[12:]), binary.BigEndian.Uint32(b[16:])
	h.protocol = b[9]
	fragment := binary.BigEndian.Uint16(b[6:])
	h.fragment = fragment&0x3fff != 0
	h.srcPort, h.dstPort = 0, 0
	headers := h.length
	if l4 := b[h.length:]; fragment&0x1fff == 0 {
		switch {
		case h.protocol == protocolUDP && len(l4) >= 4:
			headers += udpHeader
			h.srcPort, h.dstPort = binary.BigEndian.Uint16(l4), binary.BigEndian.Uint16(l4[2:])
		case h.protocol == protocolTCP && len(l4) >= 4:
			if len(l4) >= tcpHeader {
				headers += int(l4[12]>>4) * 4
			}
			h.srcPort, h.dstPort = binary.BigEndian.Uint16(l4), binary.BigEndian.Uint16(l4[2:])
		}
	}
	h.packets, h.bytes = 1, uint64(total)
	if p.Segments > 1 {
		h.packets = uint64(p.Segments)
		h.bytes += uint64(p.Segments-1) * uint64(headers)
	}
	return true
}

// isRequest reports whether a packet is a whole message of a DHCP client to the gateway or to all. A message to another
// address would be forwarded.
func (t *Table) isRequest(h *header) bool {
	toAll := h.dest == broadcast || h.dest == t.base+uint32(len(t.entries))-1
	return h.protocol == protocolUDP && h.dstPort == portDHCPServer && !h.fragment && (toAll || h.dest == t.gateway)
}

// isMulticast reports whether an address is multicast or broadcast.
func isMulticast(addr uint32) bool { return addr>>28 == 0xe || addr == broadcast }

// answerable reports whether a packet may be answered with a reset or an ICMP error (RFC 9293, 3.10.7.1; RFC 1122,
// 3.2.2).
func (h *header) answerable(b []byte) bool {
	if h.fragment || h.toMany || isMulticast(h.dest) {
		return false
	}
	l4 := b[h.length:]
	switch h.protocol {
	case protocolTCP:
		const rst = 4
		return h.length == ipHeader && len(l4) >= tcpHeader && l4[13]&rst == 0
	case protocolICMP:
		// Echo and timestamp requests; other types are answers or errors themselves.
		return len(l4) > 0 && (l4[0] == 8 || l4[0] == 13)
	}
	return true
}
