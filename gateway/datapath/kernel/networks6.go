package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// ownAddresses returns the address by which a client is known, and the IPv6 networks from whose addresses it may send,
// none of which contains another: a single address is one too. Link-local addresses are not among them.
func (d *Datapath) ownAddresses(c datapath.Client) (addr netip.Addr, networks []netip.Prefix, err error) {
	first := c
	first.Addrs = nil
	for _, a := range c.Addrs {
		switch {
		case !a.Is6() || !d.has6():
			first.Addrs = append(first.Addrs, a)
		case !a.IsLinkLocalUnicast():
			networks = append(networks, netip.PrefixFrom(a, 128))
		}
	}
	if addr, err = first.Addr(); err != nil {
		return addr, nil, err
	}
	for _, p := range c.Routes {
		if !p.Addr().Is6() || !d.has6() {
			return addr, nil, fmt.Errorf("%w: %s: this data path takes no networks behind a client (Framed-Route) "+
				"but those of its IPv6: use datapath.kind ebpf or tun", datapath.ErrNotSupported, p)
		}
		networks = append(networks, p.Masked())
	}
	slices.SortFunc(networks, func(a, b netip.Prefix) int {
		return cmp.Or(cmp.Compare(a.Bits(), b.Bits()), a.Addr().Compare(b.Addr()))
	})
	var apart []netip.Prefix
	for _, p := range networks {
		if !slices.ContainsFunc(apart, p.Overlaps) {
			apart = append(apart, p)
		}
	}
	return addr, apart, nil
}

// passes6 reports whether a client's unit passes IPv6 packets, which take an MTU of 1280 (RFC 8200, section 5).
func (d *Datapath) passes6(c datapath.Client) bool {
	const least = 1280
	return d.has6() && mtuOf(c) >= least
}

// moveTo makes the networks of a client with a unit other ones. When that fails, it keeps those that it has. c.mu is
// held.
func (d *Datapath) moveTo(c *client, networks []netip.Prefix) error {
	before := c.networks
	err := d.moveNetworks(c, networks)
	if err != nil && !slices.Equal(c.networks, before) {
		err = errors.Join(err, d.moveNetworks(c, before))
	}
	return err
}

// moveNetworks is moveTo, which may fail halfway. c.mu is held.
func (d *Datapath) moveNetworks(c *client, networks []netip.Prefix) error {
	without := func(all, but []netip.Prefix) []netip.Prefix {
		return slices.DeleteFunc(slices.Clone(all), func(p netip.Prefix) bool { return slices.Contains(but, p) })
	}
	former, fresh := without(c.networks, networks), without(networks, c.networks)
	if len(former)+len(fresh) == 0 {
		return nil
	}
	index, t, counter := c.pppoe.index, table6Of(d.net.Interface), fromCounter(c.addr)
	var b nftables.Batch
	b.DeleteElements(t, setFrom, fromElements(index, former, counter)...)
	b.AddElements(t, setFrom, fromElements(index, fresh, counter)...)
	if err := d.rules.Commit(&b); err != nil && !errors.Is(err, unix.ENOENT) { // ENOENT: others have removed rules
		return fmt.Errorf("changing whose IPv6 networks are whose: %w", err)
	}
	c.networks = networks
	for _, p := range former {
		if err := netlink.RouteDel(route6(index, p)); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("removing the route to %s: %w", p, err)
		}
	}
	return d.addRoutes6(c, fresh)
}

// addRoutes6 routes networks to a client with a unit. It fails with datapath.ErrTaken where another program has entered
// a route to one of them. c.mu is held.
func (d *Datapath) addRoutes6(c *client, networks []netip.Prefix) error {
	if !d.passes6(c.Client) {
		return nil
	}
	for _, p := range networks {
		if err := enterRoute6(route6(c.pppoe.index, p)); err != nil {
			return fmt.Errorf("entering the route to %s: %w", p, err)
		}
	}
	return nil
}

