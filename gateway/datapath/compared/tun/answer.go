package tun

import (
	"encoding/binary"

	"github.com/gateweigh/gateweigh/gateway/budget"
)

// reset writes the reset that answers a TCP segment (RFC 9293, 3.10.7.1) into out and
// returns it: a whole IP packet. ip is a segment that admission found answerable.
func reset(out, ip []byte) []byte {
	tcp := transport(ip, tcpLen)
	out = answer(out[:ipLen+tcpLen], ip, destOf(ip), protocolTCP)
	o := out[ipLen:]
	copy(o, tcp[2:4])
	copy(o[2:], tcp[0:2])
	o[12] = tcpLen / 4 << 4
	o[13] = flagRST
	if tcp[13]&flagACK != 0 {
		copy(o[4:8], tcp[8:12])
	} else {
		seen := uint32(max(0, len(tcp)-int(tcp[12]>>4)*4))
		for _, f := range []byte{flagSYN, flagFIN} {
			if tcp[13]&f != 0 {
				seen++
			}
		}
		binary.BigEndian.PutUint32(o[8:], binary.BigEndian.Uint32(tcp[4:])+seen)
		o[13] |= flagACK
	}
	binary.BigEndian.PutUint16(o[tcpChecksum:], fold(pseudo(out, tcpLen)))
	finish(o, tcpChecksum)
	return out
}

// Codes of the ICMP error "destination unreachable".
const (
	codeTooLong    = 4
	codeProhibited = 13
)

// prohibited writes the ICMP error "communication administratively prohibited"
// (RFC 1812, 5.2.7.1) that answers a packet into out and returns it.
func prohibited(out, ip []byte, gateway uint32) []byte {
	return unreachable(out, ip, gateway, codeProhibited, 0)
}

// tooLong writes the ICMP error "fragmentation needed" with an MTU (RFC 1191, 4) that answers a packet.
func tooLong(out, ip []byte, from uint32, mtu uint16) []byte {
	return unreachable(out, ip, from, codeTooLong, mtu)
}

func unreachable(out, ip []byte, from uint32, code byte, mtu uint16) []byte {
	const (
		icmpLen = 8
		// RFC 1812, 4.3.2.3: as much of the packet as fits into 576 bytes.
		quoted = 576 - ipLen - icmpLen
		kind   = 3
	)
	ip = ip[:min(len(ip), quoted)]
	out = answer(out[:ipLen+icmpLen+len(ip)], ip, from, protocolICMP)
	o := out[ipLen:]
	o[0], o[1] = kind, code
	binary.BigEndian.PutUint16(o[6:], mtu)
	copy(o[icmpLen:], ip)
	finish(o, 2)
	return out
}

// answer clears out and writes the IP header of an answer to ip's sender.
func answer(out, ip []byte, from uint32, protocol byte) []byte {
	clear(out)
	out[0] = 0x45
	binary.BigEndian.PutUint16(out[2:], uint16(len(out)))
	out[6] = 0x40 // don't fragment
	out[8], out[9] = 64, protocol
	binary.BigEndian.PutUint32(out[12:], from)
	copy(out[16:20], ip[12:16])
	sumHeader(out)
	return out
}

// icmpErrors bounds the ICMP errors of all threads as the kernel does (icmp(7),
// icmp_msgs_per_sec and icmp_msgs_burst).
var icmpErrors = budget.Rate{AtOnce: 50, EachSecond: 1000}
