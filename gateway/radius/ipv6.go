package radius

import (
	"net/netip"
	"slices"

	"layeh.com/radius"
	"layeh.com/radius/rfc6911"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// maxAddresses6 is how many global IPv6 addresses a client has at most, as bindings.MaxGlobal says, so that
// accounting has room for them.
const maxAddresses6 = 16

// addresses6 adds each global IPv6 address as a Framed-IPv6-Address (RFC 6911, 3.1). Link-local addresses are left out:
// they are the same on every link, and name no client outside.
func (b builder) addresses6(all ...netip.Addr) {
	for _, a := range all {
		if isAddress6(a) {
			b.Add(rfc6911.FramedIPv6Address_Type, a.AsSlice())
		}
	}
}

// isAddress6 reports whether a Framed-IPv6-Address can have an address.
func isAddress6(a netip.Addr) bool {
	return a.Is6() && !a.Is4In6() && a.IsGlobalUnicast()
}

// framedAddress6 is the first IPv6 address that a request names; invalid: it names none.
func framedAddress6(p *radius.Packet) netip.Addr {
	if a, ok := address6(p.Get(rfc6911.FramedIPv6Address_Type)); ok {
		return a
	}
	return netip.Addr{}
}

// address6 decodes a Framed-IPv6-Address; false: it is none.
func address6(value radius.Attribute) (netip.Addr, bool) {
	if len(value) != 16 {
		return netip.Addr{}, false
	}
	a := netip.AddrFrom16([16]byte(value))
	return a, isAddress6(a)
}

// hasAddress6 reports whether a Framed-IPv6-Address is one of a session's, or what the session is given.
func hasAddress6(s session.Session, value radius.Attribute) bool {
	a, ok := address6(value)
	return ok && (a == s.Addr || slices.Contains(s.FurtherAddrs, a) || s.IPv6 != nil && slices.Contains(s.IPv6.Addrs, a))
}
