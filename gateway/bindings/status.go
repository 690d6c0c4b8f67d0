// What the Server tells of itself, and its Table's methods for callers on other goroutines.

package bindings

import (
	"net/netip"
	"sync/atomic"
	"time"
)

// Stats are a server's counts since Open, and its table's.
type Stats struct {
	Table Counts

	Solicitations, Advertisements, RouterSolicitations uint64 // received, well-formed, within the budgets
	Redirects                                          uint64 // refused: only routers send them

	Malformed  uint64 // refused: not as RFC 4861 has it, or from another link
	Extensions uint64 // refused: extension headers, fragments among them (RFC 6980)
	Forged     uint64 // refused: names another MAC address than the frame's
	Throttled  uint64 // refused: too many of one MAC address, of new ones, or of all

	Asked, Defended, Proxied uint64 // sent
	SendErrors               uint64
}

// counters are what Stats copies.
type counters struct {
	solicitations, advertisements, routerSolicitations atomic.Uint64
	redirects                                          atomic.Uint64
	malformed, extensions, forged, throttled           atomic.Uint64
	asked, defended, proxied, sendErrors               atomic.Uint64
}

// Stats returns the present figures.
func (s *Server) Stats() Stats {
	c := &s.stats
	st := Stats{
		Solicitations: c.solicitations.Load(), Advertisements: c.advertisements.Load(),
		RouterSolicitations: c.routerSolicitations.Load(),
		Redirects:           c.redirects.Load(), Malformed: c.malformed.Load(), Extensions: c.extensions.Load(),
		Forged: c.forged.Load(), Throttled: c.throttled.Load(),
		Asked: c.asked.Load(), Defended: c.defended.Load(), Proxied: c.proxied.Load(), SendErrors: c.sendErrors.Load(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Table = s.table.Counts()
	return st
}

// List returns all bindings, in no order.
func (s *Server) List() []Binding {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.List()
}

// Owner returns who has an address.
func (s *Server) Owner(addr netip.Addr) (Anchor, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.Owner(addr)
}

// Of returns the addresses of an anchor, in the order in which it got them.
func (s *Server) Of(a Anchor) []netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.Of(a)
}

// Used is told of a packet that the data path took for no client's. The caller bounds how often that is.
func (s *Server) Used(a Anchor, addr netip.Addr) {
	s.change(func(t *Table, now time.Time) []Action { return t.Used(a, addr, now) })
}

// Assign binds an address that DHCPv6 or RADIUS gave an anchor: see Table.Assign.
func (s *Server) Assign(a Anchor, addr netip.Addr) (err error) {
	s.change(func(t *Table, now time.Time) (actions []Action) {
		actions, err = t.Assign(a, addr, now)
		return actions
	})
	return err
}

// Unassign ends an assigned address of an anchor: see Table.Unassign.
func (s *Server) Unassign(a Anchor, addr netip.Addr) {
	s.change(func(t *Table, now time.Time) []Action { return t.Unassign(a, addr, now) })
}

// End removes all addresses of an anchor, because its session has ended.
func (s *Server) End(a Anchor) {
	s.change(func(t *Table, now time.Time) []Action { return t.End(a, now) })
}

// Recheck removes the addresses that the network's present prefixes do not have. Call it when they have changed.
func (s *Server) Recheck() {
	s.change((*Table).Recheck)
}
