// Addresses that devices may use although nobody leased them.

package config

import (
	"net/netip"
	"slices"
)

// without returns the addresses of ranges that are in none of others, in ascending order.
func without(ranges, others []Range) (left []Range) {
	others = slices.Clone(others)
	slices.SortFunc(others, func(a, b Range) int { return a.First.Compare(b.First) })
	for _, r := range ranges {
		for _, o := range others {
			if r.Last.Less(o.First) || o.Last.Less(r.First) {
				continue
			}
			if r.First.Less(o.First) {
				left = append(left, Range{r.First, o.First.Prev()})
			}
			if r.First = o.Last.Next(); !r.First.IsValid() || r.Last.Less(r.First) {
				r = Range{}
				break
			}
		}
		if r.First.IsValid() {
			left = append(left, r)
		}
	}
	slices.SortFunc(left, func(a, b Range) int { return a.First.Compare(b.First) })
	return left
}

// served returns the ranges out of which clients are given addresses.
func (c *Config) served() []Range {
	all := slices.Concat(c.DHCP.Pools, c.PPPoE.Pools)
	for _, pool := range c.PPPoE.Named {
		all = append(all, pool.Ranges...)
	}
	return all
}

// claimedBeside returns the addresses that can be claimed and that no client is given.
func (c *Config) claimedBeside() []Range {
	given := c.served()
	for _, r := range c.DHCP.Static {
		given = append(given, Range{r.Addr, r.Addr})
	}
	return without(c.DHCP.Claimable, given)
}

// completeClaims fills in which addresses can be claimed. The pools are known.
func (c *Config) completeClaims() {
	if c.DHCP.Claims && len(c.DHCP.Claimable) == 0 && c.LAN.Address.IsValid() {
		c.DHCP.Claimable = without(around(c.LAN.Address), c.served())
	}
}

// Claimable reports whether a device may use an address that nobody leased. A reserved one can be claimed by the device
// that it is reserved for: the DHCP server decides.
func (c *Config) Claimable(addr netip.Addr) bool {
	return slices.ContainsFunc(c.DHCP.Claimable, func(r Range) bool { return r.Contains(addr) })
}

// checkClaims checks which addresses can be claimed.
func (k *checker) checkClaims() {
	if !k.DHCP.Claims {
		k.refuseUnused("dhcp.claims is not true", "dhcp.claimable")
		return
	}
	const key = "dhcp.claimable"
	for i, r := range k.DHCP.Claimable {
		k.checkPool(key, r, k.DHCP.Claimable[:i])
	}
	var given []Range
	for _, pool := range k.PPPoE.Named {
		given = append(given, pool.Ranges...)
	}
	for _, pool := range append(given, k.PPPoE.Pools...) {
		for _, r := range k.DHCP.Claimable {
			if r.Contains(pool.First) || pool.Contains(r.First) {
				k.report(key, "%s overlaps %s of PPPoE's pools: an address has one client", r, pool)
			}
		}
	}
	switch {
	case k.PPPoE.Enabled && k.Auth.Has(MethodRADIUS) && !k.IsSet(key):
		k.report("dhcp.claims", "dhcp.claimable is missing: RADIUS may give a PPPoE client any address of the LAN, so say "+
			"which ones it never gives")
	case len(k.DHCP.Pools) == 0 && !k.IsSet(key):
		k.report("dhcp.claims", "dhcp.pools is all of the LAN, so no address is left to be claimed: set dhcp.pools, or "+
			"dhcp.claimable")
	}
}
