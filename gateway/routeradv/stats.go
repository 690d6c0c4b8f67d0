package routeradv

import "sync/atomic"

// Stats are a server's counts since New, and how many clients it remembers.
type Stats struct {
	Solicited   uint64 // advertisements that answered solicitations
	Unsolicited uint64 // other ones
	Refused     uint64 // without an answer: too many solicitations, a client that is told nothing, a wrong advertisement
	Malformed   uint64 // frames that are no solicitation and no advertisement, or that pretend to be the gateway's
	Rogue       uint64 // advertisements of other routers
	SendErrors  uint64

	Clients int // that have been told something, or wait for an answer
}

// counters are the counters of a server, which Stats copies.
type counters struct {
	solicited, unsolicited, refused, malformed, rogue, sendErrors atomic.Uint64
}

// Stats returns the present figures.
func (s *Server) Stats() Stats {
	c := &s.stats
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{
		Solicited: c.solicited.Load(), Unsolicited: c.unsolicited.Load(), Refused: c.refused.Load(),
		Malformed: c.malformed.Load(), Rogue: c.rogue.Load(), SendErrors: c.sendErrors.Load(),
		Clients: len(s.clients),
	}
}
