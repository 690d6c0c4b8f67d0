package routes

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// NextHop6 is the next hop of all IPv6 networks behind clients. No host has it: the data path gives packets the MAC
// address of the client behind which their destination is. So one route serves a prefix of which many clients have
// networks, and the stack's routing does not change with their leases.
var NextHop6 = netip.MustParseAddr("fe80::6761:7465:7761:7964")

// NextHopMAC6 is what the stack sends to NextHop6, before the data path has changed it.
var NextHopMAC6 = datapath.MAC{0x02, 0x67, 0x77, 0x64, 0x36, 0x36}

// Behind6 keeps the routes to IPv6 networks behind the clients of an interface. Its methods may be called at any time
// from several goroutines.
type Behind6 struct {
	index int

	mu    sync.Mutex // held while routes change
	there map[netip.Prefix]bool
}

// OpenBehind6 takes over the routes of a former daemon.
func OpenBehind6(index int) (*Behind6, error) {
	t := &Behind6{index: index, there: map[netip.Prefix]bool{}}
	have, err := list6(index)
	for _, r := range have {
		if len(r.Gw) > 0 {
			t.there[prefixOf6(r)] = true
		}
	}
	return t, err
}

// Has lists the routes.
func (t *Behind6) Has() []netip.Prefix {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.there))
}

// Add enters the route to a network. It fails with datapath.ErrTaken where the machine has another one.
func (t *Behind6) Add(network netip.Prefix) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.there[network] {
		return nil
	}
	return t.add(network)
}

// Remove removes the route to a network. One that is not there is no error.
func (t *Behind6) Remove(network netip.Prefix) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.there[network] {
		return nil
	}
	if err := netlink.RouteDel(t.route(network)); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("removing the route to %s: %w", network, err)
	}
	delete(t.there, network)
	return nil
}

func (t *Behind6) route(network netip.Prefix) *netlink.Route {
	r := route6(t.index, network)
	r.Gw = NextHop6.AsSlice()
	return r
}

// add enters a route. mu is held.
func (t *Behind6) add(network netip.Prefix) error {
	err := netlink.RouteAdd(t.route(network))
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%w: the machine has a route to %s already", datapath.ErrTaken, network)
	}
	if err != nil {
		return fmt.Errorf("entering the route to %s: %w", network, err)
	}
	t.there[network] = true
	return nil
}

// Check enters routes again that the kernel has removed: it removes all routes of an interface that goes down, if only
// for a moment.
func (t *Behind6) Check() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.there) == 0 {
		return nil
	}
	have, err := list6(t.index)
	if err != nil {
		return err
	}
	kept := map[netip.Prefix]bool{}
	for _, r := range have {
		kept[prefixOf6(r)] = len(r.Gw) > 0
	}
	for n := range t.there {
		if kept[n] {
			continue
		}
		if e := t.add(n); e != nil && !errors.Is(e, unix.ENETDOWN) { // it is entered when the interface is up
			err = errors.Join(err, e)
		}
	}
	return err
}

// prefixOf6 is a route's destination.
func prefixOf6(r netlink.Route) netip.Prefix {
	if r.Dst == nil {
		return netip.Prefix{}
	}
	addr, _ := netip.AddrFromSlice(r.Dst.IP.To16())
	bits, _ := r.Dst.Mask.Size()
	return netip.PrefixFrom(addr, bits)
}
