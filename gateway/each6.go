package gateway

import (
	"net/netip"
	"path/filepath"
	"slices"
	"sync"

	"github.com/gateweigh/gateweigh/gateway/bindings"
	"github.com/gateweigh/gateweigh/gateway/dhcp6"
	"github.com/gateweigh/gateweigh/gateway/prefixpool"
	"github.com/gateweigh/gateweigh/gateway/routeradv"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// clientPrefixes are the pools of which each client has a /64 of its own (RFC 8273), where lan.client_prefixes says so.
// Only the client itself may use addresses of it. The zero value has none.
type clientPrefixes struct {
	secret []byte

	mu    sync.Mutex
	all   []*prefixpool.Pool      // guarded by mu
	named map[string]netip.Prefix // those of all of which clients have what RADIUS gives them alone; set once
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
	g.each6.named = map[string]netip.Prefix{}
	for _, named := range g.cfg.LAN.PrefixPools {
		all = append(all, named.Network)
		g.each6.named[named.Name] = named.Network
	}
	if err := g.dp.IPv6.SetPrefixes6(g.prefixes6(), g.onLink6(all)); err != nil {
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
		g.grants.each(func(client bindings.Anchor, given *session.Grant6) {
			for _, p := range given.Prefixes {
				if err := pool.Give(prefixpool.Client(client), p); prefix.Contains(p.Addr()) && err != nil {
					g.log.Warn("a client loses a prefix that RADIUS gave it", "prefix", p, "err", err)
				}
			}
		})
		for c := range g.table.Each {
			g.keepWhole6(pool, c)
			for _, addr := range append([]netip.Addr{c.Addr}, c.FurtherAddrs...) {
				pool.Keep(prefixpool.Client(anchorOf(c)), addr)
			}
		}
		all = append(all, pool)
	}
	e.all = all
	return nil
}

// onLink6 returns which of the prefixes that clients have /64s of are on the link for the stack: none where PPPoE
// sessions have such /64s. Then the stack has the route of networks behind clients, whose packets the data path gives
// to the client, also those to devices of the LAN.
func (g *gateway) onLink6(all []netip.Prefix) []netip.Prefix {
	if g.cfg.LAN.ClientPrefixes.On() && g.hasSessions6() {
		return nil
	}
	return all
}

// prefixes returns those of the pools.
func (e *clientPrefixes) prefixes() (all []netip.Prefix) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.all {
		all = append(all, p.Prefix())
	}
	return all
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
func (e *clientPrefixes) isOf(client bindings.Anchor, addr netip.Addr) bool {
	p := e.pool(addr)
	if p == nil {
		return false
	}
	owner, known := p.Owner(addr)
	return known && bindings.Anchor(owner) == client
}

// used and unused note that a client has an address, and that it no longer has it.
func (e *clientPrefixes) used(client bindings.Anchor, addr netip.Addr) {
	if p := e.pool(addr); p != nil {
		p.Used(prefixpool.Client(client), addr)
	}
}

func (e *clientPrefixes) unused(client bindings.Anchor, addr netip.Addr) {
	if p := e.pool(addr); p != nil {
		p.Unused(prefixpool.Client(client), addr)
	}
}

// toldEach is what one client is told: its own /64s, which are not on the link (RFC 8273, section 4). While a session
// gives it some, these alone are for new connections.
func (g *gateway) toldEach(client routeradv.Client) (routeradv.Advertisement, bool) {
	if !g.concerns6(client) {
		return routeradv.Advertisement{}, false
	}
	a := g.advertisement()
	var own []routeradv.Prefix
	given := g.each6.hasGiven(client)
	for _, one := range a.Prefixes {
		pool := g.each6.pool(one.Prefix.Addr())
		if pool == nil {
			continue
		}
		one.OnLink = false
		byHash := !given && !g.each6.isNamed(pool)
		if byHash && client.Session == 0 { // a session has what the data path knows: see reserve6
			g.ownPrefix(pool, client)
		}
		for _, held := range pool.Held(prefixpool.Client(client)) {
			present := held.Given || held.Own && byHash
			if one.Prefix = held.Prefix; present {
				own = append(own, one)
			} else if held.Used {
				former := one
				former.Preferred = 0
				own = append(own, former)
			}
		}
	}
	a.Prefixes = own
	w := g.grants.wish(client, dhcp6.Address)
	a.Managed = len(w.Prefixes) > 0 || w.Within.IsValid()
	g.grants.told(client, &a)
	return a, len(own) > 0
}

// ownPrefix gives a client a /64 of a pool, if one is left.
func (g *gateway) ownPrefix(pool *prefixpool.Pool, client routeradv.Client) {
	if _, ok := pool.Of(prefixpool.Client(client)); !ok {
		g.sayFull6(pool)
	}
}

// sayFull6 has the log say that a pool has no /64 left.
func (g *gateway) sayFull6(pool *prefixpool.Pool) {
	g.noPrefix.Do(func() {
		g.log.Warn("no /64 is left for another client: enlarge "+g.cfg.KeyName("lan.client_prefixes"), "pool", pool.Prefix())
	})
}

// unnamed returns the pools of which clients have a /64 without RADIUS.
func (e *clientPrefixes) unnamed() []*prefixpool.Pool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(e.all), e.isNamed)
}

// isNamed reports whether clients have of a pool what RADIUS gives them alone.
func (e *clientPrefixes) isNamed(pool *prefixpool.Pool) bool {
	for _, network := range e.named {
		if network == pool.Prefix() {
			return true
		}
	}
	return false
}

// hasGiven reports whether a session gives a client a /64.
func (e *clientPrefixes) hasGiven(client bindings.Anchor) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.all, func(p *prefixpool.Pool) bool {
		return slices.ContainsFunc(p.Held(prefixpool.Client(client)), func(h prefixpool.Held) bool { return h.Given })
	})
}
