package dhcp

import (
	"slices"
	"sync/atomic"
)

// Stats are a server's counts since New, and the present use of its addresses.
type Stats struct {
	Discovers, Requests, Declines, Releases, Informs uint64 // received
	Offers, Acks, Naks                               uint64 // sent

	Malformed  uint64 // not DHCP, or not for a server
	Relayed    uint64 // refused: came through a relay that is not in Relays
	BadAgent   uint64 // relay agent information that cannot be read, of messages that are answered without it
	Spoofed    uint64 // refused: hardware address is not the sender's
	Exhausted  uint64 // no answer: no address was free
	TooMany    uint64 // no answer: the MAC has its addresses
	Overloaded uint64 // no answer: the disk is behind
	Throttled  uint64 // not read: too many of one MAC

	StillThere     uint64 // RELEASE or DECLINE without effect: the client answers for its address
	Expired        uint64 // leases that ran out
	StoreErrors    uint64 // writes to the leases file that failed
	ListenerErrors uint64
	SendErrors     uint64

	Leased, Offered, DeclinedAddresses, Claimed int // addresses at the moment
	Pools                                       []PoolUse
}

// PoolUse is how many addresses of a pool are leased at the moment.
type PoolUse struct {
	Range
	Leased int
}

// counters are the counters of a server, which Stats copies.
type counters struct {
	discovers, requests, declines, releases, informs atomic.Uint64
	offers, acks, naks                               atomic.Uint64
	malformed, relayed, spoofed, badAgent            atomic.Uint64
	exhausted, tooMany, overloaded, stillThere       atomic.Uint64
	expired, storeErrors, listenerErrors, sendErrors atomic.Uint64
}

// Stats returns the present figures.
func (s *Server) Stats() Stats {
	c := &s.stats
	st := Stats{
		Discovers: c.discovers.Load(), Requests: c.requests.Load(), Declines: c.declines.Load(),
		Releases: c.releases.Load(), Informs: c.informs.Load(),
		Offers: c.offers.Load(), Acks: c.acks.Load(), Naks: c.naks.Load(),
		Malformed: c.malformed.Load(), Relayed: c.relayed.Load(), Spoofed: c.spoofed.Load(),
		BadAgent:  c.badAgent.Load(),
		Exhausted: c.exhausted.Load(), TooMany: c.tooMany.Load(), Overloaded: c.overloaded.Load(),
		StillThere: c.stillThere.Load(),
		Throttled:  s.senders.Refused(),
		Expired:    c.expired.Load(), StoreErrors: c.storeErrors.Load(),
		ListenerErrors: c.listenerErrors.Load(), SendErrors: c.sendErrors.Load(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, link := range s.segments {
		t := link.table
		st.Leased, st.Offered = st.Leased+t.leases(), st.Offered+t.queues[offered].count
		st.DeclinedAddresses += t.queues[declined].count
		st.Claimed += t.queues[claimed].count
		for i, r := range t.cfg.Pools {
			st.Pools = append(st.Pools, PoolUse{r, t.leasedIn[i]})
		}
	}
	slices.SortFunc(st.Pools, func(a, b PoolUse) int { return a.First.Compare(b.First) })
	return st
}
