package config

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/internal/strict"
)

// address reads one host's IPv4 address.
var address = strict.AcceptText(`an IPv4 address such as "192.0.2.10"`, func(s string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	return a, err == nil && isHost(a)
})

// isHost reports whether an address can be an IPv4 host's.
func isHost(a netip.Addr) bool {
	return a.Is4() && !a.IsUnspecified() && !a.IsMulticast() && a.As4()[0] < 240
}

// addressPort reads an address with an optional port.
func addressPort(usual uint16) strict.Parser[netip.AddrPort] {
	want := fmt.Sprintf(`an IPv4 address such as "192.0.2.10" or "192.0.2.10:%d"`, usual)
	return strict.AcceptText(want, func(s string) (netip.AddrPort, bool) {
		ap, err := netip.ParseAddrPort(s)
		if err != nil {
			var a netip.Addr
			a, err = netip.ParseAddr(s)
			ap = netip.AddrPortFrom(a, usual)
		}
		return ap, err == nil && isHost(ap.Addr()) && ap.Port() != 0
	})
}

// listenAddress reads an address to serve on that clients must not reach. A wildcard is
// refused, because it includes the LAN's address.
func listenAddress(v any) (netip.AddrPort, error) {
	s, _ := v.(string)
	ap, err := netip.ParseAddrPort(s)
	if err != nil || ap.Port() == 0 || ap.Addr().IsUnspecified() || ap.Addr().IsMulticast() {
		return netip.AddrPort{}, fmt.Errorf(
			`must be an address and a port such as "127.0.0.1:9464", not %s; "0.0.0.0" would be open to clients`, strict.Show(v))
	}
	return ap, nil
}

func port(v any) (uint16, error) {
	n, err := strict.Integer(1, 65535)(v)
	return uint16(n), err
}

// reserved are the networks whose addresses no LAN can have (RFC 6890, 2.2.2).
var reserved = []struct {
	network netip.Prefix
	reason  string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "has addresses that no host has:"},
	{netip.MustParsePrefix("127.0.0.0/8"), "has addresses by which a machine reaches itself:"},
	{netip.MustParsePrefix("169.254.0.0/16"), "has addresses that hosts without a lease take, and nobody routes:"},
	{netip.MustParsePrefix("224.0.0.0/4"), "has addresses of groups:"},
	{netip.MustParsePrefix("240.0.0.0/4"), "has addresses that are reserved:"},
}

// ownAddress reads the gateway's address with the length of its network.
func ownAddress(v any) (netip.Prefix, error) {
	s, _ := v.(string)
	p, err := netip.ParsePrefix(s)
	if err != nil || !p.Addr().Is4() || p.Bits() < datapath.LargestLAN || p.Bits() > 29 {
		return netip.Prefix{}, fmt.Errorf(
			`must be the gateway's IPv4 address with the LAN's length, such as "10.1.0.1/16", /%d to /29, not %s`,
			datapath.LargestLAN, strict.Show(v))
	}
	for _, r := range reserved {
		if p.Overlaps(r.network) {
			return netip.Prefix{}, fmt.Errorf(`must be of a network that hosts can have, such as "10.1.0.1/16", and %s %s %s`,
				p.Masked(), r.reason, r.network)
		}
	}
	if a := p.Addr(); a == p.Masked().Addr() || a == lastOf(p) {
		return netip.Prefix{}, fmt.Errorf(
			`must be a host's address, and %s is the network %s itself, or its broadcast address: use %s/%d`, a, p.Masked(),
			p.Masked().Addr().Next(), p.Bits())
	}
	return p, nil
}

