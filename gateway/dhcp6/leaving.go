package dhcp6

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
)

// leave is a RELEASE or DECLINE whose client is being asked whether it still uses the address.
type leave struct{ declines bool }

const (
	// defaultGoodbye is how long a client that has sent a RELEASE or DECLINE may take to give up its address.
	defaultGoodbye = time.Second
	// ignoreLeavesFor is how long further RELEASEs and DECLINEs of a client are ignored after it has answered, as a
	// multiple of that time. So a flood of them causes only two questions a minute.
	ignoreLeavesFor = 30
	// maxAsking bounds the clients that are asked at once. Leases of further ones go on until their end.
	maxAsking = 256
)

// Nothing in a RELEASE or DECLINE proves its sender. All messages of clients go to a multicast address, so another
// device of the LAN knows a client's DUID and IAIDs, and may send with its MAC address. Therefore the server asks the
// client: one that answers for its address has not left it. Delegated prefixes end at once, because nobody can be
// asked.

// giveUp carries out a RELEASE or DECLINE (RFC 8415, 18.3.7, 18.3.8).
func (s *Server) giveUp(rq *request, out *reply, result *outcome, declines bool) {
	out.options.Add(status(iana.StatusSuccess, ""))
	s.eachIA(rq, out, func(ia association, id identity) dhcpv6.Option {
		named := ia.names()
		s.noteForeign(rq, named)
		b := s.table.byClient[id]
		if b == nil || declines && ia.kind != Address {
			return ia.answer(nil, status(iana.StatusNoBinding, "there is no such lease"))
		}
		for _, it := range slices.Clone(b.items) {
			if !slices.Contains(named, it.prefix) {
				continue
			}
			if ia.kind == Delegated || s.cfg.Present == nil {
				s.end(it, declines, result, time.Now())
				continue
			}
			s.endIfGone(it, declines)
		}
		return nil
	})
}

// End ends the leases of a PPPoE session that has ended. It does not wait: events and the store are told later.
func (s *Server) End(c Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var result outcome
	now := time.Now()
	for _, b := range slices.Clone(s.table.sessions[c]) {
		for _, it := range slices.Clone(b.items) {
			s.end(it, false, &result, now)
		}
	}
	if len(result.ended) > 0 {
		s.push(c.MAC, result, nil)
	}
}

// end ends a lease that its client has left. s.mu is held.
func (s *Server) end(it *item, declines bool, result *outcome, now time.Time) {
	result.ended = append(result.ended, it.lease())
	result.touched = append(result.touched, it.owner.identity)
	if declines {
		s.table.setAside(it, now)
		s.inUse.Do(func() {
			s.log.Warn("a client found its address in use by another device: it is left alone for a while",
				"mac", hardware(it.owner.mac), "addr", it.prefix.Addr())
		})
		return
	}
	s.table.remove(it)
}

// endIfGone ends a lease of an address when its client does not answer for it. A REQUEST, RENEW or REBIND of the client
// meanwhile keeps it. s.mu is held.
func (s *Server) endIfGone(it *item, declines bool) {
	patience := cmp.Or(s.cfg.askAfter, defaultGoodbye)
	switch now := time.Now(); {
	case it.leave != nil: // being asked
		return
	case s.nowAsking >= maxAsking, !it.answered.IsZero() && now.Sub(it.answered) < ignoreLeavesFor*patience:
		s.stats.stillThere.Add(1)
		return
	}
	mine := &leave{declines}
	it.leave = mine
	s.nowAsking++
	mac, addr := it.owner.mac, it.prefix.Addr()
	s.asking.Go(func() {
		found, err := s.ask(patience, mac, addr)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.nowAsking--
		if it.leave != mine { // kept, or the lease has ended
			return
		}
		it.leave = nil
		if found {
			it.answered = time.Now()
		}
		if !found && err == nil {
			var result outcome
			s.end(it, mine.declines, &result, time.Now())
			s.push(mac, result, nil)
			return
		}
		s.stats.stillThere.Add(1)
		s.forged.Do(func() { s.logStillThere(mac, addr, err) })
	})
}

func (s *Server) logStillThere(mac MAC, addr netip.Addr, err error) {
	reason := "still answers for it, so the lease goes on: another device may send with its MAC address"
	if err != nil {
		reason = "could not be asked whether it is still there, so the lease goes on"
	}
	s.log.Warn("a client was reported to leave its address and "+reason, "mac", hardware(mac), "addr", addr, "err", err)
}

// ask asks a client that has announced its leave.
func (s *Server) ask(patience time.Duration, mac MAC, addr netip.Addr) (bool, error) {
	wait := time.NewTimer(patience)
	defer wait.Stop()
	select {
	case <-wait.C:
		return s.cfg.Present(s.questions, mac, addr)
	case <-s.questions.Done():
		return false, s.questions.Err()
	}
}
