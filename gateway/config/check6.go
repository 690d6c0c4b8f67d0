package config

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/kinds"
)

// checkIPv6 checks the keys of clients' IPv6.
func (k *checker) checkIPv6() {
	kind := kinds.TraitsOf(k.Datapath.Kind)
	if !k.IsSet("lan.address6") {
		k.refuseUnused("clients have no IPv6 without lan.address6", "lan.inbound6", "lan.client_prefixes", "lan.nat64",
			"dhcp.ipv6_only", "dhcp6.pd_pool", "dhcp6.pd_length")
		if k.WAN.Delegation {
			k.report("wan.delegation", "needs lan.address6, the gateway's own address, such as \"fd00:0:0:1::1/64\"")
		}
		if k.LAN.NDProxy != Off {
			k.refuseUnused("clients have no IPv6 without lan.address6", "lan.nd_proxy")
		}
		if k.DHCP6.Mode != Stateless {
			k.refuseUnused("clients have no IPv6 without lan.address6", "dhcp6.mode")
		}
	}
	k.checkClientPrefixes()
	if k.hasPrefixPools("lan.prefix_pool", "Framed-IPv6-Pool", k.LAN.PrefixPools, k.LAN.ClientPrefixes.Pool) {
		k.checkApart("lan.prefix_pool", k.LAN.PrefixPools, []PrefixPool{{"lan.client_prefixes", k.LAN.ClientPrefixes.Pool},
			{"lan.address6", k.LAN.Address6.Masked()}})
	}
	k.checkPDPool()
	if k.hasPrefixPools("dhcp6.prefix_pool", "Delegated-IPv6-Prefix-Pool", k.DHCP6.PrefixPools, k.DHCP6.PDPool.Pool) {
		k.checkPDPools()
	}
	if k.LAN.Address6.IsValid() && !kind.IPv6 {
		able := kinds.Names(func(t datapath.Traits) bool { return t.IPv6 })
		k.report("lan.address6", "is not possible with datapath.kind = %q: its clients have no IPv6; kinds that have it: %s",
			kind.Name, strings.Join(able, ", "))
	}
}

// checkPPPoEIPv6 checks what PPPoE clients' IPv6 needs.
func (k *checker) checkPPPoEIPv6() {
	if !k.PPPoE.IPv6 {
		return
	}
	kind := kinds.TraitsOf(k.Datapath.Kind)
	switch {
	case !kind.IPv6:
		k.report("pppoe.ipv6", "is not possible with datapath.kind = %q, which refuses IPV6CP; kinds that have it: %s",
			kind.Name, strings.Join(kinds.Names(func(t datapath.Traits) bool { return t.IPv6 && t.PPPoE }), ", "))
	case !k.LAN.Address6.IsValid() || !k.LAN.ClientPrefixes.On():
		k.report("pppoe.ipv6", "needs lan.address6, and lan.client_prefixes, of which each PPPoE client has a /64")
	}
}

