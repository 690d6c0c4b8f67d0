// Package routes enters the networks behind clients into the kernel's routing table, so that what the stack sends there
// goes to the client's data path, and the stack's checks of sources find the way back. Routes stay when the daemon
// ends; the next one takes them over, and Remove removes them.
package routes

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
)

// Table keeps routes to networks behind clients. Its methods may be called at any time from several goroutines.
type Table struct {
	index     int  // of the interface
	viaClient bool // a client is the next hop; false: the interface has none
	owners    *datapath.ClientNetworks[netip.Addr]

	mu sync.Mutex // held while routes change, which changes behind too
}

// Open enters routes to the networks behind clients at an interface, and removes gatewayd's other routes there. behind
// has the networks by clients' addresses; from then on only the table may change it. via means that clients are next
// hops.
func Open(index int, via bool, behind *datapath.ClientNetworks[netip.Addr]) (*Table, error) {
	t := &Table{index: index, viaClient: via, owners: behind}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t, t.compare()
}

// Take enters networks of a client, and returns the new ones among them. It fails with datapath.ErrTaken, and enters
// none, if another client or another route of the machine has one of them.
func (t *Table) Take(client netip.Addr, networks []netip.Prefix) (fresh []netip.Prefix, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if fresh, err = t.owners.Fresh(client, networks); err != nil {
		return nil, err
	}
	for i, network := range fresh {
		if err := t.enter(network, client); err != nil {
			return nil, errors.Join(err, t.remove(client, fresh[:i]))
		}
	}
	return t.owners.Add(client, fresh)
}

// Leave removes the networks of a client other than keep, and returns them.
func (t *Table) Leave(client netip.Addr, keep []netip.Prefix) (old []netip.Prefix, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old = slices.DeleteFunc(t.owners.Of(client), func(n netip.Prefix) bool { return slices.Contains(keep, n) })
	return old, t.remove(client, t.owners.Drop(client, old))
}

// Drop removes networks of a client.
func (t *Table) Drop(client netip.Addr, networks []netip.Prefix) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.remove(client, t.owners.Drop(client, networks))
}

// remove removes routes.
func (t *Table) remove(client netip.Addr, old []netip.Prefix) (err error) {
	for _, network := range old {
		if e := netlink.RouteDel(t.route(network, client)); e != nil && !errors.Is(e, unix.ESRCH) {
			err = errors.Join(err, fmt.Errorf("removing the route to %s: %w", network, e))
		}
	}
	return err
}

// Check enters routes again that the kernel has removed: it removes all routes of an interface that goes down, if only
// for a moment. If nothing was removed Check is cheap: because all routes go together, it looks at one.
func (t *Table) Check() error {
	if t.owners.Empty() {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	network, some := t.owners.Any()
	if !some {
		return nil
	}
	found, err := netlink.RouteGet(network.Addr().AsSlice())
	if err == nil && len(found) > 0 && found[0].LinkIndex == t.index {
		return nil
	}
	return t.compare()
}

// compare reads gatewayd's routes from the kernel, and changes them where they differ from the table. mu is held.
func (t *Table) compare() error {
	have, err := list(t.index)
	if err != nil {
		return err
	}
	present, owners := map[netip.Prefix]bool{}, t.owners.All()
	for _, r := range have {
		network := prefixOf(r)
		client, wanted := owners[network]
		if wanted && r.Gw.Equal(t.route(network, client).Gw) {
			present[network] = true
		} else if e := netlink.RouteDel(&r); e != nil && !errors.Is(e, unix.ESRCH) {
			err = errors.Join(err, fmt.Errorf("removing the route to %s of a former client: %w", network, e))
		}
	}
	// First the clients outside the LAN, by which others' routes go.
	for _, own := range []bool{true, false} {
		for network, client := range owners {
			if isOwn(network, client) == own && !present[network] {
				err = errors.Join(err, t.enter(network, client))
			}
		}
	}
	return err
}

// enter adds a route unless there is one to the same network.
func (t *Table) enter(network netip.Prefix, client netip.Addr) error {
	err := netlink.RouteAdd(t.route(network, client))
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%w: the machine has a route to %s already", datapath.ErrTaken, network)
	}
	if err != nil {
		return fmt.Errorf("entering the route to %s behind %s: %w", network, client, err)
	}
	return nil
}

func (t *Table) route(network netip.Prefix, client netip.Addr) *netlink.Route {
	r := &netlink.Route{
		LinkIndex: t.index, Protocol: stack.OwnProtocol, Scope: netlink.SCOPE_LINK,
		Dst: &net.IPNet{IP: network.Addr().AsSlice(), Mask: net.CIDRMask(network.Bits(), 32)},
	}
	if t.viaClient && !isOwn(network, client) {
		r.Gw, r.Scope = client.AsSlice(), netlink.SCOPE_UNIVERSE
	}
	return r
}

// isOwn reports whether a network is its client's own address, which is outside the LAN: the client is on the link.
func isOwn(network netip.Prefix, client netip.Addr) bool {
	return network == netip.PrefixFrom(client, client.BitLen())
}

// prefixOf is a route's destination.
func prefixOf(r netlink.Route) netip.Prefix {
	if r.Dst == nil {
		return netip.Prefix{}
	}
	addr, _ := netip.AddrFromSlice(r.Dst.IP.To4())
	bits, _ := r.Dst.Mask.Size()
	return netip.PrefixFrom(addr, bits)
}

// list returns gatewayd's routes of an interface.
func list(index int) ([]netlink.Route, error) {
	all, err := stack.ConsistentList(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(unix.AF_INET, &netlink.Route{LinkIndex: index, Protocol: stack.OwnProtocol},
			netlink.RT_FILTER_OIF|netlink.RT_FILTER_PROTOCOL)
	})
	if err != nil {
		return nil, fmt.Errorf("listing the routes behind clients: %w", err)
	}
	return all, nil
}

// Remove removes all routes that gatewayd has entered at an interface. One that does not exist has none.
func Remove(name string) error {
	dev, err := net.InterfaceByName(name)
	if err != nil {
		return nil // its routes went with it
	}
	have, err := list(dev.Index)
	for _, r := range have {
		if e := netlink.RouteDel(&r); e != nil && !errors.Is(e, unix.ESRCH) {
			err = errors.Join(err, fmt.Errorf("removing the route to %s: %w", prefixOf(r), e))
		}
	}
	behind, e := OpenBehind6(dev.Index)
	err = errors.Join(err, e)
	for _, network := range behind.Has() {
		err = errors.Join(err, behind.Remove(network))
	}
	return errors.Join(err, (&OnLink6{Index: dev.Index}).Set(nil))
}
