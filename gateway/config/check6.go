package config

import (
	"strings"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// checkIPv6 checks the keys of clients' IPv6.
func (k *checker) checkIPv6() {
	kind := datapath.TraitsOf(k.Datapath.Kind)
	if !k.IsSet("lan.address6") {
		k.refuseUnused("clients have no IPv6 without lan.address6", "lan.inbound6", "lan.nat64", "dhcp.ipv6_only")
		if k.WAN.Delegation {
			k.report("wan.delegation", "needs lan.address6, the gateway's own address, such as \"fd00:0:0:1::1/64\"")
		}
		if k.DHCP6.Mode != Stateless {
			k.refuseUnused("clients have no IPv6 without lan.address6", "dhcp6.mode")
		}
	}
	if k.LAN.Address6.IsValid() && !kind.IPv6 {
		able := datapath.Names(func(t datapath.Traits) bool { return t.IPv6 })
		k.report("lan.address6", "is not possible with datapath.kind = %q: its clients have no IPv6; kinds that have it: %s",
			kind.Kind, strings.Join(able, ", "))
	}
}
