package persona

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// attach puts the programs at the interface: by links of Linux 6.6, which end with
// the process, or as filters of clsact, which end with the interface.
func (l *Link) attach() error {
	for _, place := range []struct {
		prog   *ebpf.Program
		attach ebpf.AttachType
		parent uint32
	}{
		{l.objs.FromLan, ebpf.AttachTCXIngress, netlink.HANDLE_MIN_INGRESS},
		{l.objs.ToLan, ebpf.AttachTCXEgress, netlink.HANDLE_MIN_EGRESS},
	} {
		at, err := link.AttachTCX(link.TCXOptions{Program: place.prog, Interface: l.ifi.Index, Attach: place.attach})
		if errors.Is(err, ebpf.ErrNotSupported) {
			err = clsact(l.ifi.Index, place.prog, place.parent)
		} else if err == nil {
			l.places = append(l.places, at)
		}
		if err != nil {
			return fmt.Errorf("attaching a program: %w", err)
		}
	}
	return nil
}

func clsact(index int, prog *ebpf.Program, parent uint32) error {
	qdisc := &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT},
		QdiscType:  "clsact",
	}
	if err := netlink.QdiscAdd(qdisc); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("adding clsact: %w", err)
	}
	return netlink.FilterReplace(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: parent, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 1},
		Fd:          prog.FD(), Name: "persona", DirectAction: true,
	})
}

// addLAN makes all of the LAN local (AnyIP): sockets may bind to any address of it.
func (l *Link) addLAN() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.addRoute(&netlink.Route{
		LinkIndex: lo.Attrs().Index, Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST,
		Dst: IPNet(l.cfg.LAN.Masked()),
	})
}

// SetRouter sends what clients send to the outside to router. Again with the same
// address it does nothing; all clients of a link have one router. The router's own
// address lies among those that are local, so it gets an entry of its own in the same
// table, which is asked first.
func (l *Link) SetRouter(router netip.Addr) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case router == l.router:
		return nil
	case l.router.IsValid():
		return fmt.Errorf("a lease names the router %s, an earlier one %s: clients of one host share their router", router, l.router)
	}
	err := l.addRoute(&netlink.Route{
		LinkIndex: l.ifi.Index, Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_UNICAST, Scope: unix.RT_SCOPE_LINK,
		Dst: IPNet(netip.PrefixFrom(router, router.BitLen())),
	})
	if err == nil {
		out := &netlink.Route{LinkIndex: l.ifi.Index, Gw: router.AsSlice(), Flags: int(netlink.FLAG_ONLINK), InitCwnd: l.cfg.Window}
		err = l.addRoute(out)
	}
	if err == nil {
		l.router = router
	}
	return err
}

// addRoute adds a route, or replaces it. The caller holds mu.
func (l *Link) addRoute(route *netlink.Route) error {
	if err := netlink.RouteReplace(route); err != nil {
		return fmt.Errorf("adding the route %v: %w", route, err)
	}
	l.routes = append(l.routes, route)
	return nil
}

// Close takes programs and routes away. Twice is harmless.
func (l *Link) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, route := range l.routes {
		if err := netlink.RouteDel(route); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("removing the route %v: %w", route, err))
		}
	}
	for _, p := range l.places {
		errs = append(errs, p.Close())
	}
	l.routes, l.router, l.places = nil, netip.Addr{}, nil
	l.objs.Close() // closing twice is what it reports
	return errors.Join(errs...)
}

// IPNet is p as netlink takes it.
func IPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