// ownAddress6 reads the gateway's IPv6 address with the length of its network. Clients make addresses of their own of
// prefixes of 64 bits only (RFC 4862, 5.5.3 and RFC 4291, 2.5.1).
func ownAddress6(v any) (netip.Prefix, error) {
	s, _ := v.(string)
	p, err := netip.ParsePrefix(s)
	a := p.Addr()
	switch {
	case err != nil || !a.Is6() || a.Is4In6() || a.IsMulticast() || a.IsLinkLocalUnicast() || a.IsLoopback() ||
		a.IsUnspecified():
		return netip.Prefix{}, fmt.Errorf(
			`must be the gateway's IPv6 address with the network's length, such as "2001:db8:1::1/64", not %s`, strict.Show(v))
	case p.Bits() != 64:
		return netip.Prefix{}, fmt.Errorf(
			"must be a network of /64, not /%d: clients make their addresses of prefixes of this length only", p.Bits())
	case a == p.Masked().Addr():
		return netip.Prefix{}, fmt.Errorf("must be a host's address, and %s is the network itself: use %s/64", a, a.Next())
	}
	return p, nil
}

// nat64 reads the prefix of a NAT64 (RFC 6052, section 2.2).
var nat64 = strict.AcceptText(`a prefix of a NAT64 such as "64:ff9b::/96"`, func(s string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(s)
	ok := slices.Contains([]int{32, 40, 48, 56, 64, 96}, p.Bits())
	return p, err == nil && ok && p.Addr().Is6() && !p.Addr().Is4In6() && p == p.Masked()
})

// clientPrefixes reads the networks of which each client has a part.
var clientPrefixes = strict.AcceptText(`an IPv6 network of /32 to /63 such as "2001:db8:100::/48", or "delegated"`,
	func(s string) (ClientPrefixes, bool) {
		if s == "delegated" {
			return ClientPrefixes{Delegated: true}, true
		}
		p, ok := prefixPool(s)
		return ClientPrefixes{Pool: p}, ok
	})

// prefixPool parses a network of which clients have /64s.
func prefixPool(s string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(s)
	return p, err == nil && p.Bits() >= 32 && p.Bits() < 64 && p.Addr().Is6() &&
		p.Addr().IsGlobalUnicast() && !p.Addr().Is4In6() && p == p.Masked()
}

// addPool reads an entry of lan.prefix_pool.
func (l *LAN) addPool(name string, v any) (err error) {
	l.PrefixPools, err = addPrefixPool(l.PrefixPools, name, v)
	return err
}

// addPool reads an entry of dhcp6.prefix_pool.
func (d *DHCP6) addPool(name string, v any) (err error) {
	d.PrefixPools, err = addPrefixPool(d.PrefixPools, name, v)
	return err
}

// addPrefixPool adds a network with a name to those of a table.
func addPrefixPool(all []PrefixPool, name string, v any) ([]PrefixPool, error) {
	if len(name) == 0 || len(name) > 253 {
		return all, errors.New("a pool's name has 1 to 253 bytes, as RADIUS has it")
	}
	network, err := strict.AcceptText(`an IPv6 network of /32 to /63 such as "2001:db8:200::/48"`, prefixPool)(v)
	if err != nil {
		return all, err
	}
	return append(all, PrefixPool{name, network}), nil
}

// network6 reads an IPv6 network, or one address.
var network6 = strict.AcceptText(`an IPv6 network such as "2001:db8:7::/48"`, func(s string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		var a netip.Addr
		a, err = netip.ParseAddr(s)
		p = netip.PrefixFrom(a, 128)
	}
	return p, err == nil && p.Addr().Is6() && !p.Addr().Is4In6() && p.Addr().Zone() == "" && p == p.Masked()
})

// lastOf returns a network's last address, the broadcast address.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom4(b)
}

// addressRange reads "10.1.0.10-10.1.0.250".
var addressRange = strict.AcceptText(
	`first and last address such as "10.1.0.10-10.1.0.250"`, func(s string) (Range, bool) {
		first, last, _ := strings.Cut(s, "-")
		a, err1 := netip.ParseAddr(strings.TrimSpace(first))
		b, err2 := netip.ParseAddr(strings.TrimSpace(last))
		return Range{a, b}, err1 == nil && err2 == nil && a.Is4() && b.Is4() && !b.Less(a)
	})