// checkClientPrefixes checks the networks of which each client has a /64.
func (k *checker) checkClientPrefixes() {
	each := k.LAN.ClientPrefixes
	switch {
	case !each.On():
		return
	case each.Delegated && k.table > 0:
		k.report("lan.client_prefixes", `must not be "delegated" in one of several networks, which has one /64 of the `+
			`delegated prefix (subnet)`)
	case each.On() && k.WAN.Delegation && k.table > 0:
		k.report("lan.client_prefixes", "is not possible with subnet: leave out one of them")
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

// maxPrefixPools is how many networks with names there are at most.
const maxPrefixPools = 2

// hasPrefixPools reports whether a table has networks that RADIUS names, and checks what they need. usual is the
// network of clients for which it names none.
func (k *checker) hasPrefixPools(key, attribute string, pools []PrefixPool, usual netip.Prefix) bool {
	switch {
	case len(pools) == 0:
		return false
	case !k.LAN.Address6.IsValid():
		k.refuseUnused("clients have no IPv6 without lan.address6", key)
	case !usual.IsValid() && key == "lan.prefix_pool":
		k.report(key, "needs lan.client_prefixes with a network, of which clients have a /64 before they log in")
	case !usual.IsValid():
		k.report(key, "needs dhcp6.pd_pool with a network, of which clients are delegated prefixes without RADIUS")
	case !k.Auth.Has(MethodRADIUS):
		k.report(key, `has no effect: RADIUS names a client's pool (%s), and "radius" is not in auth.methods`, attribute)
	case len(pools) > maxPrefixPools:
		k.report(key, "has %d networks: %d at most", len(pools), maxPrefixPools)
	}
	return true
}

// checkApart checks that the networks of a table overlap neither each other nor earlier ones.
func (k *checker) checkApart(key string, pools, earlier []PrefixPool) {
	for _, pool := range pools {
		for _, other := range earlier {
			if other.Network.IsValid() && other.Network.Overlaps(pool.Network) {
				k.report(key+"."+pool.Name, "%s overlaps %s, %s", pool.Network, other.Name, other.Network)
			}
		}
		earlier = append(earlier, PrefixPool{key + "." + pool.Name, pool.Network})
	}
}

// checkPDPool checks the networks of which clients are delegated prefixes.
func (k *checker) checkPDPool() {
	pd, each := k.DHCP6.PDPool, k.LAN.ClientPrefixes
	if !pd.On() {
		k.refuseUnused("clients are delegated no prefixes without dhcp6.pd_pool", "dhcp6.pd_length")
		return
	}
	switch {
	case k.DHCP6.Mode == Off:
		k.report("dhcp6.pd_pool", `needs DHCPv6: set dhcp6.mode to "stateless" or "stateful"`)
	case pd.Delegated && k.table > 0:
		k.report("dhcp6.pd_pool", `must not be "delegated" in one of several networks, which has one /64 of the delegated `+
			`prefix (subnet)`)
	case pd.Delegated && !k.WAN.Delegation:
		k.report("dhcp6.pd_pool", `is "delegated", and the provider is not asked: set wan.delegation = true`)
	case pd.Delegated && each.Delegated:
		k.report("dhcp6.pd_pool", `must not be "delegated" where lan.client_prefixes is: each would give clients the same `+
			"/64s")
	case pd.Pool.IsValid() && pd.Pool.Overlaps(k.LAN.Address6.Masked()):
		k.report("dhcp6.pd_pool", "contains the network of lan.address6, %s, which is not behind a client",
			k.LAN.Address6.Masked())
	case pd.Pool.IsValid() && each.Pool.IsValid() && pd.Pool.Overlaps(each.Pool):
		k.report("dhcp6.pd_pool", "overlaps lan.client_prefixes, %s, whose /64s are not behind clients", each.Pool)
	case pd.Pool.IsValid() && slices.ContainsFunc(k.LAN.PrefixPools, func(p PrefixPool) bool {
		return p.Network.Overlaps(pd.Pool)
	}):
		k.report("dhcp6.pd_pool", "overlaps a network of lan.prefix_pool, whose /64s are not behind clients")
	case pd.Pool.IsValid() && k.DHCP6.PDLength < pd.Pool.Bits():
		k.report("dhcp6.pd_length", "is %d, and dhcp6.pd_pool, %s, has no prefix so large", k.DHCP6.PDLength, pd.Pool)
	}
}

// checkPDPools checks the networks with names of which clients are delegated prefixes.
func (k *checker) checkPDPools() {
	const key = "dhcp6.prefix_pool"
	earlier := []PrefixPool{{"dhcp6.pd_pool", k.DHCP6.PDPool.Pool}, {"lan.address6", k.LAN.Address6.Masked()},
		{"lan.client_prefixes", k.LAN.ClientPrefixes.Pool}}
	for _, pool := range k.LAN.PrefixPools {
		earlier = append(earlier, PrefixPool{"lan.prefix_pool." + pool.Name, pool.Network})
	}
	k.checkApart(key, k.DHCP6.PrefixPools, earlier)
	for _, pool := range k.DHCP6.PrefixPools {
		if k.DHCP6.PDLength < pool.Network.Bits() {
			k.report(key+"."+pool.Name, "is %s, which has no prefix of dhcp6.pd_length, %d", pool.Network, k.DHCP6.PDLength)
		}
	}
}
