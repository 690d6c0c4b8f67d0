package conntrack

import (
	"net/netip"
	"slices"
)

// addresses is a set of addresses and networks. The zero value is empty.
type addresses struct {
	hosts    map[netip.Addr]bool
	networks []netip.Prefix
}

func (s *addresses) add(p netip.Prefix) {
	switch {
	case !p.IsSingleIP():
		if !slices.Contains(s.networks, p) {
			s.networks = append(s.networks, p)
		}
	case s.hosts == nil:
		s.hosts = map[netip.Addr]bool{p.Addr(): true}
	default:
		s.hosts[p.Addr()] = true
	}
}

func (s *addresses) empty() bool { return len(s.hosts)+len(s.networks) == 0 }

func (s *addresses) contain(a netip.Addr) bool {
	return s.hosts[a] || slices.ContainsFunc(s.networks, func(p netip.Prefix) bool { return p.Contains(a) })
}

// overlap reports whether an address of a network is in the set.
func (s *addresses) overlap(p netip.Prefix) bool {
	if slices.ContainsFunc(s.networks, p.Overlaps) {
		return true
	}
	if p.IsSingleIP() {
		return s.hosts[p.Addr()]
	}
	for a := range s.hosts {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// oneByOne reports whether asking the kernel about each costs less than reading all of its n entries.
func (s *addresses) oneByOne(n int) bool {
	return len(s.networks) == 0 && len(s.hosts) <= fewAddresses && n >= eachAddress*len(s.hosts)
}
