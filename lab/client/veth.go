package client

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// createVeth makes a client as study 1 does for its clean machine (5.1.1): a
// veth pair, one end with a static address, the other up and unused. The
// address gets no prefix route, which the study deletes afterwards.
func (c *Client) createVeth(context.Context) error {
	name, peer := fmt.Sprintf("vnic%d", c.Num), fmt.Sprintf("vnicp%d", c.Num)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: peer, PeerHardwareAddr: c.MAC}); err != nil {
		return fmt.Errorf("adding veth %s: %w", name, err)
	}
	ip := after(c.cfg.LAN.Addr().Next(), c.Num-1)
	link, err := netlink.LinkByName(peer)
	if err != nil {
		return err
	}
	addr := &netlink.Addr{
		IPNet: &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(c.cfg.LAN.Bits(), 32)},
		Flags: unix.IFA_F_NOPREFIXROUTE,
	}
	if err := netlink.AddrAdd(link, addr); err != nil {
		return fmt.Errorf("giving %s the address %s: %w", peer, ip, err)
	}
	for _, n := range []string{name, peer} {
		l, err := netlink.LinkByName(n)
		if err == nil {
			err = netlink.LinkSetUp(l)
		}
		if err != nil {
			return fmt.Errorf("setting %s up: %w", n, err)
		}
	}
	// Its packets leave by the client host's own link: that is the hardware
	// address the router sees.
	parent, err := netlink.LinkByName(c.cfg.Parent)
	if err != nil {
		return err
	}
	c.MAC = parent.Attrs().HardwareAddr
	c.mu.Lock()
	c.ip = ip
	c.mu.Unlock()
	return nil
}

// after is the IPv4 address n addresses after another.
func after(ip netip.Addr, n int) netip.Addr {
	b := ip.As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(n))
	return netip.AddrFrom4(b)
}

// keepStatic is how a client with a static address leases: it has it already.
func (c *Client) keepStatic(context.Context) (Tries, error) { return Tries{Count: 1}, nil }

// keep is how it gives it back.
func (c *Client) keep(context.Context) error { return nil }
