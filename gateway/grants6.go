package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/gateweigh/gateweigh/gateway/bindings"
	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/dhcp6"
	"github.com/gateweigh/gateweigh/gateway/prefixpool"
	"github.com/gateweigh/gateweigh/gateway/routeradv"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// grants6 are what RADIUS servers give clients by IPv6, while their sessions last. The zero value has
// none.
//
//	Access-Accept ── grant ──▶ prefixpool.Give ──▶ session ── Revoked ──▶ prefixpool.TakeBack
//	                                  └── Retell ──▶ router advertisement to the client ◀── Retell
type grants6 struct {
	mu  sync.Mutex
	all map[bindings.Anchor]map[string]*session.Grant6 // guarded by mu; by session

	said sync.Map // attributes that the log has as not carried out
}

func (a *grants6) add(client bindings.Anchor, id string, g *session.Grant6) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = map[bindings.Anchor]map[string]*session.Grant6{}
	}
	if a.all[client] == nil {
		a.all[client] = map[string]*session.Grant6{}
	}
	a.all[client][id] = g
}

// drop removes what a session was given, and returns it; nil: nothing is there.
func (a *grants6) drop(client bindings.Anchor, id string) *session.Grant6 {
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.all[client][id]
	if delete(a.all[client], id); len(a.all[client]) == 0 {
		delete(a.all, client)
	}
	return g
}

// each calls f with what each session is given.
func (a *grants6) each(f func(bindings.Anchor, *session.Grant6)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for client, sessions := range a.all {
		for _, g := range sessions {
			f(client, g)
		}
	}
}

// told adds to what a client is told what its sessions are given: DNS servers in the gateway's place, and routes.
func (a *grants6) told(client bindings.Anchor, out *routeradv.Advertisement) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var servers []netip.Addr
	for _, g := range a.all[client] {
		for _, addr := range g.DNS {
			if !slices.Contains(servers, addr) {
				servers = append(servers, addr)
			}
		}
		for _, p := range g.Told {
			if !slices.ContainsFunc(out.Routes, func(r routeradv.Route) bool { return r.Prefix == p }) {
				out.Routes = append(out.Routes, routeradv.Route{Prefix: p, Lifetime: routerLifetime})
			}
		}
	}
	if len(servers) > 0 {
		out.DNSServers, out.DNSLifetime = servers, resolverTime
	}
}

// wish returns what DHCPv6 gives a client in place of others. Of several sessions with pools that of any counts.
func (a *grants6) wish(client bindings.Anchor, kind dhcp6.Kind) (w dhcp6.Wish) {
	a.mu.Lock()
	defer a.mu.Unlock()
	add := func(p netip.Prefix) {
		if !slices.Contains(w.Prefixes, p) {
			w.Prefixes = append(w.Prefixes, p)
		}
	}
	for _, g := range a.all[client] {
		if kind == dhcp6.Delegated {
			for _, p := range g.Delegated {
				add(p)
			}
			if g.DelegatedOf.IsValid() {
				w.Within = g.DelegatedOf
			}
			continue
		}
		for _, addr := range g.Addrs {
			add(netip.PrefixFrom(addr, addr.BitLen()))
		}
		if g.AddressOf.IsValid() {
			w.Within = g.AddressOf
		}
	}
	return w
}

// unlessRouted calls f, unless a session gives a client a network behind it. None is added before f has returned.
func (a *grants6) unlessRouted(client bindings.Anchor, network netip.Prefix, f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range a.all[client] {
		if slices.Contains(g.Routes, network) {
			return
		}
	}
	f()
}

// withAddr returns the client to which a session gives an address.
func (a *grants6) withAddr(addr netip.Addr) (client bindings.Anchor, is bool) {
	a.each(func(c bindings.Anchor, g *session.Grant6) {
		if slices.Contains(g.Addrs, addr) {
			client, is = c, true
		}
	})
	return client, is
}

// dns returns the DNS servers that a client is given; nil: none.
func (a *grants6) dns(client bindings.Anchor) []netip.Addr {
	var out routeradv.Advertisement
	a.told(client, &out)
	return out.DNSServers
}

// grant gives a client what its login says, before the session begins, and returns the function that takes it back
// where it does not begin. A client that is not there is left to Admit.
func (g *gateway) grant(addr netip.Addr, login *session.Login) (undo func(), err error) {
	if login.IPv6 == nil {
		return func() {}, nil
	}
	g.sayUnused(portalClients, g.unusedOnEthernet(login.IPv6))
	who, known := g.table.Get(addr)
	if !known {
		return func() {}, nil
	}
	if undo, err = g.giveAll(anchorOf(who), login); err != nil {
		return nil, err
	}
	g.retell(anchorOf(who))
	return undo, nil
}

