// Package delegation obtains IPv6 prefixes from the provider: the client of DHCPv6 prefix delegation on the WAN
// interface, which RFC 8415 calls the requesting router.
//
//	            Advertise          Reply            T1             T2
//	soliciting ──────────▶ requesting ──▶ bound ──────▶ renewing ──────▶ rebinding
//	  ▲  ▲  └──────────────────────────────▲ ▲──────Reply──┘               │ │ ▲
//	  │  │   Reply with Rapid Commit         └────────────Reply────────────┘ │ │ start with known
//	  │  └── refused: after a pause                                          │ │ prefixes; link up
//	  └───────────────── the last prefix has expired ────────────────────────┘
//
// The machine (machine.go) takes events and the time as values, and returns the messages to be sent. The Client has the
// socket, the clock and the file. RECONFIGURE messages are not accepted, and no server is told that they are.
package delegation

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Prefix is a delegated prefix. Its times have a monotonic reading, so that setting the clock does not move them. A
// lifetime without end is one of 136 years.
type Prefix struct {
	Prefix netip.Prefix
	// Number says which of the wanted prefixes it belongs to, from 0 on. A prefix that the server has replaced keeps its
	// number until it expires.
	Number int
	// PreferredUntil is when hosts stop beginning connections with it: in the past for one that was replaced.
	PreferredUntil time.Time
	// ValidUntil is when packets to it stop coming from the provider.
	ValidUntil time.Time
}

// Deprecated reports whether hosts are to begin no more connections with the prefix.
func (p Prefix) Deprecated(now time.Time) bool { return !now.Before(p.PreferredUntil) }

// State is what the client knows, for status listings.
type State struct {
	Phase      string    // "soliciting", "requesting", "bound", "renewing", "rebinding", "releasing" or "idle"
	DUID       string    // the client's, in hexadecimal
	ServerDUID string    // of the server that delegated last, in hexadecimal; empty: none has
	Prefixes   []Prefix  // in the order of their numbers, deprecated ones behind the others
	T1, T2     time.Time // when the server is asked for longer lifetimes, and when any server is; zero: there is no prefix
	LastError  string    // why there is no prefix or no longer lifetime, in plain words; empty: all is well
	Warnings   []string  // what will not work with the prefixes
}

// uniqueLocal has the prefixes that only some networks agree on (RFC 4193).
var uniqueLocal = netip.MustParsePrefix("fc00::/7")

// Limits of a delegated prefix's length.
const (
	shortestLength = 16 // registries give providers no shorter prefix
	longestLength  = 64 // a network needs a /64 for SLAAC (RFC 4862)
)

// unusable are prefixes that are not for hosts of several links.
var unusable = []struct {
	prefix netip.Prefix
	reason string
}{
	{netip.MustParsePrefix("::/8"), "is reserved (RFC 4291)"},
	{netip.MustParsePrefix("fe80::/10"), "is for one link alone (link-local)"},
	{netip.MustParsePrefix("fec0::/10"), "is site-local, which routers do not forward any more (RFC 3879)"},
	{netip.MustParsePrefix("ff00::/8"), "is for multicast"},
}

// checkUsable tells why the gateway's networks cannot have addresses of a delegated prefix.
func checkUsable(prefix netip.Prefix) error {
	switch {
	case !prefix.IsValid() || !prefix.Addr().Is6():
		return fmt.Errorf("the delegated prefix has no valid length")
	case prefix.Bits() > longestLength:
		return fmt.Errorf("the delegated prefix %v is too long: a network needs a /64", prefix)
	}
	for _, u := range unusable {
		if u.prefix.Overlaps(prefix) {
			return fmt.Errorf("the delegated prefix %v %s", prefix, u.reason)
		}
	}
	if prefix.Bits() < shortestLength {
		return fmt.Errorf("the delegated prefix %v is shorter than any provider's (/%d)", prefix, shortestLength)
	}
	return nil
}

// warnings says what will not work with usable prefixes.
func warnings(prefixes []Prefix) (said []string) {
	for _, p := range prefixes {
		if uniqueLocal.Overlaps(p.Prefix) {
			said = append(said, fmt.Sprintf(
				"the provider delegates the unique local prefix %v: clients reach nothing on the Internet with it", p.Prefix))
		}
	}
	return said
}

// sorted has prefixes by number, deprecated ones behind the others, and those that are preferred longest first.
func sorted(prefixes []Prefix) []Prefix {
	result := slices.Clone(prefixes)
	slices.SortStableFunc(result, func(a, b Prefix) int {
		if a.Number != b.Number {
			return a.Number - b.Number
		}
		return b.PreferredUntil.Compare(a.PreferredUntil)
	})
	return result
}
