// Package persona makes one host's interface look like many clients (personas). Each persona has its own hardware
// address, leases an address by DHCP, and answers ARP requests for it. What a socket of the host sends from that
// address leaves with the persona's hardware address. All personas share one namespace, one interface and the kernel's
// TCP.
//
//	socket bound to 10.1.7.9 ── to_lan: source MAC of 10.1.7.9 ──► LAN
//	socket bound to 10.1.7.9 ◄─ from_lan: MAC and IP both of one client ◄── LAN
//
// The whole LAN is local to the host (AnyIP), so sockets can bind to any of its addresses. Two eBPF programs at the
// interface let through only packets of addresses that were leased. Clients of one host cannot reach each other,
// because their packets would not leave the host.
package persona

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// MAC is a hardware address.
type MAC [6]byte

// String is the usual notation, "02:67:77:61:00:01".
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// Config describes the host's part of a LAN.
type Config struct {
	Interface string       // towards the LAN
	LAN       netip.Prefix // all clients' addresses lie in it
	// LAN6 is the clients' IPv6 network, and Gateway6 the router in it; invalid: the clients have no IPv6. It is a /64, or
	// one of which each PPPoE session has a /64, and which has no router in it. Sockets can bind to its addresses where
	// net.ipv6.ip_nonlocal_bind is 1.
	LAN6     netip.Prefix
	Gateway6 netip.Addr
	Clients  int // the most that have an address at once
	// Window is the initial congestion window of the clients' route, in segments; zero: the kernel's.
	Window int
	// MTU is the MTU of the clients' route, in bytes of an IP packet; zero: the interface's.
	MTU int
	// Singly is true when the kernel must hand packets to the interface one by one, without segmentation offload.
	Singly bool
}

// Link is an interface that personas share. Its methods may be called from many
// goroutines.
type Link struct {
	cfg  Config
	ifi  *net.Interface
	objs programsObjects

	mu       sync.Mutex // guards what follows
	attached []link.Link
	routes   []*netlink.Route
	router   netip.Addr // valid once SetRouter has set the route to it
	router6  netip.Addr // the same of SetRouter6
}

// Open prepares the interface for clients: it attaches the programs and makes the LAN's addresses local. It acts in the
// process's network namespace. Close undoes it, and so does the end of the namespace. On error nothing is left.
func Open(cfg Config) (_ *Link, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("preparing %s for clients: %w", cfg.Interface, err)
		}
	}()
	l := &Link{cfg: cfg}
	if !cfg.LAN.Addr().Is4() {
		return nil, fmt.Errorf("the network %s is not IPv4", cfg.LAN)
	}
	if l.ifi, err = net.InterfaceByName(cfg.Interface); err != nil {
		return nil, err
	}
	// The programs come before the addresses, because without them the kernel would answer ARP requests for all of the
	// LAN.
	for _, step := range []func() error{l.load, l.attach, l.addLAN, l.addLAN6, l.disableAggregation} {
		if err := step(); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return l, nil
}

// load loads the programs into the kernel, with a table that has room for all clients.
func (l *Link) load() error {
	spec, err := loadPrograms()
	if err != nil {
		return err
	}
	spec.Maps["personas"].MaxEntries = uint32(max(1, l.cfg.Clients))
	base, mask := l.cfg.LAN.Masked().Addr().As4(), net.CIDRMask(l.cfg.LAN.Bits(), 32)
	err = errors.Join(
		spec.Variables["lan_base"].Set(binary.NativeEndian.Uint32(base[:])),
		spec.Variables["lan_mask"].Set(binary.NativeEndian.Uint32(mask)),
	)
	addrs, _ := l.ifi.Addrs() // none: the host itself has no address in the LAN
	for _, a := range addrs {
		if p, bad := netip.ParsePrefix(a.String()); bad == nil && l.cfg.LAN.Contains(p.Addr()) && err == nil {
			err = spec.Variables["host_addr"].Set(mapKey(p.Addr()))
		}
	}
	if err == nil {
		err = l.load6(spec)
	}
	if err == nil {
		err = spec.LoadAndAssign(&l.objs, nil)
	}
	if err != nil {
		return fmt.Errorf("loading the programs: %w", err)
	}
	return nil
}

// mapKey returns an address as the key of the programs' table, in network byte order.
func mapKey(a netip.Addr) uint32 {
	b := a.As4()
	return binary.NativeEndian.Uint32(b[:])
}

// Put makes ip the address of the client with the hardware address mac. The address's counters begin at zero.
func (l *Link) Put(ip netip.Addr, mac MAC) error { return l.put(ip, &programsPersona{Mac: mac}) }

// PutInSession is Put, or Put6, for a client whose packets a PPPoE session carries.
func (l *Link) PutInSession(ip netip.Addr, mac MAC, session SessionID) error {
	var id [2]byte
	binary.BigEndian.PutUint16(id[:], session.ID)
	p := &programsPersona{Mac: mac, Session: binary.NativeEndian.Uint16(id[:]), Ac: session.Concentrator}
	if ip.Is6() {
		return l.put6(ip, p)
	}
	return l.put(ip, p)
}

