package gateway

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/gateweigh/gateweigh/gateway/bindings"
	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/prefixpool"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// The client of a PPPoE session is told a /64 of its own in the session, as a device of the LAN is on the LAN:
//
//	login ──▶ grantSession6: its /64s are in the session's first entry, so the data path lets all their addresses in
//	IPV6CP open ──▶ opened6 ──▶ routeradv: advertisements in the session
//	DHCPv6 (IA_PD) ──▶ delegate6 ──▶ session table
//	addresses  ◀──▶ bindings, by MAC address and session ──▶ addresses6 ──▶ session table: one session, one bill
//	session's end ──▶ ended6 ──▶ its addresses, its /64s and what is delegated to it are free

// hasSessions6 reports whether clients of PPPoE sessions have IPv6.
func (g *gateway) hasSessions6() bool { return g.cfg.PPPoE.Enabled && g.cfg.PPPoE.IPv6 }

// interfaceID returns the gateway's interface identifier in PPPoE sessions, that of the link-local address from which
// it advertises itself; zero: clients have no IPv6.
func (g *gateway) interfaceID() (id [8]byte, err error) {
	if !g.hasSessions6() {
		return id, nil
	}
	local, err := linkLocal(g.cfg.LAN.Interface)
	if err != nil {
		return id, err
	}
	b := local.As16()
	return [8]byte(b[8:]), nil
}

// grantSession6 gives a session that is about to begin its /64s: those of its login (RADIUS), or else one of each
// network that clients have /64s of. The data path lets in all of each. It returns the function that takes them back
// where the session does not begin.
func (g *gateway) grantSession6(client bindings.Anchor, login *session.Login) (undo func(), err error) {
	g.sayUnused(pppoeClients, g.unusedInSessions(login.IPv6))
	if !g.hasSessions6() {
		login.IPv6 = nil
		return func() {}, nil
	}
	if login.IPv6 != nil {
		own, err := g.interfaceID()
		if err != nil {
			return nil, err
		}
		if login.IPv6.InterfaceID != 0 && interfaceIDOf(login.IPv6) == own {
			return nil, fmt.Errorf("%w: the login has the interface identifier %x (Framed-Interface-Id), which is the "+
				"gateway's own", session.ErrUnfit, own)
		}
	}
	if err := g.endOldest6(client, login.User); err != nil {
		return nil, err
	}
	if login.IPv6 != nil {
		if _, err := g.giveAll(client, login); err != nil {
			return nil, err
		}
	}
	if login.IPv6 != nil && len(login.IPv6.Prefixes) > 0 {
		login.Networks = append(slices.Clip(login.Networks), login.IPv6.Prefixes...)
	} else {
		login.Networks = append(slices.Clip(login.Networks), g.reserve6(client)...)
	}
	return func() {
		g.revoke(client, login.SessionID)
		g.each6.forget(client)
	}, nil
}

// endOldest6 ends the oldest sessions of a user and MAC address that has as many as it may. They would end anyway once
// the new one has begun; then they would still have the /64 that the device is to have again.
func (g *gateway) endOldest6(client bindings.Anchor, user string) error {
	former := slices.DeleteFunc(g.table.Of(client.MAC, user), func(s session.Session) bool { return s.PPPoE.Session == 0 })
	for ; len(former) >= g.cfg.PPPoE.PerMAC; former = former[1:] {
		if err := g.table.Disconnect(former[0].Key, former[0].PPPoE.Session, session.LostCarrier); err != nil {
			return err
		}
	}
	return nil
}

// interfaceIDOf is the interface identifier that a login gives the client; zero: none.
func interfaceIDOf(given *session.Grant6) (id [8]byte) {
	if given != nil {
		binary.BigEndian.PutUint64(id[:], given.InterfaceID)
	}
	return id
}

// reserve6 gives a session a /64 of each network of which clients have one without RADIUS, and returns those that it
// has. Nobody else can have them until its end.
func (g *gateway) reserve6(client bindings.Anchor) (all []netip.Prefix) {
	for _, pool := range g.each6.unnamed() {
		prefix, ok := pool.GiveAny(prefixpool.Client(client))
		if !ok {
			g.sayFull6(pool)
			continue
		}
		all = append(all, prefix)
	}
	return all
}

