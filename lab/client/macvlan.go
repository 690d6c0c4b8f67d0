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

// macvlanName is the name of each macvlan client's interface, in its own namespace.
const macvlanName = "lan0"

// KindMacvlan is the client of study 1's portals (section 5.1.2): a network namespace and a macvlan, with its own
// hardware address and lease.
const KindMacvlan = "macvlan"

var macvlanKind = Kind{
	Name: KindMacvlan,
	// Each client takes open files of the agent, for its namespace and the sockets of its login: a common hard limit of
	// 20,000 files is enough for 4,000 clients. Clients that send share one /24 network with the clean router's clients.
	MaxClients: 4000, MaxSending: 250,
	Leases: true, Programs: true,
	Needs: namespaceNeeds,
	MTU:   traffic.EthernetMTU,
	Times: Times{Stay: 20 * time.Millisecond, Storm: 5 * time.Millisecond, Login: 50 * time.Millisecond},
	open: func(Config) (host, error) {
		return unsharedHost(func(c *Client) attachment { return &macvlanClient{Client: c} }), nil
	},
}

// namespaceNeeds is what a client with a namespace takes. Its files are the namespace, its counters, a stream and a
// probe of the round-trip time.
var namespaceNeeds = Needs{KiB: 2 << 10, Files: 4, Namespaces: 1}

// macvlanClient is one client with a namespace of its own.
type macvlanClient struct {
	*Client
	held persona.Lease // its lease; the zero Lease: none
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
	attrs.Namespace = netlink.NsFd(c.ns.file.Fd()) // made there, because all clients' interfaces have the same name
	// Mode private, not bridge: in mode bridge a client's broadcast would go to all other clients as well, so that leases
	// for a thousand clients would take a million copies.
	if err := netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_PRIVATE}); err != nil {
		return fmt.Errorf("adding a macvlan on %s: %w", c.cfg.Parent, err)
	}
	return c.inside(func(h *netlink.Handle) error { return setUpWhenFree(ctx, h, "lo", macvlanName) })
}

// removalTimeout is how long setUpWhenFree waits until the kernel has removed the clients of an earlier lab.
const removalTimeout = 20 * time.Second

// setUpWhenFree is SetUp that waits while another macvlan on the same interface has the hardware address. The kernel
// removes the clients of an earlier lab, with their namespaces, only a moment after their agent has ended.
func setUpWhenFree(ctx context.Context, h *netlink.Handle, names ...string) error {
	const retryInterval = 20 * time.Millisecond
	for deadline := time.Now().Add(removalTimeout); ; {
		err := SetUp(h, names...)
		if !errors.Is(err, unix.EADDRINUSE) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(retryInterval):
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

// exchange calls fn with a DHCP client in the client's namespace. The socket is open only while fn runs, because it
// copies every packet that the client receives to user space. Replies are asked for as unicast, because all clients of
// the host would get a copy of a broadcast.
func (c *macvlanClient) exchange(fn func(d *persona.DHCP, mac persona.MAC) error) error {
	var d *persona.DHCP
	err := c.ns.Do(func() (err error) {
		if d, err = persona.NewDHCP(macvlanName); err == nil {
			d.SingleClient = true
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

// lease gets the addresses of the client's family: that of IPv4 by DHCP, that of IPv6 by SLAAC. It does nothing while
// the client has them.
func (c *macvlanClient) lease(ctx context.Context) (tries Tries, err error) {
	tries = Tries{Count: 1}
	if c.cfg.leases4() && !c.held.Addr.IsValid() {
		tries, err = c.lease4(ctx)
	}
	if err == nil && c.cfg.Family.Has6() && !load(&c.ip6).IsValid() {
		err = c.autoconfigure(ctx)
	}
	return tries, err
}

// lease4 leases an IPv4 address by DHCP and configures it.
func (c *macvlanClient) lease4(ctx context.Context) (tries Tries, err error) {
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

// configure gives the client's interface an address and, where the lease names a router, a default route.
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
		// The kernel resolves the router's hardware address now, and keeps it (NTF_EXT_LEARNED). Such entries do not count
		// towards the limit of neighbours, which is 1024 for the whole machine unless its administrator changes it.
		entry := &netlink.Neigh{LinkIndex: index, IP: router.AsSlice(), Flags: netlink.NTF_USE | netlink.NTF_EXT_LEARNED}
		if err := h.NeighSet(entry); err != nil {
			return fmt.Errorf("resolving the router's address %s: %w", router, err)
		}
		return nil
	})
}

func (c *macvlanClient) dial(ctx context.Context, addr string) (net.Conn, error) {
	remote, _ := netip.ParseAddrPort(addr) // dialIn refuses what is none
	return dialIn(ctx, c.ns, c.AddressTo(remote.Addr()), addr)
}

var _ attachment = (*macvlanClient)(nil)
