package config

import (
	"strings"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// checkIPv6 checks the keys of clients' IPv6.
func (k *checker) checkIPv6() {
	kind := datapath.TraitsOf(k.Datapath.Kind)
	if !k.IsSet("lan.address6") {
		k.refuseUnused("clients have no IPv6 without lan.address6", "lan.inbound6", "lan.client_prefixes", "lan.nat64",
			"dhcp.ipv6_only")
		if k.WAN.Delegation {
			k.report("wan.delegation", "needs lan.address6, the gateway's own address, such as \"fd00:0:0:1::1/64\"")
		}
		if k.DHCP6.Mode != Stateless {
			k.refuseUnused("clients have no IPv6 without lan.address6", "dhcp6.mode")
		}
	}
	k.checkClientPrefixes()
	if k.LAN.Address6.IsValid() && !kind.IPv6 {
		able := datapath.Names(func(t datapath.Traits) bool { return t.IPv6 })
		k.report("lan.address6", "is not possible with datapath.kind = %q: its clients have no IPv6; kinds that have it: %s",
			kind.Kind, strings.Join(able, ", "))
	}
}

// checkClientPrefixes checks the networks of which each client has a /64.
func (k *checker) checkClientPrefixes() {
	each := k.LAN.ClientPrefixes
	switch {
	case !each.On():
		return
	case each.Delegated && !k.WAN.Delegation:
		k.report("lan.client_prefixes", `is "delegated", and the provider is not asked: set wan.delegation = true`)
	case !each.Delegated && k.WAN.Delegation:
		k.report("lan.client_prefixes", `must be "delegated" where wan.delegation is true, not %s`, each.Pool)
	case each.Pool.IsValid() && each.Pool.Contains(k.LAN.Address6.Addr()):
		k.report("lan.client_prefixes", "contains lan.address6 (%s), which must be of a network that no client has",
			k.LAN.Address6)
	}
	if k.DHCP6.Mode == Stateful {
		k.report("dhcp6.mode", `must not be "stateful" with lan.client_prefixes: each client makes addresses of its own /64`)
	}
}
