package routes

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
)

// SetOnLink6 makes gatewayd's IPv6 routes of an interface those to prefixes, whose hosts are on the link. Routes of
// others stay.
func SetOnLink6(index int, prefixes []netip.Prefix) (err error) {
	have, err := stack.ConsistentList(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(unix.AF_INET6, &netlink.Route{LinkIndex: index, Protocol: stack.OwnProtocol},
			netlink.RT_FILTER_OIF|netlink.RT_FILTER_PROTOCOL)
	})
	if err != nil {
		return fmt.Errorf("listing IPv6 routes: %w", err)
	}
	for _, r := range have {
		if slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return r.Dst != nil && r.Dst.String() == p.String() }) {
			continue
		}
		if e := netlink.RouteDel(&r); e != nil && !errors.Is(e, unix.ESRCH) {
			err = errors.Join(err, fmt.Errorf("removing the route to %v: %w", r.Dst, e))
		}
	}
	for _, p := range prefixes {
		r := &netlink.Route{LinkIndex: index, Protocol: stack.OwnProtocol,
			Dst: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), 128)}}
		if e := netlink.RouteReplace(r); e != nil {
			err = errors.Join(err, fmt.Errorf("entering the route to %s: %w", p, e))
		}
	}
	return err
}
