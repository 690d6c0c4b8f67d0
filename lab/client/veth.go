package client

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/client/persona"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// KindVeth is the client of study 1's clean router (section 5.1.1): a veth pair with a static address, in the namespace
// of the host.
const KindVeth = "veth"

var vethKind = Kind{
	Name:       KindVeth,
	MaxClients: 250, MaxSending: 250, // the study's /24 network ends there
	Static: true, Programs: true,
	Needs: namespaceNeeds, // a bit more than it takes, because it has no namespace
	MTU:   traffic.EthernetMTU,
	Times: macvlanKind.Times,
	open: func(Config) (host, error) {
		return unsharedHost(func(c *Client) attachment { return vethClient{c} }), nil
	},
}

// vethClient is one client with a static address, which it gets when it is created.
type vethClient struct{ *Client }

// create makes the pair: one end gets the address, the other is only set up. The address adds no route for its network;
// the study deletes that route.
func (c vethClient) create(context.Context) error {
	name, peer := fmt.Sprintf("vnic%d", c.Num), fmt.Sprintf("vnicp%d", c.Num)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: peer, PeerHardwareAddr: c.MAC}); err != nil {
		return fmt.Errorf("adding veth %s: %w", name, err)
	}
	ip := addAddr(c.cfg.LAN.Addr().Next(), c.Num-1)
	link, err := netlink.LinkByName(peer)
	if err != nil {
		return err
	}
	if c.cfg.Family.Has4() {
		addr := &netlink.Addr{IPNet: persona.IPNet(netip.PrefixFrom(ip, c.cfg.LAN.Bits())), Flags: unix.IFA_F_NOPREFIXROUTE}
		if err := netlink.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("giving %s the address %s: %w", peer, ip, err)
		}
		c.setIP(ip)
	}
	if err := SetUp(&netlink.Handle{}, name, peer); err != nil {
		return err
	}
	// The client's packets leave by the client host's own interface, so the router sees the hardware address of that.
	parent, err := netlink.LinkByName(c.cfg.Parent)
	if err != nil {
		return err
	}
	c.MAC = parent.Attrs().HardwareAddr
	if c.cfg.Family.Has6() {
		return c.addIPv6(parent)
	}
	return nil
}

// addIPv6 gives the client its IPv6 address. It is an address of the host's own interface: a kernel answers neighbour
// solicitations only for addresses of the interface at which they arrive (RFC 4861, 7.2.3), other than with ARP.
func (c vethClient) addIPv6(parent netlink.Link) error {
	ip := c.cfg.LAN6.Addr()
	for range c.Num {
		ip = ip.Next()
	}
	addr := &netlink.Addr{IPNet: persona.IPNet(netip.PrefixFrom(ip, c.cfg.LAN6.Bits())),
		Flags: unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_NODAD}
	if err := netlink.AddrAdd(parent, addr); err != nil {
		return fmt.Errorf("giving %s the address %s: %w", parent.Attrs().Name, ip, err)
	}
	c.setIP(ip)
	return nil
}

// addAddr returns the IPv4 address that is n addresses after ip.
func addAddr(ip netip.Addr, n int) netip.Addr {
	b := ip.As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(n))
	return netip.AddrFrom4(b)
}

func (c vethClient) lease(context.Context) (Tries, error) { return Tries{Count: 1}, nil }
func (c vethClient) release(context.Context) error        { return nil }

func (c vethClient) dial(ctx context.Context, addr string) (net.Conn, error) {
	return c.dialer(addr).DialContext(ctx, "tcp", addr)
}

var _ attachment = vethClient{}
