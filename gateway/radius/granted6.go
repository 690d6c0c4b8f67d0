package radius

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"layeh.com/radius"
	"layeh.com/radius/rfc3162"
	"layeh.com/radius/rfc4818"
	"layeh.com/radius/rfc6911"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// Prefixes are IPv6 prefixes that are a session's alone.
type Prefixes struct {
	Own       []netip.Prefix // of its link
	Delegated []netip.Prefix // to it
	Routed    []netip.Prefix // behind its client, as its login has them
}

// most6 bounds the values of each IPv6 attribute of a client, so that accounting has room for them.
const most6 = 8

// longest6 is the longest prefix of a client in bits: hosts make addresses of no longer one (RFC 4862, 5.5.3).
const longest6 = 64

// granted6 reads what a server gives a client by IPv6; nil: nothing. A value that cannot be read is an error: the
// client would have less than it was given.
func granted6(p *radius.Packet) (*session.Grant6, error) {
	var g session.Grant6
	some := false
	for _, a := range p.Attributes {
		var err error
		switch a.Type {
		case rfc3162.FramedIPv6Prefix_Type:
			g.Prefixes, err = add6(g.Prefixes, "Framed-IPv6-Prefix", a.Attribute, clientPrefix6)
		case rfc4818.DelegatedIPv6Prefix_Type:
			g.Delegated, err = add6(g.Delegated, "Delegated-IPv6-Prefix", a.Attribute, clientPrefix6)
		case rfc3162.FramedIPv6Route_Type:
			g.Routes, err = add6(g.Routes, "Framed-IPv6-Route", a.Attribute, route6)
		case rfc6911.RouteIPv6Information_Type:
			g.Told, err = add6(g.Told, "Route-IPv6-Information", a.Attribute, prefix6)
		case rfc6911.FramedIPv6Address_Type:
			g.Addrs, err = add6(g.Addrs, "Framed-IPv6-Address", a.Attribute, host6)
		case rfc6911.DNSServerIPv6Address_Type:
			g.DNS, err = add6(g.DNS, "DNS-Server-IPv6-Address", a.Attribute, host6)
		case rfc3162.FramedInterfaceID_Type:
			if len(a.Attribute) != 8 {
				return nil, fmt.Errorf("the server sent a Framed-Interface-Id of %d bytes, instead of 8", len(a.Attribute))
			}
			g.InterfaceID = binary.BigEndian.Uint64(a.Attribute)
		case rfc3162.FramedIPv6Pool_Type:
			g.Pool = string(a.Attribute)
		case rfc6911.DelegatedIPv6PrefixPool_Type:
			g.DelegatedPool = string(a.Attribute)
		case rfc6911.StatefulIPv6AddressPool_Type:
			g.AddressPool = string(a.Attribute)
		default:
			continue
		}
		if err != nil {
			return nil, err
		}
		some = true
	}
	if !some {
		return nil, nil
	}
	return &g, nil
}

// add6 adds a value to those of its attribute, unless it is there.
func add6[T comparable](all []T, name string, value []byte, read func([]byte) (T, string)) ([]T, error) {
	one, wrong := read(value)
	switch {
	case wrong != "":
		return nil, fmt.Errorf("the server sent the %s %s", name, wrong)
	case slices.Contains(all, one):
		return all, nil
	case len(all) == most6:
		return nil, fmt.Errorf("the server sent more than %d of %s", most6, name)
	}
	return append(all, one), nil
}

// prefix6 decodes a prefix (RFC 3162, 2.3): a reserved byte, the length, and at least the bytes that it needs.
func prefix6(value []byte) (p netip.Prefix, wrong string) {
	if len(value) < 2 || len(value) > 2+16 || value[1] > 128 || len(value)-2 < (int(value[1])+7)/8 {
		return p, fmt.Sprintf("%x, whose bytes are no prefix", value)
	}
	var b [16]byte
	copy(b[:], value[2:])
	p = netip.PrefixFrom(netip.AddrFrom16(b), int(value[1]))
	switch addr := p.Addr(); {
	case p != p.Masked():
		return p, fmt.Sprintf("%s, which has bits beyond its length", p)
	case p.Bits() == 0 || addr.Is4In6() || !addr.IsGlobalUnicast():
		return p, fmt.Sprintf("%s, which has addresses that no host has", p)
	}
	return p, ""
}