// Contains reports whether a is in the range.
func (r Range) Contains(a netip.Addr) bool { return !a.Less(r.First) && !r.Last.Less(a) }

// Size is the number of addresses in the range.
func (r Range) Size() int {
	first, last := r.First.As4(), r.Last.As4()
	return int(binary.BigEndian.Uint32(last[:])-binary.BigEndian.Uint32(first[:])) + 1
}

// At is the range's address with a number, from 0 on.
func (r Range) At(i int) netip.Addr {
	first := r.First.As4()
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, binary.BigEndian.Uint32(first[:])+uint32(i))))
}

// String returns the form in the file.
func (r Range) String() string { return r.First.String() + "-" + r.Last.String() }

// reserve reads an entry of dhcp.static.
func (d *DHCP) reserve(name string, v any) error {
	mac, err := clientMAC(name)
	if err != nil {
		return err
	}
	a, err := address(v)
	if err != nil {
		return err
	}
	for _, r := range d.Static {
		if slices.Equal(r.MAC, mac) {
			return fmt.Errorf("has %s already, written in another way", r.Addr)
		}
		if r.Addr == a {
			return fmt.Errorf("%s is already reserved for %s", a, r.MAC)
		}
	}
	d.Static = append(d.Static, Reservation{MAC: mac, Addr: a})
	return nil
}

// addPool reads an entry of pppoe.pool.
func (p *PPPoE) addPool(name string, v any) error {
	if len(name) == 0 || len(name) > 253 {
		return errors.New("a pool's name has 1 to 253 bytes, as Framed-Pool has it")
	}
	ranges, err := list(addressRange)(v)
	if err != nil {
		return err
	}
	if len(ranges) == 0 {
		return errors.New(`must be a list of ranges such as ["10.1.200.0-10.1.201.255"]`)
	}
	p.Named = append(p.Named, Pool{Name: name, Ranges: ranges})
	return nil
}

// ownOptions are the options that gatewayd sets itself, and their keys.
var ownOptions = map[uint8]string{
	1: "lan.address", 3: "lan.address", 6: "dhcp.dns", 15: "dhcp.domain", 26: "dhcp.mtu", 28: "lan.address",
	50: "the protocol", 51: "dhcp.lease", 52: "the protocol", 53: "the protocol", 54: "lan.address", 55: "the protocol",
	57: "the protocol", 58: "dhcp.lease", 59: "dhcp.lease", 61: "the protocol", 82: "the protocol",
	108: "dhcp.ipv6_only", 114: "the portal",
}

// addOption reads an entry of dhcp.options: addresses, text, or bytes as "0x0a0b".
func (d *DHCP) addOption(name string, v any) error {
	code, err := strconv.ParseUint(name, 10, 8)
	if err != nil || code == 0 || code == 255 || name != strconv.FormatUint(code, 10) {
		return fmt.Errorf("must be an option's number from 1 to 254, not %s", strict.Show(name))
	}
	if from, own := ownOptions[uint8(code)]; own {
		return fmt.Errorf("is set by gatewayd itself, from %s", from)
	}
	var raw []byte
	switch v := v.(type) {
	case string:
		raw = []byte(v)
		if digits, isHex := strings.CutPrefix(v, "0x"); isHex {
			raw, err = hex.DecodeString(digits)
		}
	case []any:
		var addrs []netip.Addr
		addrs, err = list(address)(v)
		for _, a := range addrs {
			raw = append(raw, a.AsSlice()...)
		}
	}
	if err != nil || len(raw) == 0 || len(raw) > 255 {
		return fmt.Errorf(
			`must be text, a list of IPv4 addresses, or bytes such as "0x0a0b", 1 to 255 bytes, not %s`, strict.Show(v))
	}
	if d.Options == nil {
		d.Options = map[uint8][]byte{}
	}
	d.Options[uint8(code)] = raw
	return nil
}
