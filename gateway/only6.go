package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/gateweigh/gateweigh/gateway/bindings"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// newcomers6 are devices without IPv4 that are about to be clients. As many as a data path reports at once write to the
// disk together; others send again.
type newcomers6 struct {
	together sync.WaitGroup
	macs     map[datapath.MAC]bool // guarded by the mu of addresses6
	refused  countedWarning
}

// sent6 is told that a device sends from an address, to others than itself. If it has no client yet, and a global
// address is bound to it or a network delegated to it, it is a client from then on.
func (g *gateway) sent6(anchor bindings.Anchor, addr netip.Addr) {
	if anchor.Session != 0 { // its client is there already
		return
	}
	a, mac := &g.addresses6, datapath.MAC(anchor.MAC)
	a.mu.Lock()
	defer a.mu.Unlock()
	bound := a.bound[anchor]
	if own, has := g.ofNetwork6(mac, addr); has {
		bound = append(slices.Clone(bound), own)
	}
	first := slices.IndexFunc(bound, netip.Addr.IsGlobalUnicast)
	if first < 0 || !slices.Contains(bound, addr) || a.entering.macs[mac] ||
		len(a.entering.macs) >= datapath.ParallelNewcomers {
		return
	}
	if _, known := g.table.Find(mac, 0); known {
		return
	}
	if !addr.IsLinkLocalUnicast() {
		first = slices.Index(bound, addr)
	}
	if a.entering.macs == nil {
		a.entering.macs = map[datapath.MAC]bool{}
	}
	a.entering.macs[mac] = true
	key := session.Key{MAC: mac, Addr: bound[first]}
	a.entering.together.Go(func() { g.enter6(key) })
}

// ofNetwork6 returns an address of the networks that are delegated to a device, which has it without being asked for
// it: the one that it sends from, or else the first host's. A device that asks who the gateway is does so from its
// link-local address, and may have no other one at its own interface (RFC 9663).
func (g *gateway) ofNetwork6(mac datapath.MAC, addr netip.Addr) (own netip.Addr, has bool) {
	all := g.delegated6.networks(bindings.Anchor{MAC: mac})
	switch {
	case len(all) == 0:
		return netip.Addr{}, false
	case slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Contains(addr) }):
		return addr, true
	}
	return all[0].Addr().Next(), true
}

// enter6 adds a client without IPv4, with the addresses that are bound to it.
func (g *gateway) enter6(key session.Key) {
	a := &g.addresses6
	err := g.table.Enter(key)
	if err != nil && !errors.Is(err, session.ErrAddresses) && !errors.Is(err, session.ErrClosed) {
		a.entering.refused.warn(
			g.log, "a client without IPv4 cannot be taken up, and cannot log in", "client", key.String(), "err", err)
	}
	defer a.begin(key.MAC)()
	a.mu.Lock()
	delete(a.entering.macs, key.MAC)
	a.mu.Unlock()
	if err != nil {
		return
	}
	client := bindings.Anchor{MAC: key.MAC}
	bound := a.of(client)
	g.extend6(key, bound...)
	g.giveNetworks6(key)
	if !slices.Contains(bound, key.Addr) && !g.delegated6.isOf(client, key.Addr) { // it has gone meanwhile
		g.withdraw6(key, key.Addr)
	}
	g.seen(key.MAC)
}

// claim6 gives a client that an operator logs in an IPv6 address, as if the device had just sent a packet from it: it
// has the address as long as it answers for it.
func (g *gateway) claim6(key session.Key) error {
	if !g.cfg.LAN.Address6.IsValid() {
		return fmt.Errorf("%w: %s: clients have no IPv6 without lan.address6", datapath.ErrForeign, key.Addr)
	}
	anchor := bindings.Anchor{MAC: key.MAC}
	if !g.mayUse6(anchor, key.Addr) {
		return fmt.Errorf("%w: %s is of none of the client's prefixes", datapath.ErrForeign, key.Addr)
	}
	g.bindings.Used(anchor, key.Addr)
	switch owner, bound := g.bindings.Owner(key.Addr); {
	case !bound:
		return fmt.Errorf("%s: %w", key.Addr, bindings.ErrFull)
	case owner != anchor:
		return fmt.Errorf("%s: %w: %s", key.Addr, session.ErrTaken, owner)
	}
	g.bound6(anchor, key.Addr) // now: the bindings tell that later
	if _, known := g.table.Find(anchor.MAC, anchor.Session); !known {
		g.enter6(key)
	}
	if s, known := g.table.Get(key.Addr); !known || s.MAC != key.MAC {
		return fmt.Errorf("%s cannot have %s: the log says why", anchor, key.Addr)
	}
	return nil
}
