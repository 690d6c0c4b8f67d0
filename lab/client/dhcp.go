package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
)

// acquire gets an address over DHCP (RFC 2131: discover, offer, request, ack)
// and configures it. A second call renews nothing: the lease stands.
func (c *Client) acquire(ctx context.Context) error {
	if c.lease != nil {
		return nil
	}
	ack, err := c.request(ctx)
	if err != nil {
		return fmt.Errorf("asking for a lease: %w", err)
	}
	ip, router, err := leaseAddress(ack)
	if err != nil {
		return fmt.Errorf("reading the lease: %w", err)
	}
	if err := c.configure(ip, router); err != nil {
		return err
	}
	c.lease = ack
	c.mu.Lock()
	c.ip = ip.Addr()
	c.mu.Unlock()
	return nil
}

// request carries out one exchange. Its raw socket is closed at once: it would
// go on to see, and copy to user space, every packet the client receives.
func (c *Client) request(ctx context.Context) (ack *dhcpv4.DHCPv4, err error) {
	var dc *nclient4.Client
	err = c.ns.Do(func() (err error) {
		// First answers take milliseconds; a lost broadcast is asked for again soon.
		dc, err = nclient4.New(macvlanName, nclient4.WithHWAddr(c.MAC), nclient4.WithTimeout(time.Second), nclient4.WithRetry(15))
		return err
	})
	if err != nil {
		return nil, err
	}
	defer dc.Close()
	got, err := dc.Request(ctx)
	if err != nil {
		return nil, err
	}
	return got.ACK, nil
}

// leaseAddress takes address, mask (option 1) and first router (option 3) from an ACK.
func leaseAddress(ack *dhcpv4.DHCPv4) (netip.Prefix, netip.Addr, error) {
	ip, ok := netip.AddrFromSlice(ack.YourIPAddr.To4())
	if !ok || ip.IsUnspecified() {
		return netip.Prefix{}, netip.Addr{}, errors.New("it has no address")
	}
	ones, bits := ack.SubnetMask().Size()
	if bits != 32 {
		return netip.Prefix{}, netip.Addr{}, errors.New("it has no subnet mask")
	}
	var router netip.Addr
	if rs := ack.Router(); len(rs) > 0 {
		router, _ = netip.AddrFromSlice(rs[0].To4())
	}
	return netip.PrefixFrom(ip, ones), router, nil
}

// release gives the lease back: one datagram to the server, never answered
// (RFC 2131, 4.4.6).
func (c *Client) release(ctx context.Context) error {
	if c.lease == nil {
		return nil
	}
	msg, err := dhcpv4.NewReleaseFromACK(c.lease)
	if err != nil {
		return fmt.Errorf("releasing its lease: %w", err)
	}
	server := net.JoinHostPort(c.lease.ServerIdentifier().String(), strconv.Itoa(dhcpv4.ServerPort))
	d := &net.Dialer{LocalAddr: &net.UDPAddr{IP: c.LocalIP().AsSlice(), Port: dhcpv4.ClientPort}}
	conn, err := dialIn(ctx, c.ns, d, "udp4", server)
	if err != nil {
		return fmt.Errorf("releasing its lease: %w", err)
	}
	defer conn.Close()
	if _, err := conn.Write(msg.ToBytes()); err != nil {
		return fmt.Errorf("releasing its lease: %w", err)
	}
	c.lease = nil
	return nil
}
