package dns

import "sync/atomic"

// Stats are a server's counts since New.
type Stats struct {
	Queries   uint64 // received
	Forwarded uint64 // answered by an upstream
	Local     uint64 // answered here
	Refused   uint64 // answered with an error: ANY, zone transfers, malformed …
	Failed    uint64 // no upstream answered
	Garbage   uint64 // dropped: not a query
	Foreign   uint64 // dropped: not from a client's prefix
	Busy      uint64 // dropped: queries and connections beyond the limits of those in progress
	Throttled uint64 // dropped: beyond an unauthenticated client's budget, or what any device may send

	Opened      uint64 // calls of the Opener
	OpenErrors  uint64
	OpenRefused uint64 // not opened: too many are open

	InFlight int // queries at the moment
}

// counters are the counters of a server, which Stats copies.
type counters struct {
	queries, forwarded, local, refused, failed, garbage, foreign atomic.Uint64
	opened, openErrors, openRefused                              atomic.Uint64
}

// Stats returns the present counts.
func (s *Server) Stats() Stats {
	c := &s.stats
	busy, inFlight := s.queries.state()
	conns, _ := s.conns.state()
	return Stats{
		Queries: c.queries.Load(), Forwarded: c.forwarded.Load(), Local: c.local.Load(), Refused: c.refused.Load(),
		Failed: c.failed.Load(), Garbage: c.garbage.Load(), Foreign: c.foreign.Load(), Busy: busy + conns,
		Throttled: s.budgets.refused() + s.queryBudgets.Refused(),
		Opened:    c.opened.Load(), OpenErrors: c.openErrors.Load(), OpenRefused: c.openRefused.Load(),
		InFlight: inFlight,
	}
}
