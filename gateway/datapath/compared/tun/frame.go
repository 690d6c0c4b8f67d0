package tun

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Sizes, bytes. In memory a frame is
//
//	virtio header │ Ethernet header │ IP packet
//	0             10                24
//
// so that its packet can be passed on without copying.
const (
	virtioLen   = 10 // struct virtio_net_hdr without mergeable buffers
	ethernetLen = 14
	frameStart  = virtioLen
	packetStart = virtioLen + ethernetLen

	ipLen  = 20
	tcpLen = 20
	udpLen = 8

	maxPacket = 65535
	// bufferLen holds any frame; a frame with a larger packet is truncated and so malformed.
	bufferLen = packetStart + maxPacket + 1
)

// Protocol constants.
const (
	protocolICMP = 1
	protocolTCP  = 6
	protocolUDP  = 17

	tcpChecksum = 16 // offset of the field
	udpChecksum = 6

	flagFIN = 0x01
	flagSYN = 0x02
	flagRST = 0x04
	flagPSH = 0x08
	flagACK = 0x10
	flagURG = 0x20
	flagCWR = 0x80

	portDHCPServer = 67
)

// virtio is struct virtio_net_hdr: the work on a packet that one kernel leaves to the next, such as checksums and
// segmentation.
type virtio struct {
	flags, gso          uint8
	headers, size       uint16 // of the packet: its headers, and the payload of each segment
	sumStart, sumOffset uint16 // from the frame's beginning
}

func readVirtio(b []byte) virtio {
	return virtio{
		flags: b[0], gso: b[1], headers: binary.NativeEndian.Uint16(b[2:]), size: binary.NativeEndian.Uint16(b[4:]),
		sumStart: binary.NativeEndian.Uint16(b[6:]), sumOffset: binary.NativeEndian.Uint16(b[8:]),
	}
}

func (v virtio) write(b []byte) {
	b[0], b[1] = v.flags, v.gso
	binary.NativeEndian.PutUint16(b[2:], v.headers)
	binary.NativeEndian.PutUint16(b[4:], v.size)
	binary.NativeEndian.PutUint16(b[6:], v.sumStart)
	binary.NativeEndian.PutUint16(b[8:], v.sumOffset)
}

// isComplete reports whether no work is left: one packet with its checksums.
func (v virtio) isComplete() bool {
	return v.flags&unix.VIRTIO_NET_HDR_F_NEEDS_CSUM == 0 && v.gso == unix.VIRTIO_NET_HDR_GSO_NONE
}

// ipv4 returns the packet after an Ethernet header, without padding; false: not IPv4, or longer than the frame.
func ipv4(b []byte) ([]byte, bool) {
	if len(b) < ipLen || b[0]>>4 != 4 {
		return nil, false
	}
	total := int(binary.BigEndian.Uint16(b[2:]))
	if total < ipLen || total > len(b) {
		return nil, false
	}
	return b[:total], true
}

// transport returns a packet from its transport header on. It returns nil for later fragments, and for packets with
// fewer than least bytes there.
func transport(ip []byte, least int) []byte {
	index := int(ip[0]&15) * 4
	if index < ipLen || len(ip) < index+least || binary.BigEndian.Uint16(ip[6:])&0x1fff != 0 {
		return nil
	}
	return ip[index:]
}

func sourceOf(ip []byte) uint32 { return binary.BigEndian.Uint32(ip[12:]) }
func destOf(ip []byte) uint32   { return binary.BigEndian.Uint32(ip[16:]) }
