package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/bindings"
	"github.com/gateweigh/gateweigh/gateway/dhcp6"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// delegations6 are the IPv6 networks that DHCPv6 delegates to devices and to PPPoE sessions (dhcp6.pd_pool), with whom
// each is delegated to, and those behind clients that their logins have. A device's client has them, whichever address
// it is known by. The zero value has none.
//
//	dhcp6 ── Leased, Released ──▶ delegations6 ── Delegate, Undelegate ──▶ session table ──▶ data path
type delegations6 struct {
	mu    sync.Mutex // guards what follows
	of    map[bindings.Anchor][]netip.Prefix
	owner map[netip.Prefix]bindings.Anchor
}

// add notes a network of a client. It returns the one that had it before, if that is another.
func (d *delegations6) add(client bindings.Anchor, network netip.Prefix) (former bindings.Anchor, was bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	former, was = d.owner[network]
	d.put(client, network)
	return former, was && former != client
}

// put makes a network that of a client. mu is held.
func (d *delegations6) put(client bindings.Anchor, network netip.Prefix) {
	if d.owner == nil {
		d.of, d.owner = map[bindings.Anchor][]netip.Prefix{}, map[netip.Prefix]bindings.Anchor{}
	}
	if former, was := d.owner[network]; was && former == client {
		return
	}
	d.drop(network)
	d.owner[network] = client
	d.of[client] = append(d.of[client], network)
}

// remove notes that a client no longer has a network.
func (d *delegations6) remove(client bindings.Anchor, network netip.Prefix) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.owner[network] == client {
		d.drop(network)
	}
}

// drop forgets a network. mu is held.
func (d *delegations6) drop(network netip.Prefix) {
	client, there := d.owner[network]
	if !there {
		return
	}
	delete(d.owner, network)
	left := slices.DeleteFunc(d.of[client], func(p netip.Prefix) bool { return p == network })
	if d.of[client] = left; len(left) == 0 {
		delete(d.of, client)
	}
}

// claim notes networks of a client, or none where another client has one or a part of it: that network and client.
func (d *delegations6) claim(
	client bindings.Anchor, networks []netip.Prefix,
) (taken netip.Prefix, holder bindings.Anchor, free bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, network := range networks {
		if holders := d.others(client, network); len(holders) > 0 {
			return network, holders[0], false
		}
	}
	for _, network := range networks {
		d.put(client, network)
	}
	return taken, holder, true
}

// otherHolders returns the clients but one that have a network, or a part of it.
func (d *delegations6) otherHolders(client bindings.Anchor, network netip.Prefix) []bindings.Anchor {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.others(client, network)
}

// others is otherHolders with mu held.
func (d *delegations6) others(client bindings.Anchor, network netip.Prefix) (all []bindings.Anchor) {
	for n, holder := range d.owner {
		if holder != client && n.Overlaps(network) && !slices.Contains(all, holder) {
			all = append(all, holder)
		}
	}
	return all
}

// networks returns the networks of a client.
func (d *delegations6) networks(client bindings.Anchor) []netip.Prefix {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.of[client])
}

// isOf reports whether an address is of a network of a client.
func (d *delegations6) isOf(client bindings.Anchor, addr netip.Addr) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.of[client], func(p netip.Prefix) bool { return p.Contains(addr) })
}

// delegate6 gives a device a network, and its client if it has one yet. A PPPoE session that has ended gets none.
func (g *gateway) delegate6(client bindings.Anchor, network netip.Prefix) error {
	if former, was := g.delegated6.add(client, network); was {
		if err := g.shutOut6(former, network); err != nil {
			return err
		}
	}
	defer g.addresses6.begin(client.MAC)()
	key, known := g.table.Find(client.MAC, client.Session)
	if known {
		err := g.table.Delegate(key, network)
		if known = !errors.Is(err, session.ErrMoved); known {
			return err
		}
	}
	if client.Session == 0 {
		return nil // whoever comes next gets it
	}
	g.delegated6.remove(client, network)
	return fmt.Errorf("the PPPoE session of %s has ended", client)
}

