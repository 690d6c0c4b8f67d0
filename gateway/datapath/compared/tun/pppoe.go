package tun

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/compared/admission"
)

// Frames of PPPoE sessions (RFC 2516, 4), between the Ethernet header and the packet:
//
//	version, type, code │ session │ length, of what follows │ PPP's protocol │ IP packet
//	2                     2         2                         2
const (
	etherSession = 0x8864
	pppoeLen     = 8
	pppoeData    = 0x1100 // version 1, type 1, code 0
	pppIPv4      = 0x0021
	pppIPv6      = 0x0057
)

// pppoeIn handles a frame of a PPPoE session. Those of control protocols go to the concentrator's own socket.
func (w *worker) pppoeIn(frame []byte, v virtio, now int64) {
	h := frame[ethernetLen:]
	if !w.cfg.PPPoE || len(h) < pppoeLen || binary.BigEndian.Uint16(h) != pppoeData {
		return
	}
	switch binary.BigEndian.Uint16(h[6:]) {
	case pppIPv4:
	case pppIPv6:
		w.judge.Count(admission.IPv6, 1)
		return
	default:
		return
	}
	session, length := binary.BigEndian.Uint16(h[2:]), int(binary.BigEndian.Uint16(h[4:]))
	ip, ok := ipv4(h[pppoeLen:])
	const protocol = 2 // bytes, of the length too
	if !ok || session == 0 || length < protocol+len(ip) || length > len(h)-pppoeLen+protocol {
		w.judge.Count(admission.Malformed, 1)
		return
	}
	from := sender{datapath.MAC(frame[6:12]), session, frame[0]&1 != 0}
	v.sumStart -= min(v.sumStart, ethernetLen+pppoeLen)
	whole := func(ip []byte) {
		if _, mtu := w.judge.PPPoE(sourceOf(ip)); mtu != 0 {
			clamp(ip, mtu)
		}
		w.packetIn(from, ip, now)
	}
	if v.gso != unix.VIRTIO_NET_HDR_GSO_NONE || !settle(ip, v, w.scratch, whole) {
		w.judge.Count(admission.Malformed, 1)
	}
}

// toPPPoE sends a whole packet to a PPPoE session: in fragments if it is longer than the MTU, or an error to its sender
// if it must not be fragmented.
func (w *worker) toPPPoE(mac datapath.MAC, session, mtu uint16, ip []byte, now int64) {
	clamp(ip, mtu)
	if len(ip) <= int(mtu) {
		w.sendPPPoE(mac, session, ip)
		return
	}
	const dontFragment = 0x40
	if ip[6]&dontFragment == 0 {
		fragments(ip, int(mtu), w.scratch, func(part []byte) { w.sendPPPoE(mac, session, part) })
		return
	}
	isError := ip[9] == protocolICMP && (len(ip) < ipLen+1 || ip[ipLen] != 0 && ip[ipLen] != 8)
	if !isError && w.errors.Spend(icmpErrors, now) {
		// In the client's name, because the kernel takes no packet from its own address.
		w.toKernel(tooLong(w.scratch, ip, destOf(ip), mtu))
	}
}

// sendPPPoE sends a packet in a frame of a session.
func (w *worker) sendPPPoE(mac datapath.MAC, session uint16, ip []byte) {
	frame := w.framed[:packetStart+pppoeLen+len(ip)]
	w.header(mac, frame)
	h := frame[frameStart+ethernetLen-2:]
	binary.BigEndian.PutUint16(h, etherSession)
	binary.BigEndian.PutUint16(h[2:], pppoeData)
	binary.BigEndian.PutUint16(h[4:], session)
	binary.BigEndian.PutUint16(h[6:], uint16(2+len(ip)))
	binary.BigEndian.PutUint16(h[8:], pppIPv4)
	copy(frame[packetStart+pppoeLen:], ip)
	w.sendFrame(frame)
}

// fragments cuts a packet into fragments of an MTU (RFC 791, 3.2), and calls each with them, one after the other in the
// same memory. A packet with options is dropped: some belong into the first fragment only.
func fragments(ip []byte, mtu int, scratch []byte, each func([]byte)) {
	if ip[0] != 0x45 {
		return
	}
	const more = 0x2000
	place, payload := binary.BigEndian.Uint16(ip[6:]), ip[ipLen:]
	for size := (mtu - ipLen) &^ 7; len(payload) > 0; {
		n := min(size, len(payload))
		part := scratch[:ipLen+n]
		copy(part, ip[:ipLen])
		copy(part[ipLen:], payload[:n])
		payload = payload[n:]
		binary.BigEndian.PutUint16(part[2:], uint16(len(part)))
		at := place
		if len(payload) > 0 {
			at |= more
		}
		binary.BigEndian.PutUint16(part[6:], at)
		sumHeader(part)
		each(part)
		place += uint16(n / 8)
	}
}

// clamp lowers the MSS that a SYN offers to what fits into a PPPoE session's MTU (RFC 9293, 3.7.1).
func clamp(ip []byte, mtu uint16) {
	if ip[9] != protocolTCP {
		return
	}
	tcp := transport(ip, tcpLen)
	if tcp == nil || tcp[13]&flagSYN == 0 {
		return
	}
	end, most := min(int(tcp[12]>>4)*4, len(tcp)), mtu-ipLen-tcpLen
	for index := tcpLen; index+1 < end; {
		const none, nothing, mss, mssLen = 0, 1, 2, 4
		kind, n := tcp[index], int(tcp[index+1])
		switch {
		case kind == none:
			return
		case kind == nothing:
			n = 1
		case n < 2:
			return
		case kind == mss && n == mssLen && index+mssLen <= end:
			offered := binary.BigEndian.Uint16(tcp[index+2:])
			if offered <= most {
				return
			}
			binary.BigEndian.PutUint16(tcp[index+2:], most)
			before, current := uint32(offered), uint32(most)
			if index%2 != 0 { // the checksum's sum is of words
				before, current = before>>8|before&0xff<<8, current>>8|current&0xff<<8
			}
			replace(tcp[tcpChecksum:tcpChecksum+2], before, current)
			return
		}
		index += n
	}
}