func (l *Link) put(ip netip.Addr, p *programsPersona) error {
	if !l.cfg.LAN.Contains(ip) {
		return fmt.Errorf("the address %s is not of the clients' network %s", ip, l.cfg.LAN)
	}
	if err := l.objs.Personas.Put(mapKey(ip), p); err != nil {
		return fmt.Errorf("giving %s the address %s: %w", MAC(p.Mac), ip, err)
	}
	return nil
}

// Remove takes an address away from its client; one that nobody has is no error.
func (l *Link) Remove(ip netip.Addr) error {
	if !ip.Is4() {
		return nil
	}
	if err := l.objs.Personas.Delete(mapKey(ip)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("taking the address %s away: %w", ip, err)
	}
	return nil
}

// attach attaches the programs to the interface: from Linux 6.6 on by tcx links, which end with the process, else as
// filters of clsact, which end with the interface.
func (l *Link) attach() error {
	for _, hook := range []struct {
		prog   *ebpf.Program
		attach ebpf.AttachType
		parent uint32
	}{
		{l.objs.FromLan, ebpf.AttachTCXIngress, netlink.HANDLE_MIN_INGRESS},
		{l.objs.ToLan, ebpf.AttachTCXEgress, netlink.HANDLE_MIN_EGRESS},
	} {
		tcx, err := link.AttachTCX(link.TCXOptions{Program: hook.prog, Interface: l.ifi.Index, Attach: hook.attach})
		if errors.Is(err, ebpf.ErrNotSupported) {
			err = clsact(l.ifi.Index, hook.prog, hook.parent)
		} else if err == nil {
			l.attached = append(l.attached, tcx)
		}
		if err != nil {
			return fmt.Errorf("attaching a program: %w", err)
		}
	}
	return nil
}

// clsact attaches a program as a filter of the queueing discipline clsact.
func clsact(index int, prog *ebpf.Program, parent uint32) error {
	qdisc := &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT},
		QdiscType: "clsact",
	}
	if err := netlink.QdiscAdd(qdisc); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("adding clsact: %w", err)
	}
	return netlink.FilterReplace(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: parent, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 1},
		Fd:          prog.FD(), Name: "persona", DirectAction: true,
	})
}

// addLAN makes all of the LAN local (AnyIP), so that sockets can bind to any address of it.
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

// SetRouter sets the route for all that clients send beyond the LAN. All clients of a link have the same router, so
// another router is an error, and the same one again changes nothing. The router's address lies in the LAN, which is
// local. So it gets a more specific route in the table of local routes, which the kernel looks up first.
func (l *Link) SetRouter(router netip.Addr) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case router == l.router:
		return nil
	case l.router.IsValid():
		return fmt.Errorf(
			"a lease names the router %s, an earlier one %s: clients of one host share their router", router, l.router)
	}
	err := l.addRoute(&netlink.Route{
		LinkIndex: l.ifi.Index, Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_UNICAST, Scope: unix.RT_SCOPE_LINK,
		Dst: IPNet(netip.PrefixFrom(router, router.BitLen())),
	})
	if err == nil {
		out := &netlink.Route{LinkIndex: l.ifi.Index, Gw: router.AsSlice(), Flags: int(netlink.FLAG_ONLINK),
			InitCwnd: l.cfg.Window, MTU: l.cfg.MTU}
		err = l.addRoute(out)
	}
	if err == nil {
		l.router = router
	}
	return err
}

// disableAggregation has the kernel give the interface single packets only, where Config.Singly asks for it.
func (l *Link) disableAggregation() error {
	if !l.cfg.Singly {
		return nil
	}
	dev, err := netlink.LinkByIndex(l.ifi.Index)
	if err == nil {
		err = netlink.LinkSetGSOMaxSegs(dev, 1)
	}
	if err != nil {
		return fmt.Errorf("asking for single packets: %w", err)
	}
	return nil
}

// SetRouterMAC enters the router's hardware address, where clients do not ask for it: those in PPPoE sessions, and
// those of IPv6 (see SetRouter6).
func (l *Link) SetRouterMAC(router netip.Addr, mac MAC) error {
	family := unix.AF_INET
	if router.Is6() {
		family = unix.AF_INET6
	}
	n := &netlink.Neigh{LinkIndex: l.ifi.Index, Family: family, State: netlink.NUD_PERMANENT,
		IP: router.AsSlice(), HardwareAddr: mac[:]}
	if err := netlink.NeighSet(n); err != nil {
		return fmt.Errorf("entering %s as the hardware address of %s: %w", mac, router, err)
	}
	return nil
}

// addRoute adds a route, or replaces it. The caller holds mu.
func (l *Link) addRoute(route *netlink.Route) error {
	if err := netlink.RouteReplace(route); err != nil {
		return fmt.Errorf("adding the route %v: %w", route, err)
	}
	l.routes = append(l.routes, route)
	return nil
}

// Close removes programs and routes. A second call does nothing.
func (l *Link) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, route := range l.routes {
		if err := netlink.RouteDel(route); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("removing the route %v: %w", route, err))
		}
	}
	for _, p := range l.attached {
		errs = append(errs, p.Close())
	}
	l.routes, l.router, l.router6, l.attached = nil, netip.Addr{}, netip.Addr{}, nil
	l.objs.Close() // its error would only say that they are closed already
	return errors.Join(errs...)
}

// IPNet returns p in the form that netlink takes.
func IPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