// clientPrefix6 decodes a prefix that clients make addresses of.
func clientPrefix6(value []byte) (netip.Prefix, string) {
	p, wrong := prefix6(value)
	if wrong == "" && p.Bits() > longest6 {
		wrong = fmt.Sprintf("%s, which is longer than /%d: hosts make no addresses of it", p, longest6)
	}
	return p, wrong
}

// host6 decodes an address of a host.
func host6(value []byte) (netip.Addr, string) {
	a, ok := address6(value)
	if !ok {
		return a, fmt.Sprintf("%x, which is no address of a host", value)
	}
	return a, ""
}

// route6 reads "2001:db8:7::/48 :: 1" (RFC 3162, 2.5), of which next hop and metrics are not used.
func route6(value []byte) (p netip.Prefix, wrong string) {
	fields := strings.Fields(string(value))
	if len(fields) == 0 {
		return p, "\"\", which is empty"
	}
	p, err := netip.ParsePrefix(fields[0])
	if err != nil || !p.Addr().Is6() {
		return p, fmt.Sprintf("%.60q, which does not begin with an IPv6 network", value)
	}
	return prefix6(prefixValue6(p))
}

// prefixValue6 encodes a prefix (RFC 3162, 2.3).
func prefixValue6(p netip.Prefix) []byte {
	return append([]byte{0, byte(p.Bits())}, p.Addr().AsSlice()...)
}

// prefixes6 adds the prefixes of a session: those of its link that are its own, those that are delegated to it, and the
// networks behind it. The client of a PPPoE session has the interface identifier that it was given.
func (b builder) prefixes6(c *Config, s session.Session) {
	if s.PPPoE.Session != 0 && s.IPv6 != nil && s.IPv6.InterfaceID != 0 {
		b.Add(rfc3162.FramedInterfaceID_Type, binary.BigEndian.AppendUint64(nil, s.IPv6.InterfaceID))
	}
	all := c.prefixesOf(s)
	for _, p := range all.Own[:min(len(all.Own), most6)] {
		b.Add(rfc3162.FramedIPv6Prefix_Type, prefixValue6(p))
	}
	for _, p := range all.Delegated[:min(len(all.Delegated), most6)] {
		b.Add(rfc4818.DelegatedIPv6Prefix_Type, prefixValue6(p))
	}
	for _, p := range all.Routed[:min(len(all.Routed), most6)] {
		b.text(rfc3162.FramedIPv6Route_Type, p.String()+" :: 1")
	}
}

// prefixesOf returns the prefixes of a session.
func (c *Config) prefixesOf(s session.Session) Prefixes {
	if c.Prefixes == nil {
		return Prefixes{}
	}
	return c.Prefixes(s)
}

// hasPrefix6 reports whether a prefix of a request is one of a session's.
func hasPrefix6(all []netip.Prefix, value []byte) bool {
	p, wrong := prefix6(value)
	return wrong == "" && slices.Contains(all, p)
}

// hasInterfaceID reports whether a session has an address with a Framed-Interface-Id, or a PPPoE session was given it.
func hasInterfaceID(s session.Session, value []byte) bool {
	if given := s.IPv6; s.PPPoE.Session != 0 && given != nil && given.InterfaceID != 0 &&
		string(value) == string(binary.BigEndian.AppendUint64(nil, given.InterfaceID)) {
		return true
	}
	has := func(a netip.Addr) bool { return isAddress6(a) && string(a.AsSlice()[8:]) == string(value) }
	return has(s.Addr) || slices.ContainsFunc(s.FurtherAddrs, has)
}
