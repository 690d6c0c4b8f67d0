package persona

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/mdlayher/ndp"
	"golang.org/x/sys/unix"
)

// IPv6 and its neighbour discovery (RFC 4861).
const (
	ip6Bytes          = 40
	typeAdvertisement = 134 // of a router
	maxHops           = 255 // a packet that a router has forwarded has less (section 3.1)
)

var linkLocalNet = netip.MustParsePrefix("fe80::/64")

// interfaceID is the last half of addresses that are made of a hardware address (RFC 4291, appendix A).
func interfaceID(m MAC) uint64 {
	return binary.BigEndian.Uint64([]byte{m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]})
}

// addressIn is the address with the last half id in a /64.
func addressIn(net netip.Prefix, id uint64) netip.Addr {
	b := net.Masked().Addr().As16()
	binary.BigEndian.PutUint64(b[8:], id)
	return netip.AddrFrom16(b)
}

// AutoAddress is the address that the client with a hardware address makes in a /64 (RFC 4862, 5.5.3).
func AutoAddress(lan netip.Prefix, mac MAC) netip.Addr { return addressIn(lan, interfaceID(mac)) }

// neighbourFrame makes the Ethernet frame of a neighbour discovery message to a multicast group.
func neighbourFrame(from MAC, src, group netip.Addr, m ndp.Message) ([]byte, error) {
	to := group.As16()
	b := ethernet(from, MAC{0x33, 0x33, to[12], to[13], to[14], to[15]}, unix.ETH_P_IPV6) // RFC 2464, section 7
	return appendNeighbour(b, src, group, m)
}

// appendNeighbour appends the IPv6 packet of a neighbour discovery message to a multicast group.
func appendNeighbour(b []byte, src, group netip.Addr, m ndp.Message) ([]byte, error) {
	body, err := ndp.MarshalMessageChecksum(m, src, group)
	if err != nil {
		return nil, fmt.Errorf("making a message of type %d for %s: %w", m.Type(), group, err)
	}
	b = append(b, 6<<4, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(len(body)))
	b = append(b, unix.IPPROTO_ICMPV6, maxHops)
	return slices.Concat(b, src.AsSlice(), group.AsSlice(), body), nil
}

// parseAdvertisement reads a router advertisement that has the prefix lan for SLAAC from an Ethernet frame: its router,
// which is one that forwards, and the hardware address to which it was sent. ok is false for any other frame.
func parseAdvertisement(frame []byte, lan netip.Prefix) (router Router, to MAC, ok bool) {
	if len(frame) < ethernetBytes || binary.BigEndian.Uint16(frame[12:]) != unix.ETH_P_IPV6 {
		return router, to, false
	}
	addr, prefixes := parseAdvertised(frame[ethernetBytes:])
	return Router{addr, MAC(frame[6:12])}, MAC(frame[:6]), slices.Contains(prefixes, lan.Masked())
}

// parseAdvertised reads a router advertisement from an IPv6 packet: its router, which is one that forwards, and the
// prefixes for SLAAC. It has no prefixes for any other packet. It ignores the checksum, as parseReply does.
func parseAdvertised(ip []byte) (router netip.Addr, prefixes []netip.Prefix) {
	if len(ip) < ip6Bytes {
		return router, nil
	}
	length := ip6Bytes + int(binary.BigEndian.Uint16(ip[4:]))
	router = netip.AddrFrom16([16]byte(ip[8:24]))
	if ip[6] != unix.IPPROTO_ICMPV6 || ip[7] != maxHops || !router.IsLinkLocalUnicast() || length > len(ip) {
		return router, nil
	}
	m, err := ndp.ParseMessage(ip[ip6Bytes:length])
	ra, isRA := m.(*ndp.RouterAdvertisement)
	if err != nil || !isRA || ra.RouterLifetime == 0 {
		return router, nil
	}
	for _, o := range ra.Options {
		if p, isPrefix := o.(*ndp.PrefixInformation); isPrefix && p.AutonomousAddressConfiguration {
			prefixes = append(prefixes, netip.PrefixFrom(p.Prefix, int(p.PrefixLength)))
		}
	}
	return router, prefixes
}
