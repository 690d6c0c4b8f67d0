// Package routeradv has IPv6 hosts configure themselves: it writes router advertisements (RFC 4861) and serves them on
// Ethernet links, either one for all hosts of a link, or one for each client (RFC 8273).
package routeradv

import (
	"net/netip"
	"slices"
	"time"

	"github.com/mdlayher/ndp"

	"github.com/gateweigh/gateweigh/gateway/framelink"
)

// MAC is an Ethernet address.
type MAC = [6]byte

// Client is whom a server tells something: a device, or the client of a PPPoE session.
type Client = framelink.Host

// Infinity is a lifetime without end: 0xffffffff seconds on the wire.
const Infinity = ndp.Infinity

// Preference tells hosts which of several routers to prefer (RFC 4191, section 2.1). The zero value is Medium.
type Preference = ndp.Preference

// Preferences, as RFC 4191 writes them.
const (
	Low    = ndp.Low
	Medium = ndp.Medium
	High   = ndp.High
)

// Advertisement is what one network or one client is told. Lifetimes are rounded up to whole seconds. The zero value
// says that there is a router which is no default router.
type Advertisement struct {
	RouterLifetime time.Duration // for so long the sender is a default router: 0 (it is none) to 65,535 s
	Preference     Preference    // of this default router
	HopLimit       uint8         // of the hosts' packets; 0: not said
	Managed        bool          // addresses are to be had by DHCPv6
	Other          bool          // other configuration is to be had by DHCPv6
	Reachable      time.Duration // a neighbour that has answered is reachable for so long; 0: not said
	Retransmit     time.Duration // between neighbour solicitations; 0: not said

	Source   MAC // the router's Ethernet address; zero: not said, as on PPP. Server fills it in
	MTU      int // bytes; 0: not said
	Prefixes []Prefix
	Routes   []Route

	DNSServers        []netip.Addr  // RFC 8106, section 5.1
	SearchDomains     []string      // RFC 8106, section 5.2; ASCII, with or without a dot at the end
	DNSLifetime       time.Duration // of both
	CaptivePortal     string        // URI of the captive portal's API (RFC 8910); empty: not said
	NAT64Prefix       netip.Prefix  // RFC 8781; zero: not said
	NAT64PrefixExpiry time.Duration // lifetime of NAT64Prefix: at most 65,528 s, rounded up to 8 s
}

// Prefix is a prefix of the link (RFC 4861, section 4.6.2). Its lifetimes are durations that are advertised anew each
// time, deadlines that come nearer, or both: then the earlier counts. So a delegated prefix is not advertised beyond
// its lease.
type Prefix struct {
	Prefix         netip.Prefix
	Preferred      time.Duration // addresses of it begin new connections
	Valid          time.Duration // addresses of it exist
	PreferredUntil time.Time     // zero: Preferred alone counts
	ValidUntil     time.Time     // zero: Valid alone counts

	OnLink     bool // neighbours have addresses of it
	Autonomous bool // hosts make addresses of it by themselves
	Delegates  bool // hosts had better ask for a prefix by DHCPv6-PD (the P flag, RFC 9762)
}

// Route is a more specific route over the sender (RFC 4191, section 2.3).
type Route struct {
	Prefix     netip.Prefix
	Preference Preference
	Lifetime   time.Duration // advertised anew each time
	Until      time.Time     // it is not advertised beyond; zero: Lifetime alone counts
}

// lifetimes are those that are advertised at a moment.
func (p Prefix) lifetimes(now time.Time) (preferred, valid time.Duration) {
	valid = until(p.Valid, p.ValidUntil, now)
	return min(valid, until(p.Preferred, p.PreferredUntil, now)), valid
}

func until(lifetime time.Duration, end, now time.Time) time.Duration {
	if end.IsZero() {
		return lifetime
	}
	return max(0, min(lifetime, end.Sub(now)))
}

// Final is the advertisement of a router that goes (RFC 4861, section 6.2.5): hosts stop to use it as a router, its
// routes, DNS servers and NAT64 prefix. They keep their addresses.
func (a Advertisement) Final() Advertisement {
	a.RouterLifetime, a.DNSLifetime, a.NAT64PrefixExpiry = 0, 0, 0
	a.Routes = slices.Clone(a.Routes)
	for i := range a.Routes {
		a.Routes[i].Lifetime = 0
	}
	return a
}

// clone shares no memory with a.
func (a Advertisement) clone() Advertisement {
	a.Prefixes, a.Routes = slices.Clone(a.Prefixes), slices.Clone(a.Routes)
	a.DNSServers, a.SearchDomains = slices.Clone(a.DNSServers), slices.Clone(a.SearchDomains)
	return a
}
