package gateway

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// networks are the networks behind PPPoE clients (Framed-Route), with the client that each is behind. A client whose
// address is outside the LAN is behind itself. The zero value has none.
type networks struct {
	datapath.ClientNetworks[networkOwner]
	outside []netip.Prefix // of which clients have addresses

	mu      sync.Mutex                       // held while networks come and go
	changed func(n netip.Prefix, there bool) // guarded by mu; nil: nobody follows
}

// notifyChanges has changed called, with mu held, for each network that comes or goes from now on. It returns the
// present networks.
func (n *networks) notifyChanges(changed func(netip.Prefix, bool)) []netip.Prefix {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changed = changed
	return slices.Collect(maps.Keys(n.All()))
}

// notify calls the function of notifyChanges for each network. mu is held.
func (n *networks) notify(all []netip.Prefix, found bool) {
	for _, p := range all {
		if n.changed != nil {
			n.changed(p, found)
		}
	}
}

// networkOwner is the client that a network is behind.
type networkOwner struct {
	key   session.Key
	pppoe uint16
	user  string
}

func (o networkOwner) String() string { return fmt.Sprintf("%s of %q", o.key, o.user) }

// claim enters the networks of a session that is about to begin; it enters none where one is another
// session's.
func (n *networks) claim(key session.Key, pppoe session.PPPoESession, user string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	fresh, err := n.Add(networkOwner{key, pppoe.Session, user}, n.of(key, pppoe))
	if err != nil {
		return fmt.Errorf("the login's networks (Framed-Route): %w", err)
	}
	n.notify(fresh, true)
	return nil
}

// remove removes the networks of a session that has ended.
func (n *networks) remove(k session.Key, pppoe session.PPPoESession) {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.of(k, pppoe)
	for _, o := range n.holders(all) {
		if o.key == k && o.pppoe == pppoe.Session {
			n.notify(n.Drop(o, all), false)
		}
	}
}

// of returns the networks of a session: those behind its client, and its address if that is outside the LAN.
func (n *networks) of(k session.Key, pppoe session.PPPoESession) []netip.Prefix {
	if !slices.ContainsFunc(n.outside, func(p netip.Prefix) bool { return p.Contains(k.Addr) }) {
		return pppoe.Routes
	}
	return append([]netip.Prefix{netip.PrefixFrom(k.Addr, 32)}, pppoe.Routes...)
}

// holders returns the owners of networks, without repetition.
func (n *networks) holders(all []netip.Prefix) (owners []networkOwner) {
	for _, p := range all {
		if o, found := n.Owner(p); found && !slices.Contains(owners, o) {
			owners = append(owners, o)
		}
	}
	return owners
}

// client returns the address of the client behind which an address is.
func (n *networks) client(addr netip.Addr) (client netip.Addr, ok bool) {
	o, ok := n.Holder(addr)
	return o.key.Addr, ok
}

// client returns the client that an address is of: the address itself in the LAN, otherwise that of the
// client behind which it is.
func (g *gateway) client(addr netip.Addr) netip.Addr {
	if client, behind := g.behind.client(addr); behind {
		return client
	}
	return addr
}

// isOutside reports whether an address is one outside the LAN that a client on PPPoE may have.
func (g *gateway) isOutside(addr netip.Addr) bool {
	return slices.ContainsFunc(g.behind.outside, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// isClient4 reports whether an IPv4 address is one that a client may have.
func (g *gateway) isClient4(addr netip.Addr) bool {
	return g.cfg.LAN.Network().Contains(addr) || g.isOutside(addr)
}

// isClient6 reports whether an IPv6 address is a client's, or one of the LAN's that a client may have.
func (g *gateway) isClient6(addr netip.Addr) bool {
	if !addr.Is6() || !g.cfg.LAN.Address6.IsValid() || addr == g.cfg.LAN.Address6.Addr() {
		return false
	}
	has := func(p netip.Prefix) bool { return p.Contains(addr) }
	if slices.ContainsFunc(g.prefixes6(), has) || slices.ContainsFunc(g.pools6(), has) {
		return true
	}
	_, known := g.table.Get(addr)
	return known
}

// makeRoom ends sessions of the same user that have a login's networks: the server gives them anew. It
// fails where another user has one, and where the gateway needs one itself.
func (l *pppoeAccess) makeRoom(login session.Login) error {
	if err := routable(login.Routes, l.table.g.cfg.LAN.Network()); err != nil {
		return fmt.Errorf("%w: %w", session.ErrUnfit, err)
	}
	for _, o := range l.table.g.behind.holders(login.Routes) {
		if !session.SameUser(o.user, login.User) {
			return fmt.Errorf(
				"%w: the login has a network (Framed-Route) that is behind %s", session.ErrUnfit, o)
		}
		if err := l.table.Disconnect(o.key, o.pppoe, session.NASRequest); err != nil {
			return err
		}
	}
	return nil
}

// routable checks the networks of a login.
func routable(all []netip.Prefix, lan netip.Prefix) error {
	if len(all) == 0 {
		return nil
	}
	ownAddrs, err := stack.OwnAddresses()
	if err != nil {
		return err
	}
	for _, n := range all {
		reason := ""
		switch {
		case n.Overlaps(lan):
			reason = "overlaps the LAN, " + lan.String()
		case n.Overlaps(stack.Multicast) || n.Addr().IsLoopback() || n.Addr().As4()[0] == 0:
			reason = "has addresses that no host has"
		case slices.ContainsFunc(ownAddrs, n.Contains):
			reason = "has addresses of this machine"
		default:
			continue
		}
		err = errors.Join(err, fmt.Errorf("the login has the network %s (Framed-Route), which %s", n, reason))
	}
	return err
}
