package dhcp6

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/gateway/budget"
)

const (
	minDUID = 2 + 1   // bytes of a DUID with its type (RFC 8415, 11.1)
	maxDUID = 2 + 128 // likewise

	// maxOptions bounds the options that all replies have, in bytes, so that a reply has room for leases.
	maxOptions = 512
	// maxPoolBits is the longest prefix of a pool of addresses. A smaller pool could be searched by guessing, and its
	// addresses would often be another client's already.
	maxPoolBits = 112
	minRefresh  = 10 * time.Minute // IRT_MINIMUM (RFC 8415, 7.6)
)

// withDefaults returns the configuration with every default in place, or says what is wrong with it.
func (c Config) withDefaults() (Config, error) {
	c.Lease = cmp.Or(c.Lease, time.Hour)
	c.ShortLease = cmp.Or(c.ShortLease, c.Lease)
	c.Lengths.Usual = cmp.Or(c.Lengths.Usual, 64)
	c.Lengths.Shortest = cmp.Or(c.Lengths.Shortest, c.Lengths.Usual)
	c.Lengths.Longest = cmp.Or(c.Lengths.Longest, c.Lengths.Usual)
	c.AddressesPerMAC = cmp.Or(c.AddressesPerMAC, 16)
	c.PrefixesPerMAC = cmp.Or(c.PrefixesPerMAC, 4)
	c.MaxAddresses = cmp.Or(c.MaxAddresses, 262_144)
	c.MaxPrefixes = cmp.Or(c.MaxPrefixes, 65_536)
	c.PerMAC = cmp.Or(c.PerMAC, budget.Rate{AtOnce: 16, EachSecond: 2})
	c.Log = cmp.Or(c.Log, slog.Default())
	if c.Prefixes == nil {
		c.Prefixes = func() Prefixes { return Prefixes{} }
	}
	if c.Taken == nil {
		c.Taken = func(Client, netip.Addr) bool { return false }
	}
	return c, c.check()
}

func (c Config) check() error {
	usual := c.Lengths.Usual
	switch {
	case c.Interface == "":
		return errors.New("dhcp6: no interface given")
	case c.Store == nil:
		return errors.New("dhcp6: no store given to keep leases in")
	case len(c.DUID) < minDUID || len(c.DUID) > maxDUID:
		return fmt.Errorf("dhcp6: the server's DUID has %d bytes: must be %d to %d", len(c.DUID), minDUID, maxDUID)
	case c.Source.IsValid() && !c.Source.IsLinkLocalUnicast():
		return fmt.Errorf("dhcp6: the source %s of replies must be a link-local address", c.Source)
	case c.Lease < time.Minute || c.Lease > 366*24*time.Hour:
		return fmt.Errorf("dhcp6: lease time %s must be between a minute and a year", c.Lease)
	case c.ShortLease < time.Minute || c.ShortLease > c.Lease || c.ShortLease < c.Lease && c.Settled == nil:
		return fmt.Errorf(
			"dhcp6: lease time %s of those who are not settled must be between a minute and %s, "+
				"and it must be known who they are",
			c.ShortLease, c.Lease)
	case c.Lengths.Shortest < 1 || c.Lengths.Shortest > usual || c.Lengths.Longest < usual || c.Lengths.Longest > 127:
		return fmt.Errorf("dhcp6: lengths /%d, /%d and /%d of delegated prefixes: must grow from the shortest to the longest",
			c.Lengths.Shortest, usual, c.Lengths.Longest)
	case c.AddressesPerMAC < 0 || c.PrefixesPerMAC < 0 || c.MaxAddresses < 0 || c.MaxPrefixes < 0:
		return errors.New("dhcp6: limits of leases must be 1 or more")
	case c.AddressesPerMAC > maxStored:
		return fmt.Errorf("dhcp6: %d addresses a MAC: must be %d or less", c.AddressesPerMAC, maxStored)
	case c.Refresh != 0 && c.Refresh < minRefresh:
		return fmt.Errorf("dhcp6: information refresh time %s must be %s or more (RFC 8415, 21.23)", c.Refresh, minRefresh)
	}
	return c.checkOptions()
}

func (c Config) checkOptions() error {
	for _, addr := range c.DNS {
		if !addr.Is6() || addr.Is4In6() {
			return fmt.Errorf("dhcp6: DNS server %s is no IPv6 address", addr)
		}
	}
	for _, name := range c.Search {
		if !isDomain(name) {
			return fmt.Errorf("dhcp6: %q is no domain name", name)
		}
	}
	if portal, err := url.Parse(c.CaptivePortalURL); err != nil || (c.CaptivePortalURL != "" && portal.Host == "") {
		return fmt.Errorf("dhcp6: captive portal API %q must be a full URL", c.CaptivePortalURL)
	}
	if size := len(c.fixedOptions(&request{}).ToBytes()); size > maxOptions {
		return fmt.Errorf("dhcp6: DNS servers, domains and captive portal take %d bytes: at most %d fit beside leases",
			size, maxOptions)
	}
	return nil
}

// isDomain reports whether a domain name has labels of 1 to 63 bytes, and 253 bytes at most.
func isDomain(name string) bool {
	labels := strings.Split(strings.TrimSuffix(name, "."), ".")
	bad := slices.ContainsFunc(labels, func(label string) bool {
		return label == "" || len(label) > 63 || strings.ContainsAny(label, " \x00")
	})
	return !bad && len(name) <= 253
}

// maxPools bounds the pools of a kind, and so the length of an identity association in a reply: two of the provider,
// and two former ones or a local one.
const maxPools = 4

// usable returns the prefixes without pools that cannot be used, and without those beyond maxPools, and whether it has
// left any out.
func (p Prefixes) usable(longest int) (Prefixes, bool) {
	fit := func(pools []Pool, maxBits int) (good []Pool) {
		for _, pool := range pools {
			prefix := pool.Prefix.Masked()
			if prefix.IsValid() && prefix.Addr().Is6() && prefix.Bits() <= maxBits && len(good) < maxPools {
				pool.Prefix = prefix
				good = append(good, pool)
			}
		}
		return good
	}
	use := Prefixes{p.OnLink, fit(p.Addresses, maxPoolBits), fit(p.Delegated, longest)}
	return use, len(use.Addresses) < len(p.Addresses) || len(use.Delegated) < len(p.Delegated)
}

func (p Prefixes) pools(kind Kind) []Pool {
	if kind == Delegated {
		return p.Delegated
	}
	return p.Addresses
}

// onLink reports whether an address is of this network.
func (p Prefixes) onLink(addr netip.Addr) bool {
	return slices.ContainsFunc(p.OnLink, func(prefix netip.Prefix) bool { return prefix.Contains(addr) }) ||
		poolOf(p.Addresses, netip.PrefixFrom(addr, addr.BitLen())) != nil
}

// poolOf returns the pool that a prefix is of and that is valid; nil: there is none.
func poolOf(pools []Pool, prefix netip.Prefix) *Pool {
	for i := range pools {
		if pools[i].Valid > 0 && pools[i].Prefix.Bits() <= prefix.Bits() && pools[i].Prefix.Contains(prefix.Addr()) {
			return &pools[i]
		}
	}
	return nil
}