// routes6 are gatewayd's IPv6 routes, with the interfaces to which they lead.
func (d *Datapath) routes6() (map[netip.Prefix]int, error) {
	if !d.has6() {
		return nil, nil
	}
	all, err := stack.ConsistentList(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(
			unix.AF_INET6, &netlink.Route{Protocol: stack.OwnProtocol}, netlink.RT_FILTER_PROTOCOL)
	})
	there := map[netip.Prefix]int{}
	for _, r := range all {
		if r.Dst != nil {
			there[prefixOf(r.Dst)] = r.LinkIndex
		}
	}
	return there, err
}

func prefixOf(n *net.IPNet) netip.Prefix {
	addr, _ := netip.AddrFromSlice(n.IP.To16())
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addr, bits)
}

// enterRoute6 enters a route in place of one of gatewayd's.
func enterRoute6(r *netlink.Route) error {
	err := netlink.RouteAdd(r)
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	const usual = 1024 // IP6_RT_PRIO_USER: the metric of a route for which none is given
	there, err := netlink.RouteListFiltered(unix.AF_INET6, &netlink.Route{Dst: r.Dst}, netlink.RT_FILTER_DST)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(there, func(o netlink.Route) bool {
		return o.Priority == usual && o.Protocol != stack.OwnProtocol
	}) {
		return fmt.Errorf("%w: the machine has a route there already", datapath.ErrTaken)
	}
	return netlink.RouteReplace(r)
}

func route6(index int, p netip.Prefix) *netlink.Route {
	return &netlink.Route{LinkIndex: index, Protocol: stack.OwnProtocol,
		Dst: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), 128)}}
}

// allow6 has the kernel's stack take an interface's IPv6 packets, also where it is off at new interfaces
// (net.ipv6.conf.default.disable_ipv6).
func allow6(name string) error {
	const off = "1"
	path := filepath.Join("/proc/sys/net/ipv6/conf", name, "disable_ipv6")
	if was, err := os.ReadFile(path); err != nil || string(was[:min(len(was), 1)]) != off {
		return err
	}
	return os.WriteFile(path, []byte("0"), 0o600)
}

// SetPrefixes6 has packets dropped that come from addresses of the LAN's prefixes by another interface than a client's.
// No host is on the LAN's link without a session.
func (d *Datapath) SetPrefixes6(all, _ []netip.Prefix) error {
	return d.setForged(func() { d.prefixes6 = slices.Clone(all) })
}

// SetPools6 has packets for networks that no client has answered with "no route": otherwise they would go back to the
// provider, who sends them here (RFC 7084, WPD-5).
func (d *Datapath) SetPools6(pools []netip.Prefix) error {
	if err := d.setForged(func() { d.pools6 = slices.Clone(pools) }); err != nil {
		return err
	}
	return setUnreachable(d.net.Interface, pools)
}

// setUnreachable makes the routes that lead nowhere, of a LAN, those to prefixes.
func setUnreachable(lan string, prefixes []netip.Prefix) error {
	metric := int(crc32.ChecksumIEEE([]byte(lan))&0xff_ff_ff | 0x67_00_00_00) // by which a LAN's are known
	have, err := stack.ConsistentList(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(unix.AF_INET6,
			&netlink.Route{Protocol: stack.OwnProtocol, Type: unix.RTN_UNREACHABLE},
			netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TYPE)
	})
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil // the kernel has no IPv6
	}
	if err != nil {
		return fmt.Errorf("listing IPv6 routes: %w", err)
	}
	var there []netip.Prefix
	for _, r := range have {
		if r.Priority != metric || r.Dst == nil {
			continue
		}
		if p := prefixOf(r.Dst); slices.Contains(prefixes, p) {
			there = append(there, p)
		} else if e := netlink.RouteDel(&r); e != nil && !errors.Is(e, unix.ESRCH) {
			err = errors.Join(err, fmt.Errorf("removing the route to %s: %w", p, e))
		}
	}
	for _, p := range prefixes {
		if slices.Contains(there, p) {
			continue
		}
		r := route6(0, p)
		r.Type, r.Priority = unix.RTN_UNREACHABLE, metric
		if e := netlink.RouteReplace(r); e != nil {
			err = errors.Join(err, fmt.Errorf("entering the route to %s: %w", p, e))
		}
	}
	return err
}
