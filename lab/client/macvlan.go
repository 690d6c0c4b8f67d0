package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/client/persona"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// macvlanName is the interface every macvlan client has in its own namespace.
const macvlanName = "lan0"

// KindMacvlan is study 1's client of a portal (5.1.2): a network namespace and a macvlan
// with a hardware address and a lease of its own.
const KindMacvlan = "macvlan"

var macvlanKind = Kind{
	Name: KindMacvlan,
	// The files of one agent suffice for so many where their hard limit is a common 20,000: a
	// namespace and the sockets of a login each. Those that send share one /24 network with
	// the clean router's clients.
	Most: 4000, MostSending: 250,
	Leases: true, Programs: true,
	Needs: heavyNeeds,
	MTU:   traffic.EthernetMTU,
	Times: Times{Stay: 20 * time.Millisecond, Storm: 5 * time.Millisecond, Login: 50 * time.Millisecond},
	open: func(Config) (host, error) {
		return unsharedHost(func(c *Client) attachment { return &macvlanClient{Client: c} }), nil
	},
}

// heavyNeeds is what a client with a namespace takes: its files are the namespace, its
// counters, a stream and a probe of the round-trip time.
var heavyNeeds = Needs{KiB: 2 << 10, Files: 4, Namespaces: 1}

// macvlanClient leases in a namespace of its own.
type macvlanClient struct {
	*Client
	held persona.Lease // the zero Lease without one
}

// create makes the namespace and the interface in it.
func (c *macvlanClient) create(ctx context.Context) (err error) {
	if c.ns, err = NewNamespace(); err != nil {
		return err
	}
	if err := c.ns.Do(func() error { return SetSysctls(Sysctls) }); err != nil {
		return err
	}
	parent, err := netlink.LinkByName(c.cfg.Parent)
	if err != nil {
		return fmt.Errorf("finding %s: %w", c.cfg.Parent, err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = macvlanName
	attrs.ParentIndex = parent.Attrs().Index
	attrs.HardwareAddr = c.MAC
	attrs.Namespace = netlink.NsFd(c.ns.file.Fd()) // made there: all clients use the one name
	// Private, not bridge: a broadcast of one client would go to all others as
	// well, and leasing a thousand would take a million copies.
	if err := netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_PRIVATE}); err != nil {
		return fmt.Errorf("adding a macvlan on %s: %w", c.cfg.Parent, err)
	}
	return c.inside(func(h *netlink.Handle) error { return setUpOnceFree(ctx, h, "lo", macvlanName) })
}

// formersEnd bounds the wait for a client of an earlier lab to leave an interface of a real machine.
const formersEnd = 20 * time.Second

// setUpOnceFree is SetUp that waits while a hardware address is taken: the kernel removes namespaces, and with them the
// clients of an earlier lab on the same interface, a moment after their agent has ended.
func setUpOnceFree(ctx context.Context, h *netlink.Handle, names ...string) error {
	const again = 20 * time.Millisecond
	for deadline := time.Now().Add(formersEnd); ; {
		err := SetUp(h, names...)
		if !errors.Is(err, unix.EADDRINUSE) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(again):
		}
	}
}

// SetUp sets interfaces up.
func SetUp(h *netlink.Handle, names ...string) error {
	for _, name := range names {
		link, err := h.LinkByName(name)
		if err == nil {
			err = h.LinkSetUp(link)
		}
		if err != nil {
			return fmt.Errorf("setting %s up: %w", name, err)
		}
	}
	return nil
}

// inside runs fn with a netlink socket of the client's namespace.
func (c *macvlanClient) inside(fn func(*netlink.Handle) error) error {
	h, err := netlink.NewHandleAt(netns.NsHandle(c.ns.file.Fd()))
	if err != nil {
		return fmt.Errorf("opening netlink: %w", err)
	}
	defer h.Close()
	return fn(h)
}

// exchange opens a socket for DHCP in the client's namespace, for fn alone: an open one
// copies every packet that the client receives to user space. Replies come as unicast: of
// a broadcast reply all clients of the host would get a copy.
func (c *macvlanClient) exchange(fn func(d *persona.DHCP, mac persona.MAC) error) error {
	var d *persona.DHCP
	err := c.ns.Do(func() (err error) {
		if d, err = persona.NewDHCP(macvlanName); err == nil {
			d.Own = true
			err = d.Hold()
		}
		return err
	})
	if err != nil {
		return err
	}
	defer d.Unhold()
	return fn(d, persona.MAC(c.MAC))
}

// lease gets an address over DHCP and configures it. A second call renews nothing.
func (c *macvlanClient) lease(ctx context.Context) (tries Tries, err error) {
	if c.held.Addr.IsValid() {
		return Tries{Count: 1}, nil
	}
	var lease persona.Lease
	err = c.exchange(func(d *persona.DHCP, mac persona.MAC) (err error) {
		lease, tries, err = d.Lease(ctx, mac)
		return err
	})
	if err != nil {
		return tries, fmt.Errorf("asking for a lease: %w", err)
	}
	if err := c.configure(lease.Addr, lease.Router); err != nil {
		return tries, err
	}
	c.held = lease
	c.setIP(lease.Addr.Addr())
	return tries, nil
}

func (c *macvlanClient) release(context.Context) error {
	if !c.held.Addr.IsValid() {
		return nil
	}
	err := c.exchange(func(d *persona.DHCP, mac persona.MAC) error { return d.Release(mac, c.held) })
	if err != nil {
		return fmt.Errorf("releasing its lease: %w", err)
	}
	c.held = persona.Lease{}
	return nil
}

// configure gives the client's interface an address and a default route. A lease without a
// router leaves the client with what is on the link.
func (c *macvlanClient) configure(ip netip.Prefix, router netip.Addr) error {
	return c.inside(func(h *netlink.Handle) error {
		link, err := h.LinkByName(macvlanName)
		if err != nil {
			return err
		}
		if err := h.AddrReplace(link, &netlink.Addr{IPNet: persona.IPNet(ip)}); err != nil {
			return fmt.Errorf("setting the address %s: %w", ip, err)
		}
		if !router.IsValid() {
			return nil
		}
		index := link.Attrs().Index
		if err := h.RouteReplace(
			&netlink.Route{LinkIndex: index, Gw: router.AsSlice(), InitCwnd: InitialWindow}); err != nil {
			return fmt.Errorf("setting the default route via %s: %w", router, err)
		}
		// The kernel asks for the router's hardware address now, and keeps it. Neighbours are
		// counted over the whole machine, 1024 at most unless its administrator says
		// otherwise; those learned on request are not.
		ask := &netlink.Neigh{LinkIndex: index, IP: router.AsSlice(), Flags: netlink.NTF_USE | netlink.NTF_EXT_LEARNED}
		if err := h.NeighSet(ask); err != nil {
			return fmt.Errorf("resolving the router's address %s: %w", router, err)
		}
		return nil
	})
}

func (c *macvlanClient) dial(ctx context.Context, addr string) (net.Conn, error) {
	return dialIn(ctx, c.ns, c.LocalIP(), addr)
}

var _ attachment = (*macvlanClient)(nil)
