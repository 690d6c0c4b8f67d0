package gateway

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/gateweigh/gateweigh/gateway/bindings"
	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/prefixpool"
	"github.com/gateweigh/gateweigh/gateway/radius"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// check6 refuses networks of a login that the gateway or the LAN has.
func (g *gateway) check6(given *session.Grant6) error {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("listing this machine's addresses: %w", err)
	}
	lan, pools := g.prefixes6(), g.pools6()
	each := g.cfg.LAN.ClientPrefixes.On()
	for _, set := range []struct {
		attribute string
		all       []netip.Prefix
		mayBeOf   func(netip.Prefix) bool // the LAN's prefixes that they are parts of
	}{
		{"Framed-IPv6-Prefix", given.Prefixes,
			func(p netip.Prefix) bool { return each && g.each6.pool(p.Addr()) != nil }},
		{"Delegated-IPv6-Prefix", given.Delegated, nil}, {framedRoute6, given.Routes, nil},
	} {
		for _, p := range set.all {
			reason := ""
			i := slices.IndexFunc(lan, p.Overlaps)
			switch {
			case i >= 0 && (set.mayBeOf == nil || !set.mayBeOf(p)):
				reason = "overlaps the LAN, " + lan[i].String()
			case slices.ContainsFunc(own, func(a net.Addr) bool { return isWithin(a, p) }):
				reason = "has addresses of this machine"
			case set.attribute == framedRoute6 && slices.ContainsFunc(pools, p.Overlaps):
				reason = "overlaps dhcp6.pd_pool or dhcp6.prefix_pool, of which clients are delegated prefixes"
			case set.attribute == framedRoute6 && slices.ContainsFunc(own, func(a net.Addr) bool { return overlaps(a, p) }):
				reason = "overlaps a network at an interface of this machine"
			case set.mayBeOf != nil && each && p.Bits() != prefixpool.Each:
				reason = fmt.Sprintf("is no /%d, which each client has", prefixpool.Each)
			default:
				continue
			}
			return fmt.Errorf("the login has the network %s (%s), which %s", p, set.attribute, reason)
		}
	}
	return nil
}

// isWithin reports whether an interface's address is of a network.
func isWithin(a net.Addr, network netip.Prefix) bool {
	p, err := netip.ParsePrefix(a.String())
	return err == nil && network.Contains(p.Addr())
}

// overlaps reports whether an interface's network overlaps a network.
func overlaps(a net.Addr, network netip.Prefix) bool {
	p, err := netip.ParsePrefix(a.String())
	return err == nil && p.Masked().Overlaps(network)
}

// givesAddrs reports whether DHCPv6 gives clients the addresses that their logins have.
func (g *gateway) givesAddrs() bool {
	mode := g.cfg.DHCP6.Mode
	return g.cfg.LAN.Address6.IsValid() && (mode == config.Stateful || mode != config.Off && g.cfg.LAN.ClientPrefixes.On())
}

// checkAddrs refuses addresses of a login that no client can have. Where each client has a /64 of its own, the login
// has those of the addresses too.
func (g *gateway) checkAddrs(asked *session.Grant6) error {
	if !g.givesAddrs() {
		asked.Addrs = nil
		return nil
	}
	each := g.cfg.LAN.ClientPrefixes.On()
	for _, addr := range asked.Addrs {
		link, reason := netip.PrefixFrom(addr, prefixpool.Each).Masked(), ""
		switch {
		case each && g.each6.pool(addr) == nil:
			reason = "is not of lan.client_prefixes or lan.prefix_pool"
		case !each && !slices.ContainsFunc(g.prefixes6(), func(p netip.Prefix) bool { return p.Contains(addr) }):
			reason = "is not of the LAN"
		case addr == link.Addr():
			reason = "all routers have (RFC 4291, 2.6.1)"
		case addr == g.cfg.LAN.Address6.Addr():
			reason = "is the gateway's own"
		case each && !slices.Contains(asked.Prefixes, link):
			asked.Prefixes = append(slices.Clip(asked.Prefixes), link)
			continue
		default:
			continue
		}
		return fmt.Errorf("the login has the address %s (Framed-IPv6-Address), which %s", addr, reason)
	}
	return nil
}

