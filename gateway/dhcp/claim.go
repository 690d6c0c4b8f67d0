// Addresses that devices use without a lease.

package dhcp

import (
	"net"
	"net/netip"
	"time"
)

// Claim sets an address aside for a device that uses it without a lease, until Unclaim. Nobody else is offered it; the
// device itself may lease it where it is in a pool, unless it is behind a repeater. It returns false where the address
// is leased, offered or reserved to somebody, another device's claim, or behind a relay. It may be outside the pools.
// Claims are not stored.
func (s *Server) Claim(mac MAC, addr netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	link := s.segmentOf(addr)
	return !link.routed && link.table.claim(mac, addr, time.Now())
}

// Unclaim ends a device's claim. An address that is no claim of the device's stays as it is.
func (s *Server) Unclaim(mac MAC, addr netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.lan().table.claimOf(mac, addr); b != nil {
		s.lan().table.free(b, time.Now())
	}
}

// HasClaim reports whether an address is a device's claim.
func (s *Server) HasClaim(mac MAC, addr netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lan().table.claimOf(mac, addr) != nil
}

// Claims returns all claims, with MAC and Addr only.
func (s *Server) Claims() (all []Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := &s.lan().table.queues[claimed]
	for b := q.first(); b != nil && b != &q.ring; b = b.next {
		all = append(all, Lease{MAC: net.HardwareAddr(b.client.mac[:]), Addr: b.addr})
	}
	return all
}

// claim is Claim.
func (t *table) claim(mac MAC, addr netip.Addr, now time.Time) bool {
	if addr == t.cfg.Server {
		return false
	}
	if owner, static := t.statics[addr]; static && owner != mac {
		return false
	}
	b := t.bindingOf(addr)
	switch {
	case b.state == claimed:
		return b.client.mac == mac
	case b.state.isHeld():
		return false
	}
	t.removeClient(b)
	b.client = client{mac: mac} // not in byClient, which has the addresses that clients know of by DHCP
	t.move(b, claimed, now)
	return true
}

// claimOf returns the binding of a device's claim, or nil.
func (t *table) claimOf(mac MAC, addr netip.Addr) *binding {
	if b := t.byAddr[addr]; b != nil && b.state == claimed && b.client.mac == mac {
		return b
	}
	return nil
}

// vacate frees a claim. Free addresses outside the pools have no binding.
func (t *table) vacate(b *binding) {
	if b.pool < len(t.cfg.Pools) {
		t.move(b, blank, time.Time{})
		t.removeClient(b)
		return
	}
	t.queueOf(b).remove(b)
	delete(t.byAddr, b.addr)
}
