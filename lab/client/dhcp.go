package client

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
)

// lease is a DHCP lease and the client that holds it.
type lease struct {
	client *nclient4.Client
	got    *nclient4.Lease
}

func (l *lease) close() error { return l.client.Close() }

// acquire gets an address over DHCP (RFC 2131: discover, offer, request, ack)
// and configures it. A second call renews nothing: the lease stands.
func (c *Client) acquire(ctx context.Context) error {
	if c.lease != nil {
		return nil
	}
	var dc *nclient4.Client
	err := c.ns.Do(func() (err error) {
		// First answers take milliseconds; a lost broadcast is asked for again soon.
		dc, err = nclient4.New(macvlanName, nclient4.WithHWAddr(c.MAC), nclient4.WithTimeout(time.Second), nclient4.WithRetry(15))
		return err
	})
	if err != nil {
		return fmt.Errorf("starting DHCP: %w", err)
	}
	got, err := dc.Request(ctx)
	if err != nil {
		dc.Close()
		return fmt.Errorf("asking for a lease: %w", err)
	}
	c.lease = &lease{dc, got}
	ip, router, err := leaseAddress(got.ACK)
	if err != nil {
		return fmt.Errorf("reading the lease: %w", err)
	}
	if err := c.configure(ip, router); err != nil {
		return err
	}
	c.mu.Lock()
	c.ip = ip.Addr()
	c.mu.Unlock()
	return nil
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

// release gives the lease back.
func (c *Client) release(context.Context) error {
	if c.lease == nil {
		return nil
	}
	err := c.lease.client.Release(c.lease.got)
	err = errors.Join(err, c.lease.close())
	c.lease = nil
	if err != nil {
		return fmt.Errorf("releasing its lease: %w", err)
	}
	return nil
}