// giveAll gives a client what its login has, and chooses the session's ID. It returns the function that takes it back
// where the session does not begin.
func (g *gateway) giveAll(client bindings.Anchor, login *session.Login) (undo func(), err error) {
	asked := *login.IPv6
	if err = g.check6(&asked); err == nil {
		err = g.checkAddrs(&asked)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", session.ErrUnfit, err)
	}
	login.SessionID = cmp.Or(login.SessionID, session.NewID())
	given, err := g.giveEach(client, g.endFormer6(client, login.User, &asked), &asked)
	if g.cfg.LAN.Address6.IsValid() && err == nil {
		given.Routes = asked.Routes
	}
	err = errors.Join(err, g.giveRoutes(client, login.SessionID, given))
	undo = func() { g.revoke(client, login.SessionID) }
	if err != nil {
		undo()
		return nil, fmt.Errorf("%w: %w", session.ErrUnfit, err)
	}
	login.IPv6, login.Networks = given, given.Routes
	return undo, nil
}

// giveEach gives a client what a login has but the networks behind it, attribute by attribute, and returns what it has
// then, also with an error. former are devices of the same user whose sessions had some of it.
func (g *gateway) giveEach(
	client bindings.Anchor, former map[bindings.Anchor]bool, asked *session.Grant6,
) (given *session.Grant6, err error) {
	given = &session.Grant6{Told: asked.Told, DNS: asked.DNS, InterfaceID: asked.InterfaceID}
	if given.Prefixes, err = g.give(client, asked); err != nil {
		return given, err
	}
	if err := g.giveAddressPool(client, asked.AddressPool, given); err != nil {
		return given, err
	}
	if given.Addrs, err = g.giveAddrs(client, former, asked); err != nil {
		return given, err
	}
	given.Delegated, given.DelegatedOf, err = g.toDelegate(client, former, asked)
	return given, err
}

// give gives a client the /64s of a login, and returns those that it has then, also with an error. It returns none
// where clients share a /64.
func (g *gateway) give(client bindings.Anchor, asked *session.Grant6) (given []netip.Prefix, err error) {
	if !g.cfg.LAN.ClientPrefixes.On() {
		return nil, nil
	}
	for _, prefix := range asked.Prefixes {
		pool := g.each6.pool(prefix.Addr())
		if pool == nil {
			return given, fmt.Errorf("the login has the network %s (Framed-IPv6-Prefix), which is not of "+
				"lan.client_prefixes or lan.prefix_pool", prefix)
		}
		if err := pool.Give(prefixpool.Client(client), prefix); err != nil {
			return given, fmt.Errorf("the login has a network (Framed-IPv6-Prefix) that cannot be its own: %w", err)
		}
		given = append(given, prefix)
	}
	if len(given) > 0 || asked.Pool == "" || len(g.cfg.LAN.PrefixPools) == 0 {
		return given, nil
	}
	prefix, err := g.giveOfPool(client, asked.Pool, framedPool6)
	if err != nil {
		return nil, err
	}
	return []netip.Prefix{prefix}, nil
}

// giveOfPool gives a client a /64 of a network of lan.prefix_pool that an attribute names.
func (g *gateway) giveOfPool(client bindings.Anchor, name, attribute string) (prefix netip.Prefix, err error) {
	network, known := g.each6.named[name]
	if !known {
		return prefix, fmt.Errorf("the login names the pool %.60q (%s), which lan.prefix_pool does not have", name, attribute)
	}
	prefix, ok := g.each6.pool(network.Addr()).GiveAny(prefixpool.Client(client))
	if !ok {
		return prefix, fmt.Errorf("no /64 is left of lan.prefix_pool.%s, %s", name, network)
	}
	return prefix, nil
}

