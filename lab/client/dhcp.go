package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
)

// lease gets an address over DHCP (RFC 2131: discover, offer, request, ack)
// and configures it. A second call renews nothing: the lease stands.
func (c *macvlanClient) lease(ctx context.Context) (Tries, error) {
	if c.ack != nil {
		return Tries{Count: 1}, nil
	}
	ack, tries, err := c.request(ctx)
	if err != nil {
		return tries, fmt.Errorf("asking for a lease: %w", err)
	}
	ip, router, err := leaseAddress(ack)
	if err != nil {
		return tries, fmt.Errorf("reading the lease: %w", err)
	}
	if err := c.configure(ip, router); err != nil {
		return tries, err
	}
	c.ack = ack
	c.setIP(ip.Addr())
	return tries, nil
}

// First answers take milliseconds; a lost broadcast is asked for again soon.
const (
	leaseTimeout = time.Second // of one message
	leaseRetries = 15
	leaseNAKs    = 8 // after which a client gives up
)

// request carries out one exchange. Its raw socket is closed at once: it would
// go on to see, and copy to user space, every packet the client receives.
func (c *macvlanClient) request(ctx context.Context) (ack *dhcpv4.DHCPv4, tries Tries, err error) {
	var raw net.PacketConn
	err = c.ns.Do(func() (err error) {
		raw, err = nclient4.NewRawUDPConn(macvlanName, nclient4.ClientPort)
		return err
	})
	if err != nil {
		return nil, tries, fmt.Errorf("opening a socket: %w", err)
	}
	conn := &countedConn{PacketConn: raw}
	dc, err := nclient4.NewWithConn(conn, c.MAC, nclient4.WithTimeout(leaseTimeout), nclient4.WithRetry(leaseRetries))
	if err != nil {
		return nil, tries, errors.Join(err, raw.Close())
	}
	defer dc.Close()
	for naks := 0; ; naks++ {
		got, err := dc.Request(ctx)
		// Discover and request are one attempt; each message sent again is another.
		tries.Count = max(1, int(conn.sent.Load())-1-naks)
		if tries.Count > 1 && tries.Refusal == nil {
			tries.Refusal = fmt.Errorf("no answer to a message within %s", leaseTimeout)
		}
		var nak *nclient4.ErrNak
		switch {
		case err == nil:
			return got.ACK, tries, nil
		case !errors.As(err, &nak) || naks == leaseNAKs:
			return nil, tries, err
		}
		// The server has offered one address to two clients: the second begins
		// again (RFC 2131, 3.1.4), a little later each time, as it may be one of many.
		if tries.Refusal == nil {
			tries.Refusal = err
		}
		sleepUntil(ctx, time.Now().Add(min(firstBackoff<<naks, lastBackoff)))
	}
}

// countedConn counts what is sent.
type countedConn struct {
	net.PacketConn
	sent atomic.Int64
}

// WriteTo implements net.PacketConn.
func (c *countedConn) WriteTo(b []byte, to net.Addr) (int, error) {
	c.sent.Add(1)
	return c.PacketConn.WriteTo(b, to)
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
func (c *macvlanClient) release(ctx context.Context) error {
	if c.ack == nil {
		return nil
	}
	msg, err := dhcpv4.NewReleaseFromACK(c.ack)
	if err != nil {
		return fmt.Errorf("releasing its lease: %w", err)
	}
	server := net.JoinHostPort(c.ack.ServerIdentifier().String(), strconv.Itoa(dhcpv4.ServerPort))
	conn, err := dialIn(ctx, c.ns, "udp4", netip.AddrPortFrom(c.LocalIP(), dhcpv4.ClientPort), server)
	if err != nil {
		return fmt.Errorf("releasing its lease: %w", err)
	}
	defer conn.Close()
	if _, err := conn.Write(msg.ToBytes()); err != nil {
		return fmt.Errorf("releasing its lease: %w", err)
	}
	c.ack = nil
	return nil
}
