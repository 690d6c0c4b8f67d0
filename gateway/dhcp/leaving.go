package dhcp

import (
	"cmp"
	"net"
	"net/netip"
	"time"
)

// pendingRelease is a RELEASE or DECLINE whose client is being asked whether it still uses the address.
type pendingRelease struct{ declines bool }

// defaultGoodbye is how long a client that has sent a RELEASE or DECLINE may take to give up its address.
const defaultGoodbye = time.Second

// ignoreLeavesFor is how long further RELEASEs and DECLINEs of a client are ignored after it has answered, as a
// multiple of defaultGoodbye. So a flood of them causes only two questions a minute.
const ignoreLeavesFor = 30

// Nothing in a RELEASE or DECLINE proves its sender. Another device could send it with the client's MAC address and
// identifier, and so end the client's session. Therefore the server asks the client: one that answers for its address
// has not left it.

// releaseIfGone calls action for a leased address if its client does not answer for it. A REQUEST of the client
// meanwhile withdraws a RELEASE. s.mu is held, also while action runs.
func (s *Server) releaseIfGone(b *binding, message pendingRelease, action func(now time.Time)) {
	if s.cfg.Present == nil || b.at.Via != (MAC{}) { // ARP does not reach behind a router
		action(time.Now())
		return
	}
	patience := cmp.Or(s.cfg.askAfter, defaultGoodbye)
	if now := time.Now(); !b.answered.IsZero() && now.Sub(b.answered) < ignoreLeavesFor*patience {
		s.stats.stillThere.Add(1)
		return
	}
	if b.release != nil {
		return // the client is being asked already
	}
	mine := &message
	b.release = mine
	c, addr := b.client, b.addr
	s.asking.Go(func() {
		found, err := s.present(patience, c.mac, addr)
		s.mu.Lock()
		defer s.mu.Unlock()
		if b.release != mine { // withdrawn, or the lease has ended
			return
		}
		b.release = nil
		if found {
			b.answered = time.Now()
		}
		if !found && err == nil {
			action(time.Now())
			return
		}
		s.stats.stillThere.Add(1)
		s.forged.Do(func() {
			reason := "still answers for it, so the lease goes on: another device may send with its MAC address"
			if err != nil {
				reason = "could not be asked whether it is still there, so the lease goes on"
			}
			s.log.Warn("a client was reported to leave its address and "+reason, "mac", net.HardwareAddr(c.mac[:]).String(),
				"addr",
				addr, "err", err)
		})
	})
}

// present asks a client that has announced its leave.
func (s *Server) present(patience time.Duration, mac MAC, addr netip.Addr) (bool, error) {
	wait := time.NewTimer(patience)
	defer wait.Stop()
	select {
	case <-wait.C:
		return s.cfg.Present(s.questions, mac, addr)
	case <-s.questions.Done():
		return false, s.questions.Err()
	}
}

// keepLease notes that a client wants to keep its lease after all. It returns false while a DECLINE is being decided: a
// client that does not use an address then gets no answer, and asks again. addr is the address that it names.
func (s *Server) keepLease(rq *request, addr netip.Addr) bool {
	b := rq.segment.table.byClient[rq.segment.table.matching(rq.client, addr)]
	switch {
	case b == nil || b.release == nil:
		return true
	case b.release.declines && rq.ciaddr != b.addr:
		return false
	}
	b.release = nil
	return true
}

// leaseOf returns a client's lease of addr, or nil.
func (t *table) leaseOf(c client, addr netip.Addr) *binding {
	if b := t.byClient[t.matching(c, addr)]; b != nil && b.addr == addr && b.state == leased {
		return b
	}
	return nil
}
