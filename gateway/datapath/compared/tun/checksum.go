package tun

import (
	"encoding/binary"
	"math/bits"
)

// sum adds bytes as the Internet checksum does (RFC 1071), eight at a time: in ones'
// complement the width of the words does not matter. b begins at an even offset of the
// data.
func sum(b []byte, initial uint64) uint64 {
	acc, carry := initial, uint64(0)
	for len(b) >= 32 {
		acc, carry = bits.Add64(acc, binary.BigEndian.Uint64(b), carry)
		acc, carry = bits.Add64(acc, binary.BigEndian.Uint64(b[8:]), carry)
		acc, carry = bits.Add64(acc, binary.BigEndian.Uint64(b[16:]), carry)
		acc, carry = bits.Add64(acc, binary.BigEndian.Uint64(b[24:]), carry)
		b = b[32:]
	}
	for len(b) >= 8 {
		acc, carry = bits.Add64(acc, binary.BigEndian.Uint64(b), carry)
		b = b[8:]
	}
	var rest [8]byte
	copy(rest[:], b)
	acc, carry = bits.Add64(acc, binary.BigEndian.Uint64(rest[:]), carry)
	acc, carry = bits.Add64(acc, 0, carry)
	return acc + carry
}

// fold reduces a sum to 16 bits.
func fold(s uint64) uint16 {
	s = s>>32 + s&0xffffffff
	s = s>>32 + s&0xffffffff
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	return uint16(s)
}

// pseudo returns the sum of the pseudo-header of a packet's transport header (RFC 9293,
// 3.1), for a transport header and payload of length bytes.
func pseudo(ip []byte, length int) uint64 {
	return uint64(sourceOf(ip)) + uint64(destOf(ip)) + uint64(ip[9]) + uint64(length)
}

// sumHeader sets the checksum of an IP header.
func sumHeader(ip []byte) {
	header := ip[:int(ip[0]&15)*4]
	header[10], header[11] = 0, 0
	binary.BigEndian.PutUint16(header[10:], ^fold(sum(header, 0)))
}

// finish writes the checksum over b into its field at offset. The field contains, by
// virtio's convention, the sum of the pseudo-header.
func finish(b []byte, offset int) {
	s := ^fold(sum(b, 0))
	if s == 0 {
		s = 0xffff // the same number; in UDP 0 means no checksum
	}
	binary.BigEndian.PutUint16(b[offset:], s)
}

// replace updates a checksum for data that changed from old to new (RFC 1624, eqn. 3).
func replace(field []byte, old, new uint32) {
	s := uint64(^binary.BigEndian.Uint16(field))
	s += uint64(^old>>16) + uint64(^old&0xffff) + uint64(new>>16) + uint64(new&0xffff)
	binary.BigEndian.PutUint16(field, ^fold(s))
}
