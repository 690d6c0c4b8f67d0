package persona

import (
	"context"
	"net/netip"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// Rejoin is how a client comes back to a network it had an address in: it asks for
// that address without looking for servers (INIT-REBOOT, RFC 2131, 4.3.2).
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

// Renew extends a lease by asking its server alone (RENEWING, RFC 2131, 4.4.5).
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
