package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/internal/strict"
)

// Relay is a relay of DHCP.
type Relay struct {
	Addr    netip.Addr   // its address on its clients' link (giaddr)
	Network netip.Prefix // of its clients behind Router; the zero Prefix: they are on the LAN itself
	Router  netip.Addr   // its address on the LAN; the zero Addr: they are on the LAN itself
}

// String returns the form in the file.
func (r Relay) String() string {
	if !r.Router.IsValid() {
		return r.Addr.String()
	}
	return fmt.Sprintf("%s/%d via %s", r.Addr, r.Network.Bits(), r.Router)
}

// relay reads an entry of dhcp.relays.
var relay = strict.AcceptText(
	`a relay's address such as "10.1.0.2" or, with clients behind it, "10.1.64.1/24 via 10.1.0.2"`,
	func(s string) (r Relay, ok bool) {
		clients, router, routed := strings.Cut(s, " via ")
		if !routed {
			a, err := netip.ParseAddr(s)
			return Relay{Addr: a}, err == nil && isHost(a)
		}
		p, err := netip.ParsePrefix(strings.TrimSpace(clients))
		a, err2 := netip.ParseAddr(strings.TrimSpace(router))
		return Relay{p.Addr(), p.Masked(), a}, err == nil && err2 == nil && isHost(p.Addr()) && isHost(a) && p.Bits() <= 30
	})

// checkRelays checks dhcp.relays. Clients behind a router have addresses of the LAN's network: those of one part of it,
// which no other router has.
func (k *checker) checkRelays() {
	const key = "dhcp.relays"
	for i, r := range k.DHCP.Relays {
		onLAN := r.Addr
		if r.Router.IsValid() {
			onLAN = r.Router
			k.checkRouted(r)
		}
		if problem := k.LAN.Unleasable(onLAN); problem != "" {
			k.report(key, "%s: %s %s", r, onLAN, problem)
		}
		for _, other := range k.DHCP.Relays[:i] {
			switch {
			case other.Addr == r.Addr:
				k.report(key, "%s is there twice", r.Addr)
			case other.Network != r.Network && other.Network.IsValid() && r.Network.IsValid() &&
				other.Network.Overlaps(r.Network):
				k.report(key, "%s and %s overlap", other.Network, r.Network)
			}
		}
	}
}

// checkRouted checks a relay with clients behind it.
func (k *checker) checkRouted(r Relay) {
	const key = "dhcp.relays"
	lan := k.LAN.Network()
	switch {
	case !lan.Contains(r.Network.Addr()) || r.Network.Bits() <= lan.Bits():
		k.report(key, "%s: the network of clients behind a relay must be a part of the LAN's, %s: give lan.address a "+
			"shorter prefix that has it", r, lan)
	case r.Network.Contains(k.LAN.Address.Addr()) || r.Network.Contains(r.Router):
		k.report(key, "%s: %s has the address of gateway or relay on the LAN, which is not behind the relay", r, r.Network)
	case r.Addr == r.Network.Addr() || r.Addr == lastOf(r.Network):
		k.report(key, "%s: %s is no host's address in %s", r, r.Addr, r.Network)
	case len(k.DHCP.Pools) > 0 && !slices.ContainsFunc(k.DHCP.Pools, func(p Range) bool {
		return r.Network.Contains(p.First) || p.Contains(r.Network.Addr())
	}) && !slices.ContainsFunc(k.DHCP.Static, func(s Reservation) bool { return r.Network.Contains(s.Addr) }):
		k.report(key, "%s: dhcp.pools has no address of %s to lease", r, r.Network)
	}
}
