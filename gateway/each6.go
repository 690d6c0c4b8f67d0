package gateway

import (
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/routes"
	"github.com/gateweigh/gateweigh/gateway/prefixpool"
	"github.com/gateweigh/gateweigh/gateway/routeradv"
)

// clientPrefixes are the pools of which each client has a /64 of its own (RFC 8273), where lan.client_prefixes says so.
// Only the client itself may use addresses of it. The zero value has none.
type clientPrefixes struct {
	secret []byte

	mu  sync.Mutex
	all []*prefixpool.Pool // guarded by mu
}

// eachSecret is the length of the secret that is kept in state_dir, bytes.
const eachSecret = 32

// openEach6 makes the pool that the configuration names, whose addresses are on the LAN.
func (g *gateway) openEach6() (err error) {
	each := g.cfg.LAN.ClientPrefixes
	if !each.On() {
		return nil
	}
	if g.each6.secret, err = keptKey(filepath.Join(g.cfg.StateDir, "prefixes6.key"), eachSecret); err != nil {
		return err
	}
	if each.Delegated {
		return nil
	}
	all := []netip.Prefix{each.Pool}
	dev, err := net.InterfaceByName(g.cfg.LAN.Interface)
	if err != nil {
		return err
	}
	if err := routes.SetOnLink6(dev.Index, all); err != nil {
		return err
	}
	if err := g.dp.IPv6.SetPrefixes6(g.prefixes6()); err != nil {
		return err
	}
	return g.setPools(all)
}

// setPools makes the pools those of prefixes. Pools that were there stay, and clients with addresses of a new one keep
// their /64s.
func (g *gateway) setPools(prefixes []netip.Prefix) error {
	e := &g.each6
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []*prefixpool.Pool
	for _, prefix := range prefixes {
		there := slices.IndexFunc(e.all, func(p *prefixpool.Pool) bool { return p.Prefix() == prefix })
		if there >= 0 {
			all = append(all, e.all[there])
			continue
		}
		pool, err := prefixpool.New(prefix, e.secret, maxEach)
		if err != nil {
			return err
		}
		for c := range g.table.Each {
			for _, addr := range c.FurtherAddrs {
				pool.Keep(c.MAC, addr)
			}
		}
		all = append(all, pool)
	}
	e.all = all
	return nil
}

// maxEach bounds the clients with a /64 of each pool; those without addresses make room for others.
const maxEach = 1 << 17

// pool returns the pool of an address; nil: it is of none.
func (e *clientPrefixes) pool(addr netip.Addr) *prefixpool.Pool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.all {
		if p.Prefix().Contains(addr) {
			return p
		}
	}
	return nil
}

// isOf reports whether an address is of a client's own /64.
func (e *clientPrefixes) isOf(mac datapath.MAC, addr netip.Addr) bool {
	p := e.pool(addr)
	if p == nil {
		return false
	}
	owner, known := p.Owner(addr)
	return known && datapath.MAC(owner) == mac
}

// used and unused note that a client has an address, and that it no longer has it.
func (e *clientPrefixes) used(mac datapath.MAC, addr netip.Addr) {
	if p := e.pool(addr); p != nil {
		p.Used(prefixpool.MAC(mac), addr)
	}
}

func (e *clientPrefixes) unused(mac datapath.MAC, addr netip.Addr) {
	if p := e.pool(addr); p != nil {
		p.Unused(prefixpool.MAC(mac), addr)
	}
}

// toldEach is what one client is told: its own /64s, which are not on the link (RFC 8273, section 4).
func (g *gateway) toldEach(mac routeradv.MAC) (routeradv.Advertisement, bool) {
	a := g.advertisement()
	var own []routeradv.Prefix
	for _, one := range a.Prefixes {
		pool := g.each6.pool(one.Prefix.Addr())
		if pool == nil {
			continue
		}
		prefix, ok := pool.Of(mac)
		if !ok {
			g.noPrefix.Do(func() {
				g.log.Warn("no /64 is left for another client: enlarge lan.client_prefixes", "pool", pool.Prefix())
			})
			continue
		}
		one.Prefix, one.OnLink = prefix, false
		own = append(own, one)
	}
	a.Prefixes = own
	return a, len(own) > 0
}
