package session

import (
	"net/netip"
	"slices"
)

// Cutter ends the connections of clients that have left. Its methods do not call the table.
type Cutter interface {
	// End ends connections from and to these addresses and networks before it returns.
	End(of ...netip.Prefix)
	// EndSoon is End within seconds, which costs less.
	EndSoon(of ...netip.Prefix)
	// Ended returns once all connections of an address have ended of which End or EndSoon was told.
	Ended(netip.Addr)
}

// Cut has by end the connections of an address whose client has changed or whose session has ended, and of the networks
// that were behind it, once the data path lets nobody use them: before the end of the session is written, and of what clients use
// without a session at the latest before the next client is admitted. A client that logs in as the same user again
// keeps its connections. Cut must be called before the table is used.
func (t *Table) Cut(by Cutter) { t.cutter = by }

// none is the Cutter of a table without one.
type none struct{}

func (none) End(...netip.Prefix)     {}
func (none) EndSoon(...netip.Prefix) {}
func (none) Ended(netip.Addr)        {}

// leaves returns what an entry does not have in common with the next one, which is nil for none.
func (e *entry) leaves(next *entry) []netip.Prefix {
	if e.state == "" {
		return nil
	}
	over := e.state == Authenticated && next != nil && (next.state != Authenticated || next.user != e.user)
	if next == nil || next.key != e.key || over {
		return append([]netip.Prefix{netip.PrefixFrom(e.key.Addr, e.key.Addr.BitLen())}, e.line.Routes...)
	}
	return slices.DeleteFunc(slices.Clone(e.line.Routes), func(p netip.Prefix) bool { return slices.Contains(next.line.Routes, p) })
}
