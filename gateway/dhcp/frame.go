package dhcp

import (
	"encoding/binary"
	"errors"
	"net/netip"
)

const (
	ethernetLen = 14
	ipv4Len     = 20
	udpLen      = 8

	serverPort = 67
	clientPort = 68
)

var (
	broadcastMAC     = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	limitedBroadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})
)

// datagram is a UDP datagram in an Ethernet frame.
type datagram struct {
	srcMAC, dstMAC MAC
	src, dst       netip.AddrPort
	payload        []byte
}

// errNoDatagram is returned for frames without a complete UDP datagram.
var errNoDatagram = errors.New("not a whole UDP datagram over IPv4")

// parseFrame returns the datagram of an Ethernet frame without copying it. The UDP
// checksum is not verified: a sender on this machine leaves it to hardware that does not
// exist, and the frame's checksum covers the wire.
func parseFrame(frame []byte) (datagram, error) {
	if len(frame) < ethernetLen+ipv4Len+udpLen {
		return datagram{}, errNoDatagram
	}
	var d datagram
	copy(d.dstMAC[:], frame)
	copy(d.srcMAC[:], frame[6:])
	ip := frame[ethernetLen:]
	headerLen, total := int(ip[0]&0xf)*4, int(binary.BigEndian.Uint16(ip[2:]))
	fragment := binary.BigEndian.Uint16(ip[6:])&0x3fff != 0
	if binary.BigEndian.Uint16(frame[12:]) != 0x0800 || ip[0]>>4 != 4 || ip[9] != 17 || fragment ||
		headerLen < ipv4Len || total < headerLen+udpLen || total > len(ip) {
		return datagram{}, errNoDatagram
	}
	udp := ip[headerLen:total] // what follows is padding
	size := int(binary.BigEndian.Uint16(udp[4:]))
	if size < udpLen || size > len(udp) {
		return datagram{}, errNoDatagram
	}
	d.src = netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[12:16])), binary.BigEndian.Uint16(udp))
	d.dst = netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[16:20])), binary.BigEndian.Uint16(udp[2:]))
	d.payload = udp[udpLen:size]
	return d, nil
}

// frame makes the Ethernet frame of a datagram.
func (d datagram) frame() []byte {
	b := make([]byte, ethernetLen+ipv4Len+udpLen, ethernetLen+ipv4Len+udpLen+len(d.payload))
	copy(b, d.dstMAC[:])
	copy(b[6:], d.srcMAC[:])
	binary.BigEndian.PutUint16(b[12:], 0x0800)

	src, dst := d.src.Addr().As4(), d.dst.Addr().As4()
	ip := b[ethernetLen:]
	ip[0] = 0x45
	binary.BigEndian.PutUint16(ip[2:], uint16(ipv4Len+udpLen+len(d.payload)))
	ip[6] = 0x40 // do not fragment
	ip[8], ip[9] = 64, 17
	copy(ip[12:], src[:])
	copy(ip[16:], dst[:])
	binary.BigEndian.PutUint16(ip[10:], ^checksum(0, ip[:ipv4Len]))

	udp := ip[ipv4Len:]
	binary.BigEndian.PutUint16(udp, d.src.Port())
	binary.BigEndian.PutUint16(udp[2:], d.dst.Port())
	binary.BigEndian.PutUint16(udp[4:], uint16(udpLen+len(d.payload)))
	// The pseudo header (RFC 768): addresses, protocol, length.
	sum := checksum(17+uint32(udpLen+len(d.payload)), ip[12:20])
	sum = ^checksum(uint32(checksum(uint32(sum), udp[:udpLen])), d.payload)
	if sum == 0 {
		sum = 0xffff // 0 would mean "no checksum"
	}
	binary.BigEndian.PutUint16(udp[6:], sum)
	return append(b, d.payload...)
}

// checksum adds big-endian words to a sum, folding carries (RFC 1071).
func checksum(sum uint32, b []byte) uint16 {
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}
