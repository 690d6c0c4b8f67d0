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

	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
)

// OnLink6 has the routes to IPv6 prefixes whose hosts are on the link of an interface. Its methods may be called from
// several goroutines.
type OnLink6 struct {
	Index int // of the interface

	mu       sync.Mutex // held while routes change
	prefixes []netip.Prefix
}

// Set enters routes to prefixes, and removes those that gatewayd entered there for other ones. Routes to networks
// behind clients, and routes of other programs, stay.
func (t *OnLink6) Set(prefixes []netip.Prefix) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.prefixes = slices.Clone(prefixes)
	return t.enter()
}

// Check enters routes again that the kernel has dropped, as it does when the interface goes down.
func (t *OnLink6) Check() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.prefixes) == 0 {
		return nil
	}
	have, err := list6(t.Index)
	if err != nil {
		return err
	}
	for _, p := range t.prefixes {
		if !slices.ContainsFunc(have, func(r netlink.Route) bool { return len(r.Gw) == 0 && prefixOf6(r) == p }) {
			return t.enter()
		}
	}
	return nil
}

// enter makes the routes those to the prefixes. While the interface is down there are none: it is called again when it
// is up. mu is held.
func (t *OnLink6) enter() error {
	have, err := list6(t.Index)
	if err != nil {
		return err
	}
	prefixes := t.prefixes
	for _, r := range have {
		if len(r.Gw) > 0 || slices.Contains(prefixes, prefixOf6(r)) {
			continue
		}
		if e := netlink.RouteDel(&r); e != nil && !errors.Is(e, unix.ESRCH) {
			err = errors.Join(err, fmt.Errorf("removing the route to %v: %w", r.Dst, e))
		}
	}
	for _, p := range prefixes {
		if e := netlink.RouteReplace(route6(t.Index, p)); e != nil && !errors.Is(e, unix.ENETDOWN) {
			err = errors.Join(err, fmt.Errorf("entering the route to %s: %w", p, e))
		}
	}
	return err
}

func route6(index int, p netip.Prefix) *netlink.Route {
	return &netlink.Route{LinkIndex: index, Protocol: stack.OwnProtocol,
		Dst: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), 128)}}
}

// list6 returns gatewayd's IPv6 routes of an interface.
func list6(index int) ([]netlink.Route, error) {
	all, err := stack.ConsistentList(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(unix.AF_INET6, &netlink.Route{LinkIndex: index, Protocol: stack.OwnProtocol},
			netlink.RT_FILTER_OIF|netlink.RT_FILTER_PROTOCOL)
	})
	if err != nil {
		return nil, fmt.Errorf("listing IPv6 routes: %w", err)
	}
	return all, nil
}
