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

// KindVeth is study 1's clean machine (5.1.1): a veth pair with a static address for
// each client, all in the namespace of the host.
const KindVeth = "veth"

var vethKind = Kind{
	Name: KindVeth,
	Most: 250, MostSending: 250, // the study's /24 network ends there
	Static: true, Programs: true,
	Needs: heavyNeeds, // less than that: a client has no namespace
	MTU:   traffic.EthernetMTU,
	Times: macvlanKind.Times,
	open: func(Config) (host, error) {
		return unsharedHost(func(c *Client) attachment { return vethClient{c} }), nil
	},
}

// vethClient has its address from the moment it is created.
type vethClient struct{ *Client }

// create makes the pair: one end has the address, the other is up and unused. The
// address gets no prefix route, which the study deletes afterwards.
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
	addr := &netlink.Addr{IPNet: persona.IPNet(netip.PrefixFrom(ip, c.cfg.LAN.Bits())), Flags: unix.IFA_F_NOPREFIXROUTE}
	if err := netlink.AddrAdd(link, addr); err != nil {
		return fmt.Errorf("giving %s the address %s: %w", peer, ip, err)
	}
	if err := SetUp(&netlink.Handle{}, name, peer); err != nil {
		return err
	}
	// Its packets leave by the client host's own link: that is the hardware
	// address the router sees.
	parent, err := netlink.LinkByName(c.cfg.Parent)
	if err != nil {
		return err
	}
	c.MAC = parent.Attrs().HardwareAddr
	c.setIP(ip)
	return nil
}

// addAddr is the IPv4 address n addresses after another.
func addAddr(ip netip.Addr, n int) netip.Addr {
	b := ip.As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(n))
	return netip.AddrFrom4(b)
}

func (c vethClient) lease(context.Context) (Tries, error) { return Tries{Count: 1}, nil }
func (c vethClient) release(context.Context) error        { return nil }

func (c vethClient) dial(ctx context.Context, addr string) (net.Conn, error) {
	return c.dialer().DialContext(ctx, "tcp", addr)
}

var _ attachment = vethClient{}