// undelegate6 takes a network from a device or a PPPoE session, and from its client.
func (g *gateway) undelegate6(client bindings.Anchor, network netip.Prefix) error {
	g.delegated6.remove(client, network)
	return g.shutOut6(client, network)
}

// shutOut6 takes a network from the client of a device or a PPPoE session.
func (g *gateway) shutOut6(client bindings.Anchor, network netip.Prefix) error {
	defer g.addresses6.begin(client.MAC)()
	key, known := g.table.Find(client.MAC, client.Session)
	if !known {
		return nil
	}
	if err := g.table.Undelegate(key, network); !errors.Is(err, session.ErrMoved) {
		return err
	}
	return nil
}

// giveNetworks6 gives a new client the networks of its device. The turn of its MAC address is held.
func (g *gateway) giveNetworks6(key session.Key) {
	for _, network := range g.delegated6.networks(bindings.Anchor{MAC: key.MAC}) {
		err := g.table.Delegate(key, network)
		if err != nil && !errors.Is(err, session.ErrMoved) && !errors.Is(err, session.ErrClosed) {
			g.log.Error("a client cannot use the network that is delegated to it", "client", key.String(), "network", network,
				"err", err)
		}
	}
}

// takeBack6 takes networks from clients that are no longer theirs: what a former daemon delegated, and /64s of PPPoE
// sessions of which the LAN has the pool no longer.
func (g *gateway) takeBack6() {
	type delegated struct {
		key     session.Key
		network netip.Prefix
	}
	var over []delegated
	for s := range g.table.Each {
		for _, network := range s.Delegated {
			if client := anchorOf(s); !slices.Contains(g.delegated6.networks(client), network) &&
				!(client.Session != 0 && g.hasSessions6() && g.each6.isOf(client, network.Addr())) {
				over = append(over, delegated{s.Key, network})
			}
		}
	}
	for _, o := range over {
		if err := g.table.Undelegate(o.key, o.network); err != nil {
			g.log.Error("a client keeps a network that is no longer delegated to it", "client", o.key.String(),
				"network", o.network, "err", err)
		}
	}
}

// pdPools returns the pools of which clients are delegated networks.
func (g *gateway) pdPools(now time.Time) (all []dhcp6.Pool) {
	pd := g.cfg.DHCP6.PDPool
	if pd.Pool.IsValid() {
		all = []dhcp6.Pool{{Prefix: pd.Pool, Preferred: prefixPreferred, Valid: prefixValid}}
		for _, named := range g.cfg.DHCP6.PrefixPools {
			all = append(all, dhcp6.Pool{Prefix: named.Network, Preferred: prefixPreferred, Valid: prefixValid, Named: true})
		}
		return all
	}
	if !pd.Delegated {
		return nil
	}
	d := &g.prefixes
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.all {
		if p.whole == p.Prefix.Prefix {
			continue // the LAN needs all of it
		}
		pool := dhcp6.Pool{Prefix: p.whole, Preferred: max(0, min(prefixPreferred, p.PreferredUntil.Sub(now))),
			Valid: max(0, min(prefixValid, p.ValidUntil.Sub(now)))}
		if p.Deprecated(now) {
			pool.Preferred = 0
		}
		all = append(all, pool)
	}
	return all
}

// openPools6 tells the data path the pools that the configuration has. Otherwise those of a former daemon stay until
// the provider's are known.
func (g *gateway) openPools6() error {
	if g.cfg.DHCP6.PDPool.Delegated {
		return nil
	}
	return g.dp.IPv6.SetPools6(g.routed6())
}

// routed6 returns the prefixes of which clients have whole networks: the pools, and those of which PPPoE sessions have
// /64s.
func (g *gateway) routed6() []netip.Prefix {
	all := g.pools6()
	if g.hasSessions6() {
		all = append(all, g.each6.prefixes()...)
	}
	return all
}

// pools6 returns the prefixes of the pools.
func (g *gateway) pools6() (all []netip.Prefix) {
	for _, pool := range g.pdPools(time.Now()) {
		all = append(all, pool.Prefix)
	}
	return all
}
