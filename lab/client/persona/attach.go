package persona

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"

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
	if err := netlink.QdiscAdd(qdisc); err != nil && !errors.Is(err, syscall.EEXIST) {
		return fmt.Errorf("adding clsact: %w", err)
	}
	return netlink.FilterReplace(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: parent, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 1},
		Fd:          prog.FD(), Name: "persona", DirectAction: true,
	})
}

// routes are what makes the LAN's addresses the host's own, and leads away from it.
type routes struct {
	ifi    *net.Interface
	window int

	mu     sync.Mutex // guards what follows
	router netip.Addr
	added  []*netlink.Route
}

// open makes all of the LAN local (AnyIP): sockets may bind to any address of it.
func (r *routes) open(ifi *net.Interface, lan netip.Prefix, window int) error {
	r.ifi, r.window = ifi, window
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.add(&netlink.Route{
		LinkIndex: lo.Attrs().Index, Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST, Dst: ipNet(lan.Masked()),
	})
}

// set adds the way out. The router's own address lies among those that are local,
// so it gets an entry of its own in the same table, which is asked first.
func (r *routes) set(router netip.Addr) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case router == r.router:
		return nil
	case r.router.IsValid():
		return fmt.Errorf("a lease names the router %s, an earlier one %s: clients of one host share their router", router, r.router)
	}
	err := r.add(&netlink.Route{
		LinkIndex: r.ifi.Index, Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_UNICAST, Scope: unix.RT_SCOPE_LINK,
		Dst: ipNet(netip.PrefixFrom(router, router.BitLen())),
	})
	if err == nil {
		err = r.add(&netlink.Route{LinkIndex: r.ifi.Index, Gw: router.AsSlice(), Flags: int(netlink.FLAG_ONLINK), InitCwnd: r.window})
	}
	if err == nil {
		r.router = router
	}
	return err
}

// add adds a route, or replaces it. The caller holds mu.
func (r *routes) add(route *netlink.Route) error {
	if err := netlink.RouteReplace(route); err != nil {
		return fmt.Errorf("adding the route %v: %w", route, err)
	}
	r.added = append(r.added, route)
	return nil
}

func (r *routes) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, route := range r.added {
		if err := netlink.RouteDel(route); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("removing the route %v: %w", route, err))
		}
	}
	r.added, r.router = nil, netip.Addr{}
	return errors.Join(errs...)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
