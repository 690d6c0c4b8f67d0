package admission

import "encoding/binary"

// Packet is an IPv4 packet as a data path got it.
type Packet struct {
	// Bytes begin at the IPv4 header. Not all of the packet need be there, but its
	// transport header should: packets without are judged as if they had no ports.
	Bytes []byte
	// Length is how many bytes came, padding included; 0: no more than Bytes.
	Length int
	// Segments is how many packets of the wire were aggregated to this one, each
	// with headers of its own; 0 and 1: none.
	Segments int
	// ToMany says that its frame was sent to everybody or to a group: the stack
	// forwards none of those (RFC 1812, 5.3.4).
	ToMany bool
	// Checked says that the stack has found its header sound. It may have written into
	// options since, and sums later.
	Checked bool
}

// What judges read of packets.
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

// header is what judges know of a packet.
type header struct {
	source, dest uint32
	from, to     uint16 // ports; 0 where there are none
	length       int    // of the IP header
	protocol     uint8
	fragment     bool
	toMany       bool   // and so goes nowhere but to the gateway
	packets      uint64 // on the wire
	bytes        uint64 // of these, headers included
}

// sound says whether a packet is one of IPv4 whose lengths fit each other and what
// came, and its header's sum them (RFC 1812, 5.2.2), and how long it is. Whoever
// aggregated packets has looked at that, and beyond 64 KiB they have no length of
// their own.
func (p Packet) sound() (total int, ok bool) {
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

// isSummed says whether a header has its right sum (RFC 1071).
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

// parse reads a packet's headers; false: it is no sound packet.
func (p Packet) parse(h *header) bool {
	total, ok := p.sound()
	if !ok {
		return false
	}
	b := p.Bytes
	h.length, h.toMany = int(b[0]&15)*4, p.ToMany
	h.source, h.dest = binary.BigEndian.Uint32(b[12:]), binary.BigEndian.Uint32(b[16:])
	h.protocol = b[9]
	fragment := binary.BigEndian.Uint16(b[6:])
	h.fragment = fragment&0x3fff != 0
	h.from, h.to = 0, 0
	headers := h.length
	if l4 := b[h.length:]; fragment&0x1fff == 0 {
		switch {
		case h.protocol == protocolUDP && len(l4) >= 4:
			headers += udpHeader
			h.from, h.to = binary.BigEndian.Uint16(l4), binary.BigEndian.Uint16(l4[2:])
		case h.protocol == protocolTCP && len(l4) >= 4:
			if len(l4) >= tcpHeader {
				headers += int(l4[12]>>4) * 4
			}
			h.from, h.to = binary.BigEndian.Uint16(l4), binary.BigEndian.Uint16(l4[2:])
		}
	}
	h.packets, h.bytes = 1, uint64(total)
	if p.Segments > 1 {
		h.packets = uint64(p.Segments)
		h.bytes += uint64(p.Segments-1) * uint64(headers)
	}
	return true
}

// isMulticast says whether an address is many hosts', broadcast included.
func isMulticast(addr uint32) bool { return addr>>28 == 0xe || addr == broadcast }

// answerable says whether a packet may be answered with a reset or an ICMP error
// (RFC 9293, 3.10.7.1; RFC 1122, 3.2.2).
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
		// Requests; the other types are answers or errors themselves.
		return len(l4) > 0 && (l4[0] == 8 || l4[0] == 13)
	}
	return true
}
