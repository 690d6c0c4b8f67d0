package persona

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// addresses6 is how many IPv6 addresses each client has: see NDP.Configure.
const addresses6 = 3

// load6 gives the programs the clients' IPv6 network and the host's own address in it.
func (l *Link) load6(spec *ebpf.CollectionSpec) error {
	if !l.cfg.LAN6.IsValid() {
		return nil
	}
	if l.cfg.LAN6.Bits() > 64 || !l.cfg.LAN6.Addr().Is6() {
		return fmt.Errorf("the network %s is not of IPv6, or smaller than the /64 that SLAAC needs", l.cfg.LAN6)
	}
	spec.Maps["personas6"].MaxEntries = uint32(max(1, addresses6*l.cfg.Clients))
	prefix := l.cfg.LAN6.Masked().Addr().As16()
	err := errors.Join(spec.Variables["lan6_prefix"].Set(binary.NativeEndian.Uint64(prefix[:8])),
		spec.Variables["lan6_mask"].Set(binary.NativeEndian.Uint64(net.CIDRMask(l.cfg.LAN6.Bits(), 128)[:8])))
	addrs, _ := l.ifi.Addrs() // none: the host itself has no address in the LAN
	for _, a := range addrs {
		if p, bad := netip.ParsePrefix(a.String()); bad == nil && l.cfg.LAN6.Contains(p.Addr()) && err == nil {
			own := p.Addr().As16()
			err = spec.Variables["host6_last"].Set(binary.NativeEndian.Uint64(own[8:]))
		}
	}
	return err
}

// addLAN6 makes all of the IPv6 LAN local (AnyIP), but for the router.
func (l *Link) addLAN6() error {
	if !l.cfg.LAN6.IsValid() {
		return nil
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	err = l.addRoute(&netlink.Route{
		LinkIndex: lo.Attrs().Index, Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST,
		Dst: IPNet(l.cfg.LAN6.Masked()),
	})
	if err == nil && l.cfg.Gateway6.IsValid() {
		err = l.addRoute(&netlink.Route{
			LinkIndex: l.ifi.Index, Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_UNICAST, Scope: unix.RT_SCOPE_LINK,
			Dst: IPNet(netip.PrefixFrom(l.cfg.Gateway6, l.cfg.Gateway6.BitLen())),
		})
	}
	return err
}

// routeMetric is the metric of SetRouter6's route. Lower ones go first, and the host's own default route has 1024.
const routeMetric = 512

// SetRouter6 sets the route for all that clients send by IPv6 beyond the LAN, and enters the router's hardware address:
// the kernel would ask for it from an address of the host, which is no client. The zero MAC enters none. All clients of
// a link have the same router, so another router is an error, and the same one again changes nothing.
func (l *Link) SetRouter6(router netip.Addr, mac MAC) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case router == l.router6:
		return nil
	case l.router6.IsValid():
		return fmt.Errorf(
			"an advertisement is of the router %s, an earlier one of %s: clients of one host share their router", router,
			l.router6)
	}
	err := l.addRoute(&netlink.Route{LinkIndex: l.ifi.Index, Gw: router.AsSlice(), Priority: routeMetric,
		InitCwnd: l.cfg.Window, MTU: l.cfg.MTU})
	for _, ip := range []netip.Addr{router, l.cfg.Gateway6} {
		if err == nil && mac != (MAC{}) && ip.IsValid() {
			err = l.SetRouterMAC(ip, mac)
		}
	}
	if err == nil {
		l.router6 = router
	}
	return err
}

// Put6 is Put for an IPv6 address: one of the clients' network, or a link-local one.
func (l *Link) Put6(ip netip.Addr, mac MAC) error {
	return l.put6(ip, &programsPersona{Mac: mac})
}

func (l *Link) put6(ip netip.Addr, p *programsPersona) error {
	if !l.cfg.LAN6.Contains(ip) && !ip.IsLinkLocalUnicast() {
		return fmt.Errorf("the address %s is not of the clients' network %s", ip, l.cfg.LAN6)
	}
	if err := l.objs.Personas6.Put(ip.As16(), p); err != nil {
		return fmt.Errorf("giving %s the address %s: %w", MAC(p.Mac), ip, err)
	}
	return nil
}

// Remove6 takes an IPv6 address away from its client; one that nobody has is no error.
func (l *Link) Remove6(ip netip.Addr) error {
	if err := l.objs.Personas6.Delete(ip.As16()); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("taking the address %s away: %w", ip, err)
	}
	return nil
}
