package gateway

import (
	"slices"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// Clients, as the log names them.
const (
	portalClients = "on Ethernet"
	pppoeClients  = "of PPPoE"
)

// unusedInSessions is unusedOnEthernet for a login by PPPoE.
func (g *gateway) unusedInSessions(given *session.Grant6) []string {
	if !g.hasSessions6() {
		return attributesOf(given)
	}
	return slices.DeleteFunc(g.unusedOnEthernet(given), func(name string) bool { return name == interfaceID6 })
}

// unusedOnEthernet names the attributes of a login at the portal that are not carried out.
func (g *gateway) unusedOnEthernet(given *session.Grant6) (names []string) {
	if given == nil {
		return nil
	}
	each := g.cfg.LAN.ClientPrefixes.On()
	dhcp6 := g.cfg.LAN.Address6.IsValid() && g.cfg.DHCP6.Mode != config.Off
	for _, one := range attributesOf(given) {
		switch one {
		case framedPrefix6, toldRoute6:
			if each {
				continue
			}
		case framedPool6:
			if len(g.cfg.LAN.PrefixPools) > 0 {
				continue
			}
		case delegatedPrefix6:
			if g.cfg.DHCP6.PDPool.On() {
				continue
			}
		case delegatedPool6:
			if len(g.cfg.DHCP6.PrefixPools) > 0 {
				continue
			}
		case framedAddress6:
			if g.givesAddrs() {
				continue
			}
		case addressPool6:
			if len(g.cfg.LAN.PrefixPools) > 0 && g.givesAddrs() {
				continue
			}
		case framedRoute6:
			if g.cfg.LAN.Address6.IsValid() {
				continue
			}
		case dnsServer6:
			if each || dhcp6 {
				continue
			}
		}
		names = append(names, one)
	}
	return names
}

// Attributes that are carried out in some configurations.
const (
	framedPrefix6    = "Framed-IPv6-Prefix"
	delegatedPrefix6 = "Delegated-IPv6-Prefix"
	framedPool6      = "Framed-IPv6-Pool"
	framedAddress6   = "Framed-IPv6-Address"
	framedRoute6     = "Framed-IPv6-Route"
	delegatedPool6   = "Delegated-IPv6-Prefix-Pool"
	addressPool6     = "Stateful-IPv6-Address-Pool"
	toldRoute6       = "Route-IPv6-Information"
	dnsServer6       = "DNS-Server-IPv6-Address"
	interfaceID6     = "Framed-Interface-Id"
)

// attributesOf names the attributes that a login has.
func attributesOf(given *session.Grant6) (names []string) {
	if given == nil {
		return nil
	}
	for _, one := range []struct {
		name string
		has  bool
	}{
		{framedPrefix6, len(given.Prefixes) > 0}, {framedAddress6, len(given.Addrs) > 0},
		{delegatedPrefix6, len(given.Delegated) > 0}, {framedRoute6, len(given.Routes) > 0},
		{toldRoute6, len(given.Told) > 0}, {dnsServer6, len(given.DNS) > 0},
		{interfaceID6, given.InterfaceID != 0}, {framedPool6, given.Pool != ""},
		{delegatedPool6, given.DelegatedPool != ""}, {addressPool6, given.AddressPool != ""},
	} {
		if one.has {
			names = append(names, one.name)
		}
	}
	return names
}

// sayUnused has the log name attributes that are not carried out for a kind of clients, each once.
func (g *gateway) sayUnused(clients string, names []string) {
	for _, name := range names {
		if _, said := g.grants.said.LoadOrStore(clients+name, true); !said {
			g.log.Warn("RADIUS gives clients what this gateway does not carry out for them (docs/ipv6.md, RADIUS)",
				"attribute", name, "clients", clients)
		}
	}
}