// keepWhole6 gives a former daemon's session the /64s of a new pool that it has.
func (g *gateway) keepWhole6(pool *prefixpool.Pool, s session.Session) {
	if s.PPPoE.Session == 0 || !g.hasSessions6() {
		return
	}
	for _, p := range s.Delegated {
		if !pool.Prefix().Contains(p.Addr()) {
			continue
		}
		if err := pool.Give(prefixpool.Client(anchorOf(s)), p); err != nil {
			g.log.Warn("a PPPoE client loses its IPv6 prefix", "client", s.Key.String(), "prefix", p, "err", err)
		}
	}
}

// equipAtOnce is how many sessions get /64s at once: their writes to the disk are one.
const equipAtOnce = 64

// equip6 gives sessions a /64 of each present network that they have none of, because the network is new. Those to
// which RADIUS gives one have that alone.
func (g *gateway) equip6() {
	if !g.hasSessions6() {
		return
	}
	type lacking struct {
		key    session.Key
		prefix netip.Prefix
	}
	var without []lacking
	for s := range g.table.Each {
		if s.PPPoE.Session == 0 || s.IPv6 != nil && len(s.IPv6.Prefixes) > 0 {
			continue
		}
		for _, p := range g.reserve6(anchorOf(s)) {
			if !slices.Contains(s.Delegated, p) {
				without = append(without, lacking{s.Key, p})
			}
		}
	}
	places := make(chan struct{}, equipAtOnce)
	var all sync.WaitGroup
	for _, one := range without {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			defer g.addresses6.begin(one.key.MAC)()
			err := g.table.Delegate(one.key, one.prefix)
			if err != nil && !errors.Is(err, session.ErrMoved) && !errors.Is(err, session.ErrClosed) {
				g.log.Error("a PPPoE client cannot use its IPv6 prefix", "client", one.key.String(), "prefix", one.prefix,
					"err", err)
			}
		})
	}
	all.Wait()
}

// isWhole6 reports whether a network is a /64 of a session, and not delegated to it.
func (g *gateway) isWhole6(p netip.Prefix) bool {
	if g.cfg.LAN.ClientPrefixes.Delegated {
		return !g.cfg.DHCP6.PDPool.Pool.Contains(p.Addr())
	}
	return g.cfg.LAN.ClientPrefixes.Pool.Contains(p.Addr()) ||
		slices.ContainsFunc(g.cfg.LAN.PrefixPools, func(n config.PrefixPool) bool { return n.Network.Contains(p.Addr()) })
}

// opened6 is told of a session in which IPv6 is agreed on.
func (g *gateway) opened6(mac [6]byte, id uint16) {
	if g.advertiser != nil {
		g.advertiser.Retell(bindings.Anchor{MAC: mac, Session: id})
	}
}

// ended6 is told of a session that has ended. It calls nothing that waits for the table.
func (g *gateway) ended6(key session.Key, id uint16) {
	if !g.hasSessions6() || g.bindings == nil {
		return
	}
	anchor := bindings.Anchor{MAC: key.MAC, Session: id}
	g.advertiser.Forget(anchor)
	g.bindings.End(anchor)
	if g.dhcp6 != nil {
		g.dhcp6.End(anchor)
	}
	g.each6.forget(anchor)
}

// resume6 tells the clients of a former daemon's sessions that the router is still there: which of them have agreed on
// IPv6 is not known.
func (g *gateway) resume6() {
	if !g.hasSessions6() {
		return
	}
	for c := range g.table.Each {
		if c.PPPoE.Session != 0 {
			g.opened6(c.MAC, c.PPPoE.Session)
		}
	}
}

// concerns6 reports whether frames of an anchor concern the gateway: those of the LAN, and of PPPoE sessions with IPv6
// that are logged in.
func (g *gateway) concerns6(a bindings.Anchor) bool {
	if a.Session == 0 {
		return true
	}
	_, known := g.table.Find(a.MAC, a.Session)
	return known && g.hasSessions6()
}

// forget frees a client's /64s, because its session has ended.
func (e *clientPrefixes) forget(a bindings.Anchor) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.all {
		p.Forget(prefixpool.Client(a))
	}
}
