// Package dns forwards clients' DNS queries to the configured upstreams, and opens the walled garden's addresses as
// their names are resolved.
//
//	query ──▶ screen ──▶ upstreams ──▶ judge ──▶ open addresses ──▶ reply
//	             │ drop, refuse,
//	             └ answer here
//
// Neither clients nor answers are trusted: queries and answers are rebuilt before they are sent on, and the addresses
// that an answer opens are determined from the client's question.
package dns

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/gateweigh/gateweigh/gateway/budget"
)

// Config is the configuration of a Server. Listen and Upstreams are required.
type Config struct {
	Listen    netip.AddrPort   // UDP and TCP, an address of the gateway; port 0: any
	Listen6   netip.AddrPort   // UDP and TCP of IPv6; zero: it serves IPv4 alone
	Interface string           // only queries that arrive there are answered; empty: on any interface
	Clients   []netip.Prefix   // only their queries are answered; empty: all clients'
	Upstreams []netip.AddrPort // in the order of preference

	// Garden are the names that clients may reach before they log in: "example.org", or "*.example.org" for every name
	// below it but not itself.
	Garden []string
	// Ports are names of which clients may reach single ports before they log in.
	Ports []PortName
	// Probes are names at which devices look for a login page. Clients without a login never reach HTTP at their
	// addresses, even where the garden opens these addresses or names, so that the portal can answer instead.
	Probes []string
	// Open are the walled garden's prefixes, which are always open: nothing is opened within them.
	Open []netip.Prefix
	// NeverOpen are prefixes that no name can open, in addition to private and special ones: the gateway's own addresses.
	NeverOpen []netip.Prefix

	// Watcher is told the addresses of names that it watches; nil: nobody watches.
	Watcher Watcher

	Local  map[string]netip.Addr // names answered here: the portal's own
	Local6 map[string]netip.Addr // and their IPv6 addresses
	IPv6   bool                  // false: AAAA queries get an empty answer, because clients' IPv6 is blocked

	// ClientOf returns a client's hardware address, zero if unknown, and whether a session admits it; nil: every client is
	// admitted. It is called for each query.
	ClientOf func(netip.Addr) (mac [6]byte, admitted bool)

	PerClient            int    // queries of one admitted client in flight; default 64
	Total                int    // queries in flight; default 1024
	PerStranger          int    // queries of one unauthenticated client in flight; default 8
	UnauthenticatedTotal int    // queries of all unauthenticated clients in flight; default Total/16
	Budget               Budget // of each unauthenticated client; zero: 10 queries and 2 KiB a second
	// messages of one device, also those answered here; default 2,000 at once and 500 a second
	PerDevice budget.Rate
	Timeout   time.Duration // for an upstream's first answer, doubled for the second; default 1 s
	Log       *slog.Logger  // default slog.Default()
}

// PortName is a port of the names that match a pattern such as those of Garden.
type PortName struct {
	Pattern  string
	Protocol uint8 // TCP or UDP, as in IP
	Port     uint16
}

// Watcher wants to know the addresses of names. Its methods may be called from several goroutines, before each answer.
type Watcher interface {
	// Watches reports whether it wants to know the addresses of a name: "login.example.org", in small letters.
	Watches(name string) bool
	// Learned tells the addresses that a name has in an answer, which is sent when Learned returns, and for how long a
	// client may use them.
	Learned(name string, addrs []netip.Addr, good time.Duration)
}

// Opener lets unauthenticated clients reach a prefix, or a port of it, until the given time, or keeps them from its
// HTTP. It may be called from several goroutines; a later call for the same replaces the time.
type Opener interface {
	Open(netip.Prefix, time.Time) error
	OpenPort(p netip.Prefix, protocol uint8, port uint16, until time.Time) error
	ShutHTTP(netip.Prefix, time.Time) error
}

const (
	minOpen = time.Minute // minimum, whatever the TTL
	maxOpen = time.Hour
	// openGrace is added for clients that connect when the name's TTL has just expired.
	openGrace = time.Minute
	// shutTime is how long HTTP at an address of a probe stays closed. It is long because devices remember addresses
	// beyond their TTL.
	shutTime = 24 * time.Hour
	// maxOpened bounds the addresses that are open at once.
	maxOpened = 4096

	localTTL = 60    // seconds that clients may remember the portal's address
	udpBytes = 1232  // largest UDP message that avoids fragmentation (DNS flag day 2020)
	maxBytes = 65535 // of a message over TCP
	maxQuery = 4096  // bytes, a hundred times a normal query
	maxChain = 16    // CNAMEs followed
)

