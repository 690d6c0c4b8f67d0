package config

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/gateweigh/gateweigh/internal/near"
)

// checkTwo checks that two networks do not share what only one network can have, such as a name, an interface or an
// address. Problems are reported at the later network.
func (k *checker) checkTwo(n, other *Config) {
	report := func(key, format string, args ...any) {
		k.reportAt(n.lineOf(key), networkKey(key), format, args...)
	}
	as := func(key string) string { return fmt.Sprintf("of network %q (line %d)", other.Name, other.lineOf(key)) }
	if n.Name != "" && n.Name == other.Name {
		k.reportAt(n.lineOf("network.name"), "network.name", "%q is the name of the network on line %d too", n.Name,
			other.table)
	}
	if n.LAN.Interface != "" && n.LAN.Interface == other.LAN.Interface {
		report("lan.interface", "%q is the interface %s too: a network has one of its own", n.LAN.Interface,
			as("lan.interface"))
	}
	if n.WAN.Delegation && other.WAN.Delegation && n.Subnet == other.Subnet {
		k.reportAt(n.lineOf("network.subnet"), "network.subnet", "%d is the number %s too", n.Subnet, as("network.subnet"))
	}
	if a, b := n.LAN.Address, other.LAN.Address; a.IsValid() && b.IsValid() && a.Overlaps(b) {
		report("lan.address", "%s overlaps %s %s", a.Masked(), b.Masked(), as("lan.address"))
	}
	k.checkOutside(n, other, report, as)
	if a, b := overlap(n.prefixes6(), other.prefixes6()); a.key != "" {
		report(a.key, "%s overlaps %s %s", a.prefix, b.prefix, as(b.key))
	}
	if d := n.RADIUS.Dynamic; d.IsValid() && d == other.RADIUS.Dynamic {
		report("radius.dynamic", "%s is the address %s too: each network needs another port", d, as("radius.dynamic"))
	}
	if n.Ident.Enabled && other.Ident.Enabled {
		report("ident.enabled", "is true %s too: one network at most can have it", as("ident.enabled"))
	}
	for i, f := range n.NAT.Forwards {
		for j, g := range other.NAT.Forwards {
			if f.Proto == g.Proto && f.Ports.First <= g.Ports.Last && g.Ports.First <= f.Ports.Last {
				key := forwardKey(i, "ports")
				k.reportAt(n.lineOf(key), "network.nat.forward.ports", "%s leads to a client %s already", f.Ports,
					as(forwardKey(j, "ports")))
			}
		}
	}
	if n.NAT.PortsPerClient > 0 || other.NAT.PortsPerClient > 0 {
		for _, r := range n.NAT.Source {
			for _, s := range other.NAT.Source {
				if r.Contains(s.First) || s.Contains(r.First) {
					report("nat.source", "%s overlaps %s %s: with nat.ports_per_client clients of both would have the same ports",
						r.Short(), s.Short(), as("nat.source"))
				}
			}
		}
	}
}

// keyPrefix is a prefix with the key that has it.
type keyPrefix struct {
	key    string
	prefix netip.Prefix
}

// prefixes6 are the IPv6 networks of a network's clients.
func (c *Config) prefixes6() (all []keyPrefix) {
	for _, p := range []keyPrefix{{"lan.address6", c.LAN.Address6}, {"lan.client_prefixes", c.LAN.ClientPrefixes.Pool},
		{"dhcp6.pd_pool", c.DHCP6.PDPool.Pool}} {
		if p.prefix.IsValid() {
			all = append(all, keyPrefix{p.key, p.prefix.Masked()})
		}
	}
	for _, pool := range c.LAN.PrefixPools {
		all = append(all, keyPrefix{"lan.prefix_pool." + pool.Name, pool.Network})
	}
	for _, pool := range c.DHCP6.PrefixPools {
		all = append(all, keyPrefix{"dhcp6.prefix_pool." + pool.Name, pool.Network})
	}
	return all
}

// ClientNetworks are the networks of a network's clients, those included that are delegated to them.
func (c *Config) ClientNetworks() []netip.Prefix {
	all := []netip.Prefix{c.LAN.Network()}
	for _, p := range c.prefixes6() {
		all = append(all, p.prefix)
	}
	return all
}

// overlap returns two prefixes of which one contains the other.
func overlap(all, others []keyPrefix) (a, b keyPrefix) {
	for _, a := range all {
		for _, b := range others {
			if a.prefix.Overlaps(b.prefix) {
				return a, b
			}
		}
	}
	return a, b
}

// checkReaches checks the networks that a network's clients reach.
func (k *checker) checkReaches(n *Config) {
	var names []string
	for _, other := range k.Networks {
		names = append(names, other.Name)
	}
	for _, name := range n.Reaches {
		switch {
		case name == n.Name:
			k.reportAt(n.lineOf("network.reaches"), "network.reaches", "%q is this network itself, whose clients reach each "+
				"other", name)
		case !slices.Contains(names, name):
			k.reportAt(n.lineOf("network.reaches"), "network.reaches", "there is no network %q%s", name,
				near.Suggestion(name, names))
		}
	}
}
