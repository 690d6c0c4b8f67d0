package dhcp6

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/gateweigh/gateweigh/gateway/framelink"
)

const (
	ethernetLen = 14
	ipv6Len     = 40
	udpLen      = 8

	protocolUDP = 17
	hopLimit    = 64

	serverPort = 547
	clientPort = 546
)

// allServers is All_DHCP_Relay_Agents_and_Servers (RFC 8415, 7.1).
var allServers = netip.MustParseAddr("ff02::1:2")

// datagram is a UDP datagram in an Ethernet frame.
type datagram struct {
	srcMAC, dstMAC MAC
	session        uint16 // PPPoE's; 0: none
	src, dst       netip.AddrPort
	payload        []byte
}

// Reasons for not reading a frame.
var (
	errNoDatagram = errors.New("not a whole UDP datagram over IPv6 without extension headers")
	errChecksum   = errors.New("its UDP checksum is wrong")
	errGroup      = errors.New("its sender is a group of devices")
)

// parseFrame returns the datagram of an Ethernet frame without copying it. DHCPv6 needs no extension headers, so a
// frame with any is refused, fragments among them.
func parseFrame(frame []byte) (datagram, error) {
	from, ip, is6 := framelink.Split(frame)
	if !is6 || len(ip) < ipv6Len+udpLen {
		return datagram{}, errNoDatagram
	}
	got := datagram{dstMAC: MAC(frame), srcMAC: from.MAC, session: from.Session}
	total := ipv6Len + int(binary.BigEndian.Uint16(ip[4:]))
	if ip[0]>>4 != 6 || ip[6] != protocolUDP ||
		total < ipv6Len+udpLen || total > len(ip) {
		return datagram{}, errNoDatagram
	}
	udp := ip[ipv6Len:total] // what follows is padding
	if int(binary.BigEndian.Uint16(udp[4:])) != len(udp) {
		return datagram{}, errNoDatagram
	}
	if !validChecksum(ip, udp) {
		return datagram{}, errChecksum
	}
	got.src = netip.AddrPortFrom(netip.AddrFrom16([16]byte(ip[8:24])), binary.BigEndian.Uint16(udp))
	got.dst = netip.AddrPortFrom(netip.AddrFrom16([16]byte(ip[24:40])), binary.BigEndian.Uint16(udp[2:]))
	got.payload = udp[udpLen:]
	return got, nil
}

// validChecksum verifies a UDP checksum, without which IPv6 allows no datagram (RFC 8200, 8.1). A sender on this
// machine leaves it to hardware that does not exist: then the field has the sum of the pseudo header alone.
func validChecksum(ip, udp []byte) bool {
	pseudo := pseudoSum(ip, len(udp))
	field := binary.BigEndian.Uint16(udp[6:])
	return field != 0 && (checksum(uint32(pseudo), udp) == 0xffff || field == pseudo)
}

// pseudoSum is the sum of the pseudo header (RFC 8200, 8.1): addresses, protocol, length.
func pseudoSum(ip []byte, length int) uint16 {
	return checksum(uint32(protocolUDP+length), ip[8:40])
}

// frame makes the frame of a datagram.
func (d datagram) frame() []byte {
	ip := make([]byte, ipv6Len+udpLen, ipv6Len+udpLen+len(d.payload))
	length := udpLen + len(d.payload)
	src, dst := d.src.Addr().As16(), d.dst.Addr().As16()
	ip[0] = 0x60
	binary.BigEndian.PutUint16(ip[4:], uint16(length))
	ip[6], ip[7] = protocolUDP, hopLimit
	copy(ip[8:], src[:])
	copy(ip[24:], dst[:])

	udp := ip[ipv6Len:]
	binary.BigEndian.PutUint16(udp, d.src.Port())
	binary.BigEndian.PutUint16(udp[2:], d.dst.Port())
	binary.BigEndian.PutUint16(udp[4:], uint16(length))
	sum := checksum(uint32(pseudoSum(ip, length)), udp[:udpLen])
	sum = ^checksum(uint32(sum), d.payload)
	if sum == 0 {
		sum = 0xffff // 0 would mean "no checksum"
	}
	binary.BigEndian.PutUint16(udp[6:], sum)
	return framelink.Frame(framelink.Host{MAC: d.dstMAC, Session: d.session}, d.srcMAC, append(ip, d.payload...))
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
