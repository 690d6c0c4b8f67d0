package config

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/gateweigh/gateweigh/internal/strict"
)

// gardenPrefix reads a network or one address.
func gardenPrefix(v any) (netip.Prefix, error) {
	s, ok := v.(string)
	p, err := network(s, "")
	if !ok || errors.Is(err, errNoNetwork) {
		return p, fmt.Errorf(
			`must be an IPv4 network such as "192.0.2.0/24", /8 or longer, or an address, not %s`, strict.Show(v))
	}
	return p, err
}

// errNoNetwork means that a text is neither a network nor an address.
var errNoNetwork = errors.New("is neither a network nor an address")

// network reads a network or one address. rest is what stands behind it in the file, for advice.
func network(s, rest string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil && isHost(a) {
		return netip.PrefixFrom(a, 32), nil
	}
	p, err := netip.ParsePrefix(s)
	first, _, hasLength := strings.Cut(s, "/")
	addr, noAddress := netip.ParseAddr(strings.Trim(first, "[]"))
	switch {
	case noAddress != nil:
		return netip.Prefix{}, errNoNetwork
	case !addr.Is4():
		return netip.Prefix{}, fmt.Errorf("must be IPv4, and %s is IPv6, which clients do not have", strict.Show(s+rest))
	case !hasLength:
		return netip.Prefix{}, fmt.Errorf("must be an address that a host can have, and %s is none", strict.Show(s+rest))
	case err != nil:
		return netip.Prefix{}, fmt.Errorf(
			`must have the bits of its network behind the slash, 8 to 32, and %s has not: write it as in "192.0.2.0/24%s"`,
			strict.Show(s+rest), rest)
	case p != p.Masked():
		return netip.Prefix{}, fmt.Errorf(
			`must be a network or an address, and %s is an address with a length: use "%s%s" or "%s%s"`, strict.Show(s+rest),
			p.Masked(), rest, p.Addr(), rest)
	case p.Bits() < 8:
		return netip.Prefix{}, fmt.Errorf(
			`must be an IPv4 network such as "192.0.2.0/24%s", /8 or longer, and %s is a large part of the Internet`, rest,
			strict.Show(s+rest))
	}
	return p, nil
}

func decimal(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// gardenPort reads a port of a name, network or address: "example.org:443", "192.0.2.0/24:53/udp".
func gardenPort(v any) (g GardenPort, err error) {
	s, ok := v.(string)
	if !ok || s == "" {
		return g, fmt.Errorf(
			`must be a name, a network or an address with a port, such as "login.example.org:443" or "192.0.2.0/24:53/udp", not %s`,
			strict.Show(v))
	}
	if _, rest, web := strings.Cut(s, "://"); web {
		name, _, _ := strings.Cut(rest, "/")
		if !strings.Contains(name, ":") {
			name += ":443"
		}
		return g, fmt.Errorf("must be a name with a port, and %s is a web address: write %q", strict.Show(v), name)
	}
	if _, err := netip.ParseAddr(s); err == nil && strings.Count(s, ":") > 1 {
		return g, fmt.Errorf("must be IPv4, and %s is IPv6, which clients do not have", strict.Show(s))
	}
	index := strings.LastIndexByte(s, ':')
	if index < 0 {
		all := "garden.domains"
		if _, err := network(s, ""); err == nil {
			all = "garden.prefixes"
		}
		return g, fmt.Errorf(
			"must end in a port, and %s has none: write %q; all ports are for %s", strict.Show(v), s+":443", all)
	}
	if err := g.readPort(s[:index], s[index+1:]); err != nil {
		return g, err
	}
	g.Prefix, err = network(s[:index], s[index:])
	if !errors.Is(err, errNoNetwork) {
		return g, err
	}
	if g.Domain, err = namePattern(s[:index]); err != nil {
		return g, fmt.Errorf(
			`must be a name, a network or an address with a port, such as "login.example.org:443", and the name of %s %w`,
			strict.Show(v), err)
	}
	return g, nil
}

// readPort reads the part of an entry after the colon: a port, and a protocol if it is not TCP.
func (g *GardenPort) readPort(host, text string) error {
	whole := strict.Show(host + ":" + text)
	number, protocol, named := strings.Cut(text, "/")
	switch strings.ToLower(protocol) {
	case "udp":
		g.Protocol = 17
	case "tcp":
		g.Protocol = 6
	default:
		switch {
		case decimal(protocol):
			return fmt.Errorf(
				"must have a network's length before the port, and %s has it behind: write %q", whole, host+"/"+protocol+":"+number)
		case named:
			return fmt.Errorf(`must have "tcp" or "udp" behind the port, and %s has %q: write %q or %q`, whole, protocol, host+
				":"+number, host+":"+number+"/udp")
		}
		g.Protocol = 6
	}
	first, last, several := strings.Cut(number, "-")
	if !several {
		first, last, several = strings.Cut(number, ",")
	}
	if suffix := strings.TrimPrefix(text, number); several && decimal(first) && decimal(last) {
		return fmt.Errorf("must have one port, and %s has several: write a value for each, %q, %q and so on", whole, host+":"+
			first+suffix, host+":"+last+suffix)
	}
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("must have a port from 1 to 65535, and %s has %q: write it as in %q", whole, number, host+":443")
	}
	g.Port = uint16(n)
	return nil
}

