package persona

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// A client's exchanges with DHCP servers (RFC 2131, figure 5):
//
//	           Lease
//	INIT ─ DISCOVER ─► OFFER ─ REQUEST ─┬─ ACK ─► BOUND
//	  ▲                                 │           ├─ DECLINE ─► INIT   Decline
//	  └──────────── NAK ────────────────┘           └─ RELEASE ─► INIT   Release
//
// Clients do not renew their leases.

// errRefused is the error for a DHCPNAK.
var errRefused = errors.New("refused (DHCPNAK)")

// Lease gives up after maxRefusals refusals in succession. Between them it makes random pauses, of at most firstPause
// at first and lastPause in the end. dnsmasq offers one address to every client that asks before one of them has taken
// it, and then refuses the others. Of a thousand clients at once some are refused a dozen times; the pauses make that
// rarer.
const (
	maxRefusals = 50
	firstPause  = 20 * time.Millisecond
	lastPause   = 500 * time.Millisecond
)

// Lease leases an address for the client with the hardware address mac: DISCOVER, OFFER, REQUEST, ACK. It repeats each
// message while there is no answer, and begins anew when the server refuses. It returns the lease, how often the client
// asked, and an error when the client gave up or ctx has ended.
func (d *DHCP) Lease(ctx context.Context, mac MAC) (Lease, Tries, error) {
	tries := Tries{Count: 1}
	pause := firstPause
	for n := 1; ; n++ {
		l, err := d.lease(ctx, mac, &tries)
		if !errors.Is(err, errRefused) || n == maxRefusals {
			return l, tries, err
		}
		tries.Add(Tries{1, err})
		select {
		case <-ctx.Done():
			return l, tries, context.Cause(ctx)
		case <-time.After(rand.N(pause)):
		}
		pause = min(2*pause, lastPause)
	}
}

// lease is one attempt of Lease. Its error wraps errRefused when the server refuses.
func (d *DHCP) lease(ctx context.Context, mac MAC, tries *Tries) (Lease, error) {
	id, x := d.await(mac)
	defer d.forget(id)
	discover, err := d.message(id, mac, Lease{}, dhcpv4.MessageTypeDiscover)
	if err != nil {
		return Lease{}, err
	}
	offer, err := x.ask(ctx, d, discover, tries, func(r reply) bool {
		return r.MessageType() == dhcpv4.MessageTypeOffer && r.ServerIdentifier() != nil
	})
	if err != nil {
		return Lease{}, fmt.Errorf("discovering a server: %w", err)
	}
	request, err := d.message(id, mac, Lease{}, dhcpv4.MessageTypeRequest,
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(offer.YourIPAddr)),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(offer.ServerIdentifier())))
	if err != nil {
		return Lease{}, err
	}
	return x.confirm(ctx, d, request, tries)
}

// confirm sends a REQUEST and waits for the server's ACK or NAK. Its error wraps errRefused for a NAK.
func (x exchange) confirm(ctx context.Context, d *DHCP, frame []byte, tries *Tries) (Lease, error) {
	r, err := x.ask(ctx, d, frame, tries, func(r reply) bool {
		return r.MessageType() == dhcpv4.MessageTypeAck || r.MessageType() == dhcpv4.MessageTypeNak
	})
	if err == nil && r.MessageType() == dhcpv4.MessageTypeNak {
		err = fmt.Errorf("%w %s", errRefused, r.Message())
	}
	if err != nil {
		return Lease{}, fmt.Errorf("requesting an address: %w", err)
	}
	return r.lease()
}

// Release gives a lease back by one message, which servers do not answer (RFC 2131, 4.4.6).
func (d *DHCP) Release(mac MAC, l Lease) error {
	return d.sendOnce(d.message(
		newID(), mac, l, dhcpv4.MessageTypeRelease, dhcpv4.WithOption(dhcpv4.OptServerIdentifier(l.Server.AsSlice()))))
}

// Decline tells the server that another host has the address of a lease (RFC 2131, 4.4.4). Servers do not answer.
func (d *DHCP) Decline(mac MAC, l Lease) error {
	return d.sendOnce(d.message(newID(), mac, Lease{}, dhcpv4.MessageTypeDecline,
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(l.Addr.Addr().AsSlice())),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(l.Server.AsSlice()))))
}

// Ask sends an ARP request for the router's hardware address, as clients do before their first packet. The router
// learns the client's hardware address from it. Ask does not wait for the answer, and does nothing for a lease without
// router.
func (d *DHCP) Ask(mac MAC, l Lease) error {
	if !l.Router.IsValid() {
		return nil
	}
	return d.sendOnce(arpRequest(mac, l.Addr.Addr(), l.Router))
}

// sendOnce sends a frame without waiting for an answer. err is the error of making the frame.
func (d *DHCP) sendOnce(frame []byte, err error) error {
	if err != nil {
		return err
	}
	return d.send(frame)
}

// message makes the frame of a client's DHCP message, with the options in more. With a lease it is for the lease's
// server, without one (the zero Lease) it is a broadcast.
func (d *DHCP) message(id dhcpv4.TransactionID, mac MAC, l Lease, kind dhcpv4.MessageType, more ...dhcpv4.Modifier) (
	[]byte, error) {
	more = append(more, dhcpv4.WithTransactionID(id), dhcpv4.WithHwAddr(mac[:]), dhcpv4.WithMessageType(kind))
	to, src, dst := broadcast, netip.IPv4Unspecified(), broadcastAddr
	if l.Addr.IsValid() {
		to, src, dst = l.From, l.Addr.Addr(), l.Server
		more = append(more, dhcpv4.WithClientIP(src.AsSlice()))
	} else {
		more = append(more, dhcpv4.WithBroadcast(!d.SingleClient))
	}
	if kind == dhcpv4.MessageTypeDiscover || kind == dhcpv4.MessageTypeRequest {
		more = append(more, dhcpv4.WithRequestedOptions(
			dhcpv4.OptionSubnetMask, dhcpv4.OptionRouter, dhcpv4.OptionDomainNameServer, dhcpv4.OptionIPAddressLeaseTime))
	}
	m, err := dhcpv4.New(more...)
	if err != nil {
		return nil, fmt.Errorf("making a %s: %w", kind, err)
	}
	return datagram(
		mac, to, netip.AddrPortFrom(src, dhcpv4.ClientPort), netip.AddrPortFrom(dst, dhcpv4.ServerPort), m.ToBytes())
}

// lease reads the lease from an ACK.
func (r reply) lease() (Lease, error) {
	ip, ok := netip.AddrFromSlice(r.YourIPAddr.To4())
	if !ok || ip.IsUnspecified() {
		return Lease{}, errors.New("reading the lease: it has no address")
	}
	ones, bits := r.SubnetMask().Size()
	if bits != 32 {
		return Lease{}, errors.New("reading the lease: it has no subnet mask")
	}
	l := Lease{Addr: netip.PrefixFrom(ip, ones), From: r.from}
	if rs := r.Router(); len(rs) > 0 {
		l.Router, _ = netip.AddrFromSlice(rs[0].To4())
	}
	l.Server, _ = netip.AddrFromSlice(r.ServerIdentifier().To4())
	return l, nil
}
