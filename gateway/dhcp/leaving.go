package dhcp

import (
	"cmp"
	"net"
	"net/netip"
	"time"
)

// leaving is what a client with a lease has announced about it.
type leaving uint8

const (
	staying   leaving = iota
	releasing         // RELEASE
	declining         // DECLINE
)

// defaultGoodbye is how long a client that has sent a RELEASE or DECLINE may take to give
// up its address.
const defaultGoodbye = time.Second

// Nothing in a RELEASE or DECLINE proves its sender: another device can send it with the
// client's MAC address and identifier, and would end the client's session. Therefore the
// client is asked: one that answers for its address has not left it.

// leave calls do for a leased address when its client does not answer for it. A REQUEST
// of the client meanwhile withdraws a RELEASE. s.mu is held, also while do runs.
func (s *Server) leave(b *binding, how leaving, do func(now time.Time)) {
	if s.cfg.Present == nil {
		do(time.Now())
		return
	}
	if b.leaving != staying {
		return // being asked
	}
	b.leaving = how
	c, addr := b.client, b.addr
	s.asking.Go(func() {
		there, err := s.present(c.mac, addr)
		s.mu.Lock()
		defer s.mu.Unlock()
		if b.leaving != how || b.client != c {
			return
		}
		b.leaving = staying
		if !there && err == nil {
			do(time.Now())
			return
		}
		s.stats.stillThere.Add(1)
		s.forged.do(func() {
			s.log.Warn("a client was reported to leave its address but still answers for it, so the lease goes on: another device may send with its MAC address",
				"mac", net.HardwareAddr(c.mac[:]).String(), "addr", addr, "err", err)
		})
	})
}

// present asks a client that has announced its leave.
func (s *Server) present(mac MAC, addr netip.Addr) (bool, error) {
	wait := time.NewTimer(cmp.Or(s.cfg.goodbye, defaultGoodbye))
	defer wait.Stop()
	select {
	case <-wait.C:
		return s.cfg.Present(s.asked, mac, addr)
	case <-s.asked.Done():
		return false, s.asked.Err()
	}
}

// stays notes that a client wants to keep its lease after all. It returns false while
// a DECLINE is being decided: the client then gets no answer, and asks again.
func (s *Server) stays(c client) bool {
	b := s.table.byClient[c]
	switch {
	case b == nil || b.leaving == staying:
		return true
	case b.leaving == declining:
		return false
	}
	b.leaving = staying
	return true
}

// leaseOf returns a client's lease of addr, or nil.
func (t *table) leaseOf(c client, addr netip.Addr) *binding {
	if b := t.byClient[c]; b != nil && b.addr == addr && b.state == leased {
		return b
	}
	return nil
}
