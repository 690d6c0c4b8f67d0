package gateway

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// networks are those behind clients on lines (Framed-Route), by whom they are behind. The zero value has
// none.
type networks struct {
	mu      sync.Mutex
	of      map[netip.Prefix]owned           // guarded by mu
	changed func(n netip.Prefix, there bool) // guarded by mu; nil: nobody follows
}

// follow has changed called with mu held for each network that comes or goes, and returns those there are.
func (n *networks) follow(changed func(netip.Prefix, bool)) []netip.Prefix {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changed = changed
	return slices.Collect(maps.Keys(n.of))
}

// owned is whose a network is.
type owned struct {
	key  session.Key
	line uint16
	user string
}

// claim enters the networks of a session that is about to begin; it enters none where one is another
// session's.
func (n *networks) claim(key session.Key, line session.Line, user string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	own := owned{key, line.Session, user}
	for _, p := range line.Routes {
		if o, there := n.of[p]; there && o != own {
			return fmt.Errorf("the network %s (Framed-Route) is behind %s of %q", p, o.key, o.user)
		}
	}
	for _, p := range line.Routes {
		if n.of == nil {
			n.of = map[netip.Prefix]owned{}
		}
		n.of[p] = own
		if n.changed != nil {
			n.changed(p, true)
		}
	}
	return nil
}

// remove removes the networks of a session that has ended.
func (n *networks) remove(k session.Key, line session.Line) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range line.Routes {
		if o := n.of[p]; o.key == k && o.line == line.Session {
			delete(n.of, p)
			if n.changed != nil {
				n.changed(p, false)
			}
		}
	}
}

// owners returns whose networks are, without repetition.
func (n *networks) owners(all []netip.Prefix) (owners []owned) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range all {
		if o, there := n.of[p]; there && !slices.Contains(owners, o) {
			owners = append(owners, o)
		}
	}
	return owners
}

// client returns the address of the client behind which an address is.
func (n *networks) client(addr netip.Addr) (client netip.Addr, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.of) == 0 || !addr.Is4() {
		return client, false
	}
	for bits := 32; bits > 0; bits-- {
		p, err := addr.Prefix(bits)
		if err != nil {
			return client, false
		}
		if o, there := n.of[p]; there {
			return o.key.Addr, true
		}
	}
	return client, false
}

// client returns the client that an address is of: the address itself in the LAN, otherwise that of the
// client behind which it is.
func (g *gateway) client(addr netip.Addr) netip.Addr {
	if client, behind := g.behind.client(addr); behind {
		return client
	}
	return addr
}

// makeRoom ends sessions of the same user that have a login's networks: the server gives them anew. It
// fails where another user has one, and where the gateway needs one itself.
func (l *lines) makeRoom(login session.Login) error {
	if err := routable(login.Routes, l.table.g.cfg.LAN.Network()); err != nil {
		return fmt.Errorf("%w: %w", session.ErrUnfit, err)
	}
	for _, o := range l.table.g.behind.owners(login.Routes) {
		if !session.SameUser(o.user, login.User) {
			return fmt.Errorf(
				"%w: the login has a network (Framed-Route) that is behind %s of %q", session.ErrUnfit, o.key, o.user)
		}
		if err := l.table.Disconnect(o.key, o.line, session.NASRequest); err != nil {
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
	own, err := stack.Own()
	if err != nil {
		return err
	}
	for _, n := range all {
		why := ""
		switch {
		case n.Overlaps(lan):
			why = "overlaps the LAN, " + lan.String()
		case n.Overlaps(stack.Multicast) || n.Addr().IsLoopback() || n.Addr().As4()[0] == 0:
			why = "has addresses that no host has"
		case slices.ContainsFunc(own, n.Contains):
			why = "has addresses of this machine"
		default:
			continue
		}
		err = errors.Join(err, fmt.Errorf("the login has the network %s (Framed-Route), which %s", n, why))
	}
	return err
}
