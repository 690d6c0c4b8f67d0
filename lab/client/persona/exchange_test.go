package persona

import (
	"context"
	"net/netip"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// The exchanges in this file are sent by real clients and not by the lab's. Tests use them to try a gateway's DHCP
// server: see Lease in exchange.go for the ones that the lab uses.

// Rejoin requests an address that the client had before, without discovering servers first (INIT-REBOOT, RFC 2131,
// 4.3.2), as clients do that return to a network. It returns the lease and how often the client asked. A server that
// refuses is an error.
func (d *DHCP) Rejoin(ctx context.Context, mac MAC, addr netip.Addr) (Lease, Tries, error) {
	id, x := d.await(mac)
	defer d.forget(id)
	tries := Tries{Count: 1}
	frame, err := d.message(
		id, mac, Lease{}, dhcpv4.MessageTypeRequest, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(addr.AsSlice())))
	if err != nil {
		return Lease{}, tries, err
	}
	l, err := x.confirm(ctx, d, frame, &tries)
	return l, tries, err
}

// Renew extends a lease by a request to the server that gave it (RENEWING, RFC 2131, 4.4.5). It returns the new lease
// and how often the client asked. A server that refuses is an error.
func (d *DHCP) Renew(ctx context.Context, mac MAC, old Lease) (Lease, Tries, error) {
	id, x := d.await(mac)
	defer d.forget(id)
	tries := Tries{Count: 1}
	frame, err := d.message(id, mac, old, dhcpv4.MessageTypeRequest)
	if err != nil {
		return Lease{}, tries, err
	}
	l, err := x.confirm(ctx, d, frame, &tries)
	return l, tries, err
}
