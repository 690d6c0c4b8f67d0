package tun

import (
	"encoding/binary"
	"sync/atomic"
	"time"
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

// prohibited writes the ICMP error "communication administratively prohibited"
// (RFC 1812, 5.2.7.1) that answers a packet into out and returns it.
func prohibited(out, ip []byte, gateway uint32) []byte {
	const (
		icmpLen = 8
		// RFC 1812, 4.3.2.3: as much of the packet as fits into 576 bytes.
		quoted          = 576 - ipLen - icmpLen
		unreachable     = 3
		byAdministrator = 13
	)
	ip = ip[:min(len(ip), quoted)]
	out = answer(out[:ipLen+icmpLen+len(ip)], ip, gateway, protocolICMP)
	o := out[ipLen:]
	o[0], o[1] = unreachable, byAdministrator
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

// ICMP errors a second, and burst: the kernel's own limits (icmp(7), icmp_msgs_per_sec
// and icmp_msgs_burst).
const (
	errorsPerSecond = 1000
	errorsAtOnce    = 50
)

// pace limits the ICMP errors of all threads: a token bucket as a virtual clock,
// nanoseconds of the judges' clock.
type pace struct{ used atomic.Int64 }

// allows uses one error's time, if any is left.
func (p *pace) allows(now int64) bool {
	const need = int64(time.Second) / errorsPerSecond
	was := p.used.Load()
	next := max(was, now-errorsAtOnce*need) + need
	return next <= now && p.used.CompareAndSwap(was, next)
}

const (
	arpLen     = 28
	arpRequest = 1
	arpReply   = 2
)

// arpAnswer writes the answer to an ARP request for the gateway's address into out, a
// whole frame, and returns it; nil for other requests.
func arpAnswer(out, b []byte, mac [6]byte, gateway uint32) []byte {
	if len(b) < arpLen || binary.BigEndian.Uint16(b[6:]) != arpRequest || binary.BigEndian.Uint32(b[24:]) != gateway {
		return nil
	}
	out = out[:ethernetLen+arpLen]
	copy(out, b[8:14])
	copy(out[6:], mac[:])
	copy(out[12:], []byte{8, 6})
	o := out[ethernetLen:]
	copy(o, b[:6])
	binary.BigEndian.PutUint16(o[6:], arpReply)
	copy(o[8:], mac[:])
	binary.BigEndian.PutUint32(o[14:], gateway)
	copy(o[18:], b[8:18])
	return out
}
