package client

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// slaacTimeout bounds the wait for an IPv6 address. The kernel asks again after 4 s, then at doubling intervals.
const slaacTimeout = 20 * time.Second

// autoconfiguration are the settings, below net/ipv6/conf/NAME/, of an interface that asks for a router advertisement
// once its IPv6 is switched on. The address is valid at once (accept_dad = 0): each client's hardware address is its
// own, so there is no duplicate to wait for.
var autoconfiguration = []struct{ name, value string }{
	{"accept_ra", "1"}, {"accept_dad", "0"}, {"addr_gen_mode", "0"}, {"router_solicitation_delay", "0"},
	{"router_solicitations", "-1"},
}

// autoconfigure gets the client's IPv6 address by SLAAC (RFC 4862), as phones do: it switches the interface's IPv6 on,
// the kernel asks for a router advertisement, and makes the address of its prefix and the hardware address. It returns
// when the address can be used.
func (c *macvlanClient) autoconfigure(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, slaacTimeout, fmt.Errorf(
		"no router advertisement with a prefix for SLAAC after %s", slaacTimeout))
	defer cancel()
	updates, done := make(chan netlink.AddrUpdate, 16), make(chan struct{})
	defer close(done)
	in := netns.NsHandle(c.ns.file.Fd())
	err := netlink.AddrSubscribeWithOptions(
		updates, done, netlink.AddrSubscribeOptions{Namespace: &in, ListExisting: true})
	if err != nil {
		return fmt.Errorf("watching for its IPv6 address: %w", err)
	}
	if err := c.ns.Do(askForAdvertisement); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case u, open := <-updates:
			if !open {
				return errors.New("watching for its IPv6 address: the kernel ended it")
			}
			ip, ok := netip.AddrFromSlice(u.LinkAddress.IP)
			if !u.NewAddr || !ok || !ip.Is6() || !ip.IsGlobalUnicast() || u.Flags&unix.IFA_F_TENTATIVE != 0 {
				continue
			}
			if err := c.routeBy6(); err != nil {
				return err
			}
			c.setIP(ip)
			return nil
		}
	}
}

// askForAdvertisement switches IPv6 on at the client's interface, in the calling thread's namespace.
func askForAdvertisement() error {
	const conf = "ipv6/conf/" + macvlanName + "/"
	for _, s := range autoconfiguration {
		if err := SetSysctls(map[string]string{conf + s.name: s.value}); err != nil {
			return err
		}
	}
	return SetSysctls(map[string]string{conf + "disable_ipv6": "0"})
}

// staticMetric is the metric of routeBy6's route: the kernel's own by advertisements has 1024, and lower ones go first.
const staticMetric = 512

// routeBy6 adds a default route by the router that has advertised itself, with the lab's initial window.
func (c *macvlanClient) routeBy6() error {
	return c.inside(func(h *netlink.Handle) error {
		link, err := h.LinkByName(macvlanName)
		if err != nil {
			return err
		}
		routes, err := h.RouteList(link, netlink.FAMILY_V6)
		if err != nil {
			return fmt.Errorf("reading its IPv6 routes: %w", err)
		}
		for _, r := range routes {
			if r.Gw == nil || r.Dst != nil && !r.Dst.IP.IsUnspecified() {
				continue
			}
			route := &netlink.Route{
				LinkIndex: link.Attrs().Index, Gw: r.Gw, InitCwnd: InitialWindow, Priority: staticMetric}
			if err := h.RouteReplace(route); err != nil {
				return fmt.Errorf("setting the default route via %s: %w", r.Gw, err)
			}
			// As with IPv4: see configure.
			entry := &netlink.Neigh{LinkIndex: route.LinkIndex, IP: r.Gw, Flags: netlink.NTF_USE | netlink.NTF_EXT_LEARNED}
			if err := h.NeighSet(entry); err != nil {
				return fmt.Errorf("resolving the router's address %s: %w", r.Gw, err)
			}
			return nil
		}
		return errors.New("the advertisement with its prefix names no router")
	})
}