// String is the form in the file.
func (g GardenPort) String() string {
	host, protocol := g.Domain, ""
	if host == "" {
		host = Short(g.Prefix)
	}
	if g.Protocol == 17 {
		protocol = "/udp"
	}
	return fmt.Sprintf("%s:%d%s", host, g.Port, protocol)
}

// Short is a network as people write it: one address alone.
func Short(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// checkGarden refuses prefixes of the LAN: clients reach each other and the gateway without the garden.
func (k *checker) checkGarden() {
	const among = "clients reach each other without the gateway"
	report := func(key string, p netip.Prefix, text string) {
		switch lan := k.LAN.Network(); {
		case p == netip.PrefixFrom(k.LAN.Address.Addr(), 32):
			k.report(key, "%s is the gateway itself, which is never in the garden: clients reach its DNS and the login page "+
				"anyway; take it out", text)
		case p.Overlaps(lan):
			k.report(key, "%s overlaps the LAN, %s: %s", text, lan, among)
		}
	}
	for _, p := range k.Garden.Prefixes {
		report("garden.prefixes", p, p.String())
	}
	for _, p := range k.Garden.Ports {
		if p.Domain == "" {
			report("garden.ports", p.Prefix, p.String())
		}
	}
}

// checkInbound refuses networks of the LAN: packets from such addresses are never let in by the WAN.
func (k *checker) checkInbound() {
	lan := k.LAN.Network()
	for _, p := range k.NAT.Inbound {
		if p.Bits() >= lan.Bits() && lan.Contains(p.Addr()) {
			k.report("nat.inbound",
				"%s is in the LAN, %s, and it is about hosts behind %s: clients reach each other without it; take it out", Short(p),
				lan, k.WAN.Interface)
		}
	}
}

// Redundant is an entry of a list that has no effect, because another entry covers it. That one stands in the same
// list, or in the list of the key With.
type Redundant struct{ Key, Value, With, CoveredBy string }

// Redundancies lists values that change nothing, because others hold them.
func (c *Config) Redundancies() (all []Redundant) {
	networks := func(key string, list []netip.Prefix) {
		for i, p := range list {
			holds := func(q netip.Prefix) bool { return q != p && q.Bits() <= p.Bits() && q.Contains(p.Addr()) }
			if j := slices.IndexFunc(list, holds); j >= 0 {
				all = append(all, Redundant{key, Short(list[i]), key, Short(list[j])})
			}
		}
	}
	networks("nat.except", c.NAT.Exceptions)
	networks("nat.inbound", c.NAT.Inbound)
	networks("garden.prefixes", c.Garden.Prefixes)
	for _, d := range c.Garden.Domains {
		if j := slices.IndexFunc(c.Garden.Domains, func(q string) bool { return q != d && coveredByPattern(d, q) }); j >= 0 {
			all = append(all, Redundant{"garden.domains", d, "garden.domains", c.Garden.Domains[j]})
		}
	}
	for _, p := range c.Garden.Ports {
		if r, ok := c.redundantPort(p); ok {
			all = append(all, r)
		}
	}
	return all
}

// redundantPort returns the entry of the garden that already covers a port, if there is one.
func (c *Config) redundantPort(p GardenPort) (r Redundant, ok bool) {
	r = Redundant{Key: "garden.ports", Value: p.String(), With: "garden.ports"}
	for _, q := range c.Garden.Ports {
		if q != p && q.Port == p.Port && q.Protocol == p.Protocol && coversPort(q.Domain, q.Prefix, p) {
			r.CoveredBy = q.String()
			return r, true
		}
	}
	for _, q := range c.Garden.Domains {
		if coversPort(q, netip.Prefix{}, p) {
			r.With, r.CoveredBy = "garden.domains", q
			return r, true
		}
	}
	for _, q := range c.Garden.Prefixes {
		if coversPort("", q, p) {
			r.With, r.CoveredBy = "garden.prefixes", Short(q)
			return r, true
		}
	}
	return r, false
}

// coversPort reports whether a pattern or a network includes every name or address of a GardenPort.
func coversPort(pattern string, network netip.Prefix, p GardenPort) bool {
	if p.Domain != "" {
		return pattern != "" && (pattern == p.Domain || coveredByPattern(p.Domain, pattern))
	}
	return network.IsValid() && network.Bits() <= p.Prefix.Bits() && network.Contains(p.Prefix.Addr())
}

// coveredByPattern reports whether a name, or all names of a pattern, are among those of a pattern with a star.
func coveredByPattern(name, pattern string) bool {
	of, wild := strings.CutPrefix(pattern, "*.")
	return wild && strings.HasSuffix(strings.TrimPrefix(name, "*"), "."+of)
}
