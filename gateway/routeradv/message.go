package routeradv

import (
	"encoding/binary"
	"fmt"
	"iter"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/mdlayher/ndp"
	"golang.org/x/sys/unix"
)

const (
	ethernetLen     = 14
	ipv6Len         = 40
	hopLimit        = 255 // shows receivers that no router forwarded the packet (RFC 4861, section 4.2)
	checksumOffset  = 2   // of ICMPv6
	raHeaderLen     = 16  // before the options
	rsHeaderLen     = 8
	typeRS          = 133
	typeRA          = 134
	optSourceMAC    = 1
	optPrefix       = 3
	prefixOptionLen = 32   // bytes
	delegatesFlag   = 0x10 // P in the byte of flags of a prefix option (RFC 9762, section 4)
)

var (
	allNodes   = netip.MustParseAddr("ff02::1")
	allRouters = netip.MustParseAddr("ff02::2")
)

// Message is the router advertisement as an ICMPv6 message whose checksum is 0: the kernel or Packet fills it in. It
// fails with Check's error.
func Message(a Advertisement) ([]byte, error) {
	if err := a.Check(); err != nil {
		return nil, fmt.Errorf("a router advertisement: %w", err)
	}
	return encode(a, time.Now())
}

// Packet is the IPv6 packet that carries an ICMPv6 message, with hop limit 255 and the checksum.
func Packet(src, dst netip.Addr, message []byte) []byte {
	b := make([]byte, ipv6Len, ipv6Len+len(message))
	b[0] = 6 << 4
	binary.BigEndian.PutUint16(b[4:], uint16(len(message)))
	b[6], b[7] = unix.IPPROTO_ICMPV6, hopLimit
	from, to := src.As16(), dst.As16()
	copy(b[8:], from[:])
	copy(b[24:], to[:])
	b = append(b, message...)
	sum := b[ipv6Len+checksumOffset:]
	sum[0], sum[1] = 0, 0
	binary.BigEndian.PutUint16(sum, ^checksum(b[8:ipv6Len], b[ipv6Len:]))
	return b
}

// checksum is the one's complement sum of an ICMPv6 message and its pseudo-header (RFC 8200, section 8.1), 0xffff if
// the message has its checksum. addresses are the two of the packet.
func checksum(addresses, message []byte) uint16 {
	sum := uint32(len(message)) + unix.IPPROTO_ICMPV6
	for _, b := range [][]byte{addresses, message} {
		for ; len(b) > 1; b = b[2:] {
			sum += uint32(binary.BigEndian.Uint16(b))
		}
		if len(b) == 1 {
			sum += uint32(b[0]) << 8
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

// encode writes what Check has accepted.
func encode(a Advertisement, now time.Time) ([]byte, error) {
	ra := &ndp.RouterAdvertisement{
		CurrentHopLimit: a.HopLimit, ManagedConfiguration: a.Managed, OtherConfiguration: a.Other,
		RouterLifetime: seconds(a.RouterLifetime), ReachableTime: a.Reachable, RetransmitTimer: a.Retransmit,
		Options: a.options(now),
	}
	if a.RouterLifetime > 0 { // RFC 4191, section 2.2: otherwise medium
		ra.RouterSelectionPreference = a.Preference
	}
	message, err := ndp.MarshalMessage(ra)
	if err != nil {
		return nil, fmt.Errorf("writing a router advertisement: %w", err)
	}
	i := 0
	for kind, option := range options(message[raHeaderLen:]) {
		if kind != optPrefix {
			continue
		}
		if a.Prefixes[i].Delegates { // a flag that the library does not know
			option[3] |= delegatesFlag
		}
		i++
	}
	return message, nil
}

func (a Advertisement) options(now time.Time) []ndp.Option {
	var list []ndp.Option
	if a.Source != (MAC{}) {
		list = append(list, &ndp.LinkLayerAddress{Direction: ndp.Source, Addr: net.HardwareAddr(a.Source[:])})
	}
	if a.MTU > 0 {
		list = append(list, ndp.NewMTU(uint32(a.MTU)))
	}
	for _, p := range a.Prefixes {
		preferred, valid := p.lifetimes(now)
		list = append(list, &ndp.PrefixInformation{
			Prefix: p.Prefix.Addr(), PrefixLength: uint8(p.Prefix.Bits()),
			OnLink: p.OnLink, AutonomousAddressConfiguration: p.Autonomous,
			PreferredLifetime: seconds(preferred), ValidLifetime: seconds(valid),
		})
	}
	for _, r := range a.Routes {
		list = append(list, &ndp.RouteInformation{
			Prefix: r.Prefix.Addr(), PrefixLength: uint8(r.Prefix.Bits()),
			Preference: r.Preference, RouteLifetime: seconds(until(r.Lifetime, r.Until, now)),
		})
	}
	if len(a.DNSServers) > 0 {
		list = append(list, &ndp.RecursiveDNSServer{Lifetime: seconds(a.DNSLifetime), Servers: a.DNSServers})
	}
	if len(a.SearchDomains) > 0 {
		// A dot at the end would become a label without letters.
		names := make([]string, len(a.SearchDomains))
		for i, name := range a.SearchDomains {
			names[i] = strings.TrimSuffix(name, ".")
		}
		list = append(list, &ndp.DNSSearchList{Lifetime: seconds(a.DNSLifetime), DomainNames: names})
	}
	if a.CaptivePortal != "" {
		list = append(list, &ndp.CaptivePortal{URI: a.CaptivePortal})
	}
	if a.NAT64Prefix.IsValid() {
		// The library rounds to the nearest unit, which may be 0: withdrawn.
		list = append(list, &ndp.PREF64{Lifetime: roundUp(a.NAT64PrefixExpiry, 8*time.Second), Prefix: a.NAT64Prefix})
	}
	return list
}

// seconds rounds up: a lifetime of 0 means that something is over.
func seconds(d time.Duration) time.Duration { return roundUp(d, time.Second) }

func roundUp(d, unit time.Duration) time.Duration { return (d + unit - 1) / unit * unit }

// options are the options of a message, each with its type and its bytes from the type on. It ends at the first that
// does not fit.
func options(b []byte) iter.Seq2[byte, []byte] {
	return func(yield func(byte, []byte) bool) {
		for len(b) >= 8 {
			n := int(b[1]) * 8
			if n == 0 || n > len(b) || !yield(b[0], b[:n:n]) {
				return
			}
			b = b[n:]
		}
	}
}
