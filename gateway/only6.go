package gateway

import (
	"errors"
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
// address is bound to it, it is a client from then on.
func (g *gateway) sent6(anchor bindings.Anchor, addr netip.Addr) {
	a, mac := &g.addresses6, datapath.MAC(anchor.MAC)
	a.mu.Lock()
	defer a.mu.Unlock()
	bound := a.bound[mac]
	first := slices.IndexFunc(bound, netip.Addr.IsGlobalUnicast)
	if first < 0 || !slices.Contains(bound, addr) || a.entering.macs[mac] ||
		len(a.entering.macs) >= datapath.ParallelNewcomers || len(g.table.Keys(mac)) > 0 {
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
	bound := a.of(key.MAC)
	for _, addr := range bound {
		g.extend6(key, addr)
	}
	if !slices.Contains(bound, key.Addr) { // it has gone meanwhile
		g.withdraw6(key, key.Addr)
	}
}
