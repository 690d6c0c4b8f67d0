package tun

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// settle does the work that a kernel left to be done with a packet, and calls each with
// the packet, or with the packets aggregated in it, one after the other in the same
// memory: scratch, with space before it. ip is whole; v's offsets count from its
// beginning. It returns false without a call for unknown kinds.
func settle(ip []byte, v virtio, scratch []byte, each func(ip []byte)) bool {
	if v.gso == unix.VIRTIO_NET_HDR_GSO_NONE {
		if v.flags&unix.VIRTIO_NET_HDR_F_NEEDS_CSUM != 0 {
			start, index := int(v.sumStart), int(v.sumOffset)
			if start < ipLen || start+index+2 > len(ip) {
				return false
			}
			finish(ip[start:], index)
		}
		each(ip)
		return true
	}
	return segment(ip, v, scratch, each)
}

// segment splits an aggregated packet, as the kernel does in software: each segment has
// the headers of the whole, with its own length, identification and checksums.
func segment(ip []byte, v virtio, scratch []byte, each func(ip []byte)) bool {
	l4 := int(ip[0]&15) * 4
	headers, field := l4, 0
	switch v.gso &^ unix.VIRTIO_NET_HDR_GSO_ECN {
	case unix.VIRTIO_NET_HDR_GSO_TCPV4:
		if ip[9] != protocolTCP || len(ip) < l4+tcpLen {
			return false
		}
		headers, field = l4+int(ip[l4+12]>>4)*4, tcpChecksum
	case unix.VIRTIO_NET_HDR_GSO_UDP_L4:
		if ip[9] != protocolUDP || len(ip) < l4+udpLen {
			return false
		}
		headers, field = l4+udpLen, udpChecksum
	default:
		return false
	}
	size := int(v.size)
	if size == 0 || l4 < ipLen || headers > len(ip) || headers+size > len(scratch) {
		return false
	}
	payload := ip[headers:]
	for n := 0; n == 0 || len(payload) > 0; n++ {
		part := payload[:min(size, len(payload))]
		payload = payload[len(part):]
		out := scratch[:headers+len(part)]
		copy(out, ip[:headers])
		copy(out[headers:], part)
		renumber(out, l4, n, size, len(payload) == 0)
		binary.BigEndian.PutUint16(out[l4+field:], fold(pseudo(out, len(out)-l4)))
		finish(out[l4:], field)
		each(out)
	}
	return true
}

// renumber changes the headers of the whole into those of segment n.
func renumber(out []byte, l4, n, size int, last bool) {
	binary.BigEndian.PutUint16(out[2:], uint16(len(out)))
	binary.BigEndian.PutUint16(out[4:], binary.BigEndian.Uint16(out[4:])+uint16(n))
	sumHeader(out)
	if out[9] == protocolUDP {
		binary.BigEndian.PutUint16(out[l4+4:], uint16(len(out)-l4))
		return
	}
	seq := out[l4+4:]
	binary.BigEndian.PutUint32(seq, binary.BigEndian.Uint32(seq)+uint32(n*size))
	if n > 0 {
		out[l4+13] &^= flagCWR
	}
	if !last {
		out[l4+13] &^= flagFIN | flagPSH
	}
}