// withDefaults returns the configuration with every default filled in, or an error for an invalid one.
func (c Config) withDefaults() (Config, error) {
	c.PerClient = cmp.Or(c.PerClient, 64)
	c.Total = cmp.Or(c.Total, 1024)
	c.PerStranger = cmp.Or(c.PerStranger, 8)
	c.UnauthenticatedTotal = cmp.Or(c.UnauthenticatedTotal, max(1, c.Total/16))
	c.Budget = cmp.Or(c.Budget, defaultBudget)
	c.PerDevice = cmp.Or(c.PerDevice, budget.Rate{AtOnce: 2000, EachSecond: 500})
	c.Timeout = cmp.Or(c.Timeout, time.Second)
	c.Log = cmp.Or(c.Log, slog.Default())
	if c.ClientOf == nil {
		c.ClientOf = func(netip.Addr) ([6]byte, bool) { return [6]byte{}, true }
	}
	switch {
	case !c.Listen.IsValid():
		return c, errors.New("dns: no address given to listen on")
	case len(c.Upstreams) == 0:
		return c, errors.New("dns: no upstream given: name at least one resolver")
	case min(c.PerClient, c.Total, c.PerStranger, c.UnauthenticatedTotal) < 0 || c.Timeout < 0:
		return c, fmt.Errorf(
			"dns: %d queries a client, %d in all and a time-out of %s must be positive", c.PerClient, c.Total, c.Timeout)
	}
	for _, u := range c.Upstreams {
		if !u.IsValid() || u.Port() == 0 || u.Addr().IsUnspecified() || u == c.Listen {
			return c, fmt.Errorf("dns: upstream %s is no other server's address and port", u)
		}
	}
	return c, nil
}

// policy decides about queries and answers. Its methods are pure, but for what they tell the watcher.
type policy struct {
	garden    garden
	ports     []portGarden
	probes    garden
	local     map[string]netip.Addr // by canonical name
	local6    map[string]netip.Addr // of names in local
	open      []netip.Prefix
	neverOpen []netip.Prefix
	ipv6      bool
	watcher   Watcher // nil: nobody
}

func newPolicy(c Config) (*policy, error) {
	p := &policy{local: map[string]netip.Addr{}, local6: map[string]netip.Addr{}, open: c.Open, neverOpen: c.NeverOpen,
		ipv6: c.IPv6, watcher: c.Watcher}
	var err error
	if p.garden, err = newGarden(c.Garden); err != nil {
		return nil, err
	}
	if p.probes, err = newGarden(c.Probes); err != nil {
		return nil, err
	}
	for _, n := range c.Ports {
		g, err := newGarden([]string{n.Pattern})
		if err != nil {
			return nil, err
		}
		p.ports = append(p.ports, portGarden{g, gardenPort{protocol: n.Protocol, port: n.Port}})
	}
	for name, addr := range c.Local {
		if !domain(name) || !addr.Is4() {
			return nil, fmt.Errorf("dns: local name %q must be a domain name, and %s its IPv4 address", name, addr)
		}
		p.local[miekg.CanonicalName(name)] = addr
	}
	for name, addr := range c.Local6 {
		if !domain(name) || !addr.Is6() || addr.Is4In6() {
			return nil, fmt.Errorf("dns: local name %q must be a domain name, and %s its IPv6 address", name, addr)
		}
		p.local6[miekg.CanonicalName(name)] = addr
	}
	return p, nil
}

// portGarden is a set of names of which one port is open before login.
type portGarden struct {
	garden
	gardenPort
}

// garden is a set of names, canonical: lower case, with the final dot.
type garden struct {
	exact, patterns map[string]bool
}

func newGarden(names []string) (garden, error) {
	g := garden{map[string]bool{}, map[string]bool{}}
	for _, n := range names {
		parent, wild := strings.CutPrefix(n, "*.")
		if !domain(parent) {
			return g, fmt.Errorf(`dns: walled garden: %q is neither a name like "example.org" nor names like "*.example.org"`, n)
		}
		if wild {
			g.patterns[miekg.CanonicalName(parent)] = true
		} else {
			g.exact[miekg.CanonicalName(parent)] = true
		}
	}
	return g, nil
}

// domain reports whether s is a name of letters, digits, '-', '_' and dots, which needs no escapes and can be compared
// directly.
func domain(s string) bool {
	odd := strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.')
	})
	_, ok := miekg.IsDomainName(s)
	return ok && !odd && strings.Trim(s, ".") != "" && !strings.HasPrefix(s, ".")
}

// contains reports whether a canonical name is in the garden, in time linear in its labels.
func (g garden) contains(name string) bool {
	if g.exact[name] {
		return true
	}
	for i, end := miekg.NextLabel(name, 0); !end; i, end = miekg.NextLabel(name, i) {
		if g.patterns[name[i:]] {
			return true
		}
	}
	return false
}

// special are addresses that are not global on the Internet (RFC 6890), in addition to those that netip.Addr knows.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("2001::/32"), // Teredo and 6to4 have IPv4 addresses in theirs, which may be private
	netip.MustParsePrefix("2002::/16"),
}

// global6 has the IPv6 addresses that are global (RFC 4291, section 2.5.4, as IANA gives them out).
var global6 = netip.MustParsePrefix("2000::/3")

// openable reports whether the address of a garden name may be opened: a name must not open the LAN or the gateway (DNS
// rebinding).
func (p *policy) openable(addr netip.Addr) bool {
	return Openable(addr, p.ipv6, p.neverOpen) && !slices.ContainsFunc(p.open, holds(addr))
}

// Openable reports whether a name may open an address in the walled garden, beside neverOpen: a global one, of IPv6
// where clients have that.
func Openable(addr netip.Addr, ipv6 bool, neverOpen []netip.Prefix) bool {
	global := addr.Is4() && addr.IsGlobalUnicast() && !addr.IsPrivate() || ipv6 && global6.Contains(addr)
	return global && !slices.ContainsFunc(special, holds(addr)) && !slices.ContainsFunc(neverOpen, holds(addr))
}

func holds(addr netip.Addr) func(netip.Prefix) bool {
	return func(n netip.Prefix) bool { return n.Contains(addr) }
}
