package config

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/kinds"
	"github.com/gateweigh/gateweigh/internal/strict"
)

// clientNetwork reads an IPv4 network of clients' addresses.
func clientNetwork(v any) (netip.Prefix, error) {
	s, _ := v.(string)
	p, err := netip.ParsePrefix(s)
	if err != nil || !p.Addr().Is4() || p.Bits() < datapath.LargestLAN {
		return netip.Prefix{}, fmt.Errorf(`must be an IPv4 network of /%d or longer such as "203.0.113.0/24", not %s`,
			datapath.LargestLAN, strict.Show(v))
	}
	if p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf("%s has bits beyond its length: did you mean %q?", p, p.Masked().String())
	}
	if a := p.Addr(); a.IsMulticast() || a.IsLoopback() || a.As4()[0] == 0 || a.As4()[0] >= 240 {
		return netip.Prefix{}, errors.New("has addresses that no host has")
	}
	return p, nil
}

// UnfitForPPPoE returns why no client on PPPoE can have an address; empty: one can.
func (c *Config) UnfitForPPPoE(a netip.Addr) string {
	problem := c.LAN.Unleasable(a)
	switch {
	case c.LAN.Network().Contains(a) || problem == "":
		return problem
	case slices.ContainsFunc(c.PPPoE.Networks, func(p netip.Prefix) bool { return p.Contains(a) }):
		return ""
	}
	return problem + ", nor in pppoe.networks"
}

// checkPPPoENetworks checks the networks outside the LAN of which PPPoE clients have addresses.
func (k *checker) checkPPPoENetworks() {
	const key = "pppoe.networks"
	networks := k.PPPoE.Networks
	if len(networks) == 0 {
		return
	}
	if kind := kinds.TraitsOf(k.Datapath.Kind); !kind.Outside {
		able := kinds.Names(func(t datapath.Traits) bool { return t.Outside })
		k.report(key, "is not possible with datapath.kind = %q, whose clients have addresses of the LAN; kinds that have "+
			"others: %s", kind.Name, strings.Join(able, ", "))
	}
	total := 0
	for i, p := range networks {
		total += 1 << (32 - p.Bits())
		if lan := k.LAN.Network(); p.Overlaps(lan) {
			k.report(key, "%s overlaps the LAN, %s, whose addresses clients have without it", p, lan)
		}
		for _, other := range networks[:i] {
			if p.Overlaps(other) {
				k.report(key, "%s overlaps %s", p, other)
			}
		}
	}
	if most := 1 << (32 - datapath.LargestLAN); total > most {
		k.report(key, "%d addresses: at most %d, because data paths have an entry for each", total, most)
	}
}

// checkOutside checks that two networks do not share addresses outside their LANs. report and as are checkTwo's.
func (k *checker) checkOutside(n, other *Config, report func(key, format string, args ...any), as func(string) string) {
	for _, a := range n.PPPoE.Networks {
		if b := other.LAN.Address; b.IsValid() && a.Overlaps(b) {
			report("pppoe.networks", "%s overlaps %s %s", a, b.Masked(), as("lan.address"))
		}
		for _, b := range other.PPPoE.Networks {
			if a.Overlaps(b) {
				report("pppoe.networks", "%s overlaps %s %s", a, b, as("pppoe.networks"))
			}
		}
	}
	for _, b := range other.PPPoE.Networks {
		if a := n.LAN.Address; a.IsValid() && a.Overlaps(b) {
			report("lan.address", "%s overlaps %s %s", a.Masked(), b, as("pppoe.networks"))
		}
	}
}
