// Two gateways on one LAN, of which one serves at a time.

package config

import (
	"net/netip"
	"time"

	"github.com/gateweigh/gateweigh/internal/strict"
)

// Values of pair.by.
const (
	ByKeepalived = "keepalived" // keepalived moves the addresses, and tells gatewayd
	ByStore      = "store"      // a lease in the store says who has them, and gatewayd moves them
)

// Values of pair.accounting.
const (
	AccountingContinue = "continue" // sessions go on as they are
	AccountingRestart  = "restart"  // each session ends, and another begins in its place
)

// Pair are two gateways on one LAN, of which one serves at a time. The zero value of Site is none.
type Pair struct {
	Site       string // what both are called together in the store
	By         string // ByKeepalived or ByStore
	Accounting string // AccountingContinue or AccountingRestart
	WANAddress netip.Prefix
	Lease      time.Duration // of the addresses, with ByStore
	Counts     time.Duration // how often counters are written to the store
}

// leaseLeast and leaseMost bound how long an address stays with a gateway that is gone: the kernel counts in seconds.
const leaseLeast, leaseMost = 3 * time.Second, time.Minute

// hostPrefix reads an IPv4 address with the length of its network.
var hostPrefix = strict.AcceptText(`an IPv4 address with its network's length, such as "192.0.2.1/24"`,
	func(s string) (netip.Prefix, bool) {
		p, err := netip.ParsePrefix(s)
		return p, err == nil && p.Addr().Is4() && !p.Addr().IsUnspecified() && p.Bits() > 0
	})

func (c *Config) pairSettings() []setting {
	p := &c.Pair
	return []setting{
		keyAt("pair.site", &p.Site, readGatewayName),
		keyAt("pair.by", &p.By, strict.Word(ByKeepalived, ByStore)),
		keyAt("pair.accounting", &p.Accounting, strict.Word(AccountingContinue, AccountingRestart)),
		keyAt("pair.wan_address", &p.WANAddress, hostPrefix),
		keyAt("pair.lease_time", &p.Lease, duration(leaseLeast, leaseMost)),
		keyAt("pair.counts", &p.Counts, duration(time.Second, time.Minute)),
	}
}

// checkPair checks the keys of a pair.
func (k *checker) checkPair() {
	p := k.Pair
	if p.Site == "" {
		k.refuseUnused("pair.site is not set: this gateway is alone", "pair.by", "pair.accounting", "pair.wan_address",
			"pair.lease_time", "pair.counts")
		return
	}
	if k.Store.Kind != StoreRedis {
		k.report("pair.site", `needs store.kind = "redis": the standby has its sessions from there`)
	}
	if p.Site == k.Store.Name {
		k.report("pair.site", "is store.name, too: both gateways have the same site, and each its own name")
	}
	if p.By == ByKeepalived {
		k.refuseUnused(`pair.by is "keepalived", whose advert_int says how soon it notices`, "pair.lease_time")
	}
	if k.Datapath.Kind != "ebpf" {
		k.report("pair.site", `needs datapath.kind = "ebpf"`)
	}
	if k.PPPoE.Enabled {
		k.report("pair.site", "is not possible with pppoe.enabled: a PPPoE session cannot move to another machine")
	}
	if k.WAN.Delegation {
		k.report("pair.site", "is not possible with wan.delegation: the provider delegates its prefix to one machine")
	}
	if k.DHCP6.PDPool.On() {
		k.report("pair.site", "is not possible with dhcp6.pd_pool: only one machine knows which prefixes it delegated")
	}
	if k.Store.Roaming != RoamingOff {
		k.report("store.roaming", "is not possible with pair.site yet")
	}
	if len(k.Networks) > 0 {
		k.report("pair.site", "is not possible with [[network]] yet: set one network, [lan]")
	}
}