// toDelegate returns the prefixes of a login that DHCPv6 delegates to the client, or the network out of which it does;
// neither: it delegates any. A prefix that a former device of the user has leased, or a client that is not logged in,
// comes once that lease has ended.
func (g *gateway) toDelegate(
	client bindings.Anchor, former map[bindings.Anchor]bool, asked *session.Grant6,
) (all []netip.Prefix, of netip.Prefix, err error) {
	if !g.cfg.DHCP6.PDPool.On() {
		return nil, of, nil
	}
	pools := g.pools6()
	for _, p := range asked.Delegated {
		within := func(pool netip.Prefix) bool { return pool.Bits() <= p.Bits() && pool.Contains(p.Addr()) }
		if !slices.ContainsFunc(pools, within) {
			return nil, of, fmt.Errorf("the login has the network %s (Delegated-IPv6-Prefix), which is not of dhcp6.pd_pool", p)
		}
		holders := g.delegated6.otherHolders(client, p)
		keeps := func(c bindings.Anchor) bool { return !former[c] && g.authenticated6(c) }
		if i := slices.IndexFunc(holders, keeps); i >= 0 {
			return nil, of, fmt.Errorf("the login has the network %s (Delegated-IPv6-Prefix), which another client has: %s", p,
				holders[i])
		}
	}
	name, named := asked.DelegatedPool, g.cfg.DHCP6.PrefixPools
	if len(asked.Delegated) > 0 || name == "" || len(named) == 0 {
		return asked.Delegated, of, nil
	}
	i := slices.IndexFunc(named, func(p config.PrefixPool) bool { return p.Name == name })
	if i < 0 {
		return nil, of, fmt.Errorf("the login names the pool %.60q (Delegated-IPv6-Prefix-Pool), which dhcp6.prefix_pool "+
			"does not have", name)
	}
	return nil, named[i].Network, nil
}

// endFormer6 ends the sessions of a user's other devices that have what the server gives the user anew, and returns
// these devices.
func (g *gateway) endFormer6(
	client bindings.Anchor, user string, asked *session.Grant6,
) (former map[bindings.Anchor]bool) {
	former = map[bindings.Anchor]bool{}
	end := func(owner bindings.Anchor, taken bool, has func(*session.Grant6) bool) bool {
		if !taken || owner == client {
			return false
		}
		former[owner] = g.endSessionsWith(owner, user, has) || former[owner]
		return former[owner]
	}
	for _, p := range append(slices.Clip(asked.Delegated), asked.Routes...) {
		for _, owner := range g.delegated6.otherHolders(client, p) {
			end(owner, true, func(of *session.Grant6) bool {
				return slices.Contains(of.Delegated, p) || slices.ContainsFunc(of.Routes, p.Overlaps)
			})
		}
	}
	for _, addr := range asked.Addrs {
		owner, taken := g.grants.withAddr(addr)
		end(owner, taken, func(of *session.Grant6) bool { return slices.Contains(of.Addrs, addr) })
	}
	for _, p := range asked.Prefixes {
		pool := g.each6.pool(p.Addr())
		if pool == nil {
			continue
		}
		owner, taken := pool.Owner(p.Addr())
		if end(bindings.Anchor(owner), taken, func(of *session.Grant6) bool { return slices.Contains(of.Prefixes, p) }) {
			pool.Leave(owner, p)
			g.bindings.Recheck()
		}
	}
	return former
}

// endSessionsWith ends the sessions of a user with a device, or by PPPoE, that have what has reports, and reports
// whether there were some.
func (g *gateway) endSessionsWith(client bindings.Anchor, user string, has func(*session.Grant6) bool) (ended bool) {
	for _, former := range g.table.Of(client.MAC, user) {
		if anchorOf(former) != client || former.IPv6 == nil || !has(former.IPv6) {
			continue
		}
		if err := g.table.Kick(former.Addr, former.ID, session.NASRequest); err != nil {
			g.log.Warn("ending the session whose IPv6 address or network the same user is given anew",
				"client", former.Key.String(), "err", err)
			return false
		}
		ended = true
	}
	return ended
}

// revoke takes back what a session was given. A second time does nothing.
func (g *gateway) revoke(client bindings.Anchor, id string) {
	given := g.grants.drop(client, id)
	if given == nil {
		return
	}
	for _, prefix := range given.Prefixes {
		if pool := g.each6.pool(prefix.Addr()); pool != nil {
			pool.TakeBack(prefixpool.Client(client), prefix)
		}
	}
	for _, network := range given.Routes { // a later session of the client may have them
		g.grants.unlessRouted(client, network, func() { g.delegated6.remove(client, network) })
	}
	if client.Session == 0 { // nobody is told of what has ended
		g.retell(client)
	}
}

// regrant takes up what a former daemon's sessions are given, and returns their clients.
func (g *gateway) regrant() (clients []routeradv.Client) {
	for s := range g.table.Each {
		if s.State == session.Authenticated && s.IPv6 != nil && (s.PPPoE.Session == 0 || g.hasSessions6()) {
			g.grants.add(anchorOf(s), s.ID, s.IPv6)
			for _, network := range routed6(s) {
				g.delegated6.add(anchorOf(s), network)
			}
			clients = append(clients, anchorOf(s))
		}
	}
	return clients
}

// retell tells a client what changed.
func (g *gateway) retell(client bindings.Anchor) {
	if g.advertiser != nil {
		g.advertiser.Retell(client)
	}
}
