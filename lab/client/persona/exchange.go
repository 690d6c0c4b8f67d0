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

// errRefused is a server's DHCPNAK.
var errRefused = errors.New("refused (DHCPNAK)")

// mostRefusals in succession end the attempt to lease. dnsmasq offers the same address to
// every client that asks before one of them has taken it, and refuses the others. Of a
// thousand clients that come together some are refused a dozen times; random pauses make
// refusals rarer.
const (
	mostRefusals = 50
	firstPause   = 20 * time.Millisecond // at most, before beginning anew
	lastPause    = 500 * time.Millisecond
)

// Lease gets the client with the hardware address mac an address: DISCOVER, OFFER,
// REQUEST, ACK, and anew when the server refuses. Each message is sent again while
// there is no answer; ctx ends it.
func (d *DHCP) Lease(ctx context.Context, mac MAC) (Lease, Tries, error) {
	tries := Tries{Count: 1}
	pause := firstPause
	for n := 1; ; n++ {
		l, err := d.lease(ctx, mac, &tries)
		if !errors.Is(err, errRefused) || n == mostRefusals {
			return l, tries, err
		}
		tries.again(err)
		wait := time.NewTimer(rand.N(pause))
		select {
		case <-ctx.Done():
			wait.Stop()
			return l, tries, context.Cause(ctx)
		case <-wait.C:
		}
		pause = min(2*pause, lastPause)
	}
}

func (d *DHCP) lease(ctx context.Context, mac MAC, tries *Tries) (Lease, error) {
	id, x := d.await(mac)
	defer d.forget(id)
	discover, err := message(id, mac, dhcpv4.MessageTypeDiscover)
	if err != nil {
		return Lease{}, err
	}
	frame, err := toAll(mac, discover)
	if err != nil {
		return Lease{}, err
	}
	offer, err := x.ask(ctx, d, frame, tries, func(r reply) bool {
		return r.MessageType() == dhcpv4.MessageTypeOffer && r.ServerIdentifier() != nil
	})
	if err != nil {
		return Lease{}, fmt.Errorf("discovering a server: %w", err)
	}
	request, err := message(id, mac, dhcpv4.MessageTypeRequest,
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(offer.YourIPAddr)),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(offer.ServerIdentifier())))
	if err != nil {
		return Lease{}, err
	}
	if frame, err = toAll(mac, request); err != nil {
		return Lease{}, err
	}
	return x.confirm(ctx, d, frame, tries)
}

// confirm asks for an address and waits for the server's yes or no.
func (x exchange) confirm(ctx context.Context, d *DHCP, frame []byte, tries *Tries) (Lease, error) {
	r, err := x.ask(ctx, d, frame, tries, func(r reply) bool {
		return r.MessageType() == dhcpv4.MessageTypeAck || r.MessageType() == dhcpv4.MessageTypeNak
	})
	if err != nil {
		return Lease{}, fmt.Errorf("requesting an address: %w", err)
	}
	if r.MessageType() == dhcpv4.MessageTypeNak {
		return Lease{}, fmt.Errorf("requesting an address: %w %s", errRefused, r.Message())
	}
	return r.lease()
}

// Release gives a lease back: one message, never answered (RFC 2131, 4.4.6).
func (d *DHCP) Release(mac MAC, l Lease) error {
	id, _ := d.await(mac)
	d.forget(id)
	release, err := message(id, mac, dhcpv4.MessageTypeRelease, dhcpv4.WithClientIP(l.Addr.Addr().AsSlice()), dhcpv4.WithBroadcast(false),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(l.Server.AsSlice())))
	if err != nil {
		return err
	}
	frame, err := toServer(mac, l, release)
	if err != nil {
		return err
	}
	return d.send(frame)
}

// Decline tells the server that another client has the address it gave
// (RFC 2131, 4.4.4). It is never answered.
func (d *DHCP) Decline(mac MAC, l Lease) error {
	id, _ := d.await(mac)
	d.forget(id)
	decline, err := message(id, mac, dhcpv4.MessageTypeDecline,
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(l.Addr.Addr().AsSlice())),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(l.Server.AsSlice())))
	if err != nil {
		return err
	}
	frame, err := toAll(mac, decline)
	if err != nil {
		return err
	}
	return d.send(frame)
}

// Ask asks for the router's hardware address as a client does before its first
// packet. The router learns the client's from the question.
func (d *DHCP) Ask(mac MAC, l Lease) error {
	if !l.Router.IsValid() {
		return nil
	}
	frame, err := question(mac, l.Addr.Addr(), l.Router)
	if err != nil {
		return err
	}
	return d.send(frame)
}

// message is a client's message. It asks for its reply as a broadcast: a reply to an
// address that the client does not have yet would take an entry of the neighbour table,
// which has room for a thousand in the whole machine.
func message(id dhcpv4.TransactionID, mac MAC, kind dhcpv4.MessageType, more ...dhcpv4.Modifier) (*dhcpv4.DHCPv4, error) {
	all := append([]dhcpv4.Modifier{
		dhcpv4.WithTransactionID(id), dhcpv4.WithHwAddr(hardware(mac)), dhcpv4.WithBroadcast(true), dhcpv4.WithMessageType(kind),
	}, more...)
	if kind == dhcpv4.MessageTypeDiscover || kind == dhcpv4.MessageTypeRequest {
		all = append(all, dhcpv4.WithRequestedOptions(
			dhcpv4.OptionSubnetMask, dhcpv4.OptionRouter, dhcpv4.OptionDomainNameServer, dhcpv4.OptionIPAddressLeaseTime))
	}
	m, err := dhcpv4.New(all...)
	if err != nil {
		return nil, fmt.Errorf("making a %s: %w", kind, err)
	}
	return m, nil
}

// toAll is the frame of a message from a client that has no address.
func toAll(mac MAC, m *dhcpv4.DHCPv4) ([]byte, error) {
	return datagram(mac, broadcast, netip.AddrPortFrom(netip.IPv4Unspecified(), dhcpv4.ClientPort), netip.AddrPortFrom(anyone, dhcpv4.ServerPort), m.ToBytes())
}

// toServer is the frame of a message from a client that has the lease.
func toServer(mac MAC, l Lease, m *dhcpv4.DHCPv4) ([]byte, error) {
	return datagram(mac, l.From, netip.AddrPortFrom(l.Addr.Addr(), dhcpv4.ClientPort), netip.AddrPortFrom(l.Server, dhcpv4.ServerPort), m.ToBytes())
}

// lease reads an ACK.
func (r reply) lease() (Lease, error) {
	ip, ok := netip.AddrFromSlice(r.YourIPAddr.To4())
	if !ok || ip.IsUnspecified() {
		return Lease{}, errors.New("reading the lease: it has no address")
	}
	ones, bits := r.SubnetMask().Size()
	if bits != 32 {
		return Lease{}, errors.New("reading the lease: it has no subnet mask")
	}
	l := Lease{Addr: netip.PrefixFrom(ip, ones), From: r.from, Length: r.IPAddressLeaseTime(time.Hour)}
	if rs := r.Router(); len(rs) > 0 {
		l.Router, _ = netip.AddrFromSlice(rs[0].To4())
	}
	l.Server, _ = netip.AddrFromSlice(r.ServerIdentifier().To4())
	return l, nil
}
