package dns

import (
	"maps"
	"net/netip"
	"time"
)

// reopenMargin is how much an address's closing time must grow to open it again, so that
// frequent queries cost the data path little. It is less than openGrace.
const reopenMargin = 30 * time.Second

// open opens an address before the answer that contains it is sent. It returns when the
// address is open, also when another goroutine opens it. It never shortens the time that
// an address is open.
func (s *Server) open(o opening, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	until := o.until(now)
	before, known := s.opened[o.addr]
	if known && until.Sub(before) < reopenMargin {
		return
	}
	if !known && !s.hasSpace(now) {
		s.stats.openRefused.Add(1)
		return
	}
	if err := s.opener.Open(netip.PrefixFrom(o.addr, o.addr.BitLen()), until); err != nil {
		s.stats.openErrors.Add(1)
		s.unopened.Do(func() {
			s.log.Error("opening an address of the walled garden", "addr", o.addr, "name", name, "err", err)
		})
		return
	}
	s.opened[o.addr] = until
	s.stats.opened.Add(1)
	s.log.Debug("opened an address of the walled garden", "addr", o.addr, "name", name, "until", until)
}

// hasSpace reports whether another address may be opened. s.mu is held.
func (s *Server) hasSpace(now time.Time) bool {
	if len(s.opened) >= maxOpened {
		maps.DeleteFunc(s.opened, func(_ netip.Addr, end time.Time) bool { return end.Before(now) })
	}
	return len(s.opened) < maxOpened
}