// giveAddrs returns the addresses of a login that DHCPv6 gives to the client. One that a former device of the user has,
// or a client that is not logged in, comes once that has left it. Those of a /64 of the client's own nobody else can
// have.
func (g *gateway) giveAddrs(
	client bindings.Anchor, former map[bindings.Anchor]bool, asked *session.Grant6,
) ([]netip.Addr, error) {
	if g.cfg.LAN.ClientPrefixes.On() {
		return asked.Addrs, nil
	}
	for _, addr := range asked.Addrs {
		owner, taken := g.grants.withAddr(addr)
		if !taken {
			owner, taken = g.bindings.Owner(addr)
			taken = taken && g.authenticated6(owner)
		}
		if taken && owner != client && !former[owner] {
			return nil, fmt.Errorf("the login has the address %s (Framed-IPv6-Address), which another client has: %s", addr,
				owner)
		}
	}
	return asked.Addrs, nil
}

// giveAddressPool has DHCPv6 give the client an address of a network of lan.prefix_pool, out of a /64 of its own.
func (g *gateway) giveAddressPool(client bindings.Anchor, name string, given *session.Grant6) (err error) {
	if name == "" || len(g.cfg.LAN.PrefixPools) == 0 || !g.givesAddrs() {
		return nil
	}
	if network, known := g.each6.named[name]; known {
		for _, p := range given.Prefixes {
			if network.Contains(p.Addr()) {
				given.AddressOf = p
				return nil
			}
		}
	}
	if given.AddressOf, err = g.giveOfPool(client, name, addressPool6); err == nil {
		given.Prefixes = append(slices.Clip(given.Prefixes), given.AddressOf)
	}
	return err
}

// giveRoutes notes what a session is given, and gives the client the networks behind it: in this order, because another
// session of the client that ends meanwhile leaves to it only those that are noted.
func (g *gateway) giveRoutes(client bindings.Anchor, id string, given *session.Grant6) error {
	g.grants.add(client, id, given)
	if network, holder, free := g.delegated6.claim(client, given.Routes); !free {
		return fmt.Errorf("the login has the network %s (Framed-IPv6-Route), which another client has: %s", network, holder)
	}
	return nil
}

// routed6 returns the IPv6 networks behind the client of a session that its login has.
func routed6(s session.Session) (all []netip.Prefix) {
	if s.IPv6 == nil {
		return nil
	}
	for _, p := range s.IPv6.Routes {
		if slices.Contains(s.Delegated, p) {
			all = append(all, p)
		}
	}
	return all
}

// sessionPrefixes returns the IPv6 prefixes that are a session's alone.
func (g *gateway) sessionPrefixes(s session.Session) (all radius.Prefixes) {
	all.Routed = routed6(s)
	for _, p := range s.Delegated {
		switch {
		case slices.Contains(all.Routed, p):
		case s.PPPoE.Session != 0 && g.isWhole6(p):
			all.Own = append(all.Own, p)
		default:
			all.Delegated = append(all.Delegated, p)
		}
	}
	if s.PPPoE.Session != 0 || !g.cfg.LAN.ClientPrefixes.On() {
		return all
	}
	if s.IPv6 != nil {
		all.Own = slices.Clone(s.IPv6.Prefixes)
	}
	for _, addr := range append([]netip.Addr{s.Addr}, s.FurtherAddrs...) {
		if !addr.Is6() || !addr.IsGlobalUnicast() ||
			slices.ContainsFunc(s.Delegated, func(p netip.Prefix) bool { return p.Contains(addr) }) {
			continue
		}
		if p := netip.PrefixFrom(addr, prefixpool.Each).Masked(); !slices.Contains(all.Own, p) {
			all.Own = append(all.Own, p)
		}
	}
	return all
}
