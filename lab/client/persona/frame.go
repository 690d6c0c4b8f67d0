package persona

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

var broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

var errNoReply = errors.New("not a DHCP server's reply")

// Ethernet, IPv4 without options, UDP.
const (
	ethernetBytes, ipBytes, udpBytes = 14, 20, 8

	typeIPv4, typeARP = 0x0800, 0x0806
	protocolUDP       = 17
	timeToLive        = 64
	moreAndOffset     = 0x3fff // bits of a fragment: more fragments follow, or its offset is not 0
)

// datagram makes the Ethernet frame of a UDP datagram.
func datagram(from, to MAC, src, dst netip.AddrPort, payload []byte) ([]byte, error) {
	length := udpBytes + len(payload)
	if ipBytes+length > math.MaxUint16 || !src.Addr().Is4() || !dst.Addr().Is4() {
		return nil, fmt.Errorf("making a frame from %s to %s with %d bytes: IPv4 datagrams take at most %d", src, dst, len(
			payload), math.MaxUint16-ipBytes-udpBytes)
	}
	b := ethernet(from, to, typeIPv4)
	b = append(b, 0x45, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(ipBytes+length))
	b = append(b, 0, 0, 0, 0, timeToLive, protocolUDP, 0, 0) // identification, fragment; the checksum follows
	b = append(append(b, src.Addr().AsSlice()...), dst.Addr().AsSlice()...)
	ip := b[ethernetBytes:]
	binary.BigEndian.PutUint16(ip[10:], ^checksum(0, ip))
	b = binary.BigEndian.AppendUint16(b, src.Port())
	b = binary.BigEndian.AppendUint16(b, dst.Port())
	b = binary.BigEndian.AppendUint16(b, uint16(length))
	b = append(append(b, 0, 0), payload...)
	// The checksum also covers a pseudo-header of addresses, protocol and length (RFC 768).
	udp := b[ethernetBytes+ipBytes:]
	sum := ^checksum(uint32(protocolUDP+length), b[ethernetBytes+12:])
	if sum == 0 {
		sum = 0xffff // 0 would say that there is no checksum
	}
	binary.BigEndian.PutUint16(udp[6:], sum)
	return padToMinimum(b), nil
}

// checksum returns the Internet checksum of b (RFC 1071) before its complement. sum is that of the bytes before b.
func checksum(sum uint32, b []byte) uint16 {
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

// arpRequest makes the frame in which the host with the addresses from and src asks for the hardware address of target
// (RFC 826).
func arpRequest(from MAC, src, target netip.Addr) ([]byte, error) {
	if !src.Is4() || !target.Is4() {
		return nil, fmt.Errorf("asking for the hardware address of %s as %s: ARP is for IPv4", target, src)
	}
	// Ethernet, IPv4, lengths of addresses, request
	b := append(ethernet(from, broadcast, typeARP), 0, 1, 8, 0, 6, 4, 0, 1)
	b = append(append(b, from[:]...), src.AsSlice()...)
	b = append(append(b, make([]byte, len(MAC{}))...), target.AsSlice()...)
	return padToMinimum(b), nil
}

// padToMinimum pads a frame to Ethernet's least length.
func padToMinimum(b []byte) []byte {
	const least = 60
	return append(b, make([]byte, max(0, least-len(b)))...)
}

// ethernet returns the Ethernet header of a frame.
func ethernet(from, to MAC, kind uint16) []byte {
	return binary.BigEndian.AppendUint16(slices.Concat(to[:], from[:]), kind)
}

// reply is a DHCP server's message and hardware address.
type reply struct {
	*dhcpv4.DHCPv4
	from MAC
}

// parseReply reads a DHCP server's reply from an Ethernet frame; any other frame is an error. It ignores checksums: a
// sender on this machine leaves them to a network card, which virtual links do not have.
func parseReply(frame []byte) (reply, error) {
	payload, port := parseDatagram(frame)
	if port != dhcpv4.ClientPort {
		return reply{}, errNoReply
	}
	msg, err := dhcpv4.FromBytes(payload)
	if err != nil {
		return reply{}, fmt.Errorf("%w: %w", errNoReply, err)
	}
	if msg.OpCode != dhcpv4.OpcodeBootReply || len(msg.ClientHWAddr) != len(MAC{}) {
		return reply{}, errNoReply
	}
	return reply{msg, MAC(frame[6:12])}, nil
}

// parseDatagram returns what a frame's UDP datagram carries and the port it goes to, 0 of any other frame.
func parseDatagram(frame []byte) (payload []byte, port uint16) {
	if len(frame) < ethernetBytes+ipBytes || binary.BigEndian.Uint16(frame[12:]) != typeIPv4 {
		return nil, 0
	}
	ip := frame[ethernetBytes:]
	header, length := int(ip[0]&0xf)*4, int(binary.BigEndian.Uint16(ip[2:])) // bytes after the packet are padding
	if ip[0]>>4 != 4 || header < ipBytes || length < header+udpBytes || length > len(ip) ||
		binary.BigEndian.Uint16(ip[6:])&moreAndOffset != 0 || ip[9] != protocolUDP {
		return nil, 0
	}
	udp := ip[header:length]
	length = int(binary.BigEndian.Uint16(udp[4:]))
	if length < udpBytes || length > len(udp) {
		return nil, 0
	}
	return udp[udpBytes:length], binary.BigEndian.Uint16(udp[2:])
}
