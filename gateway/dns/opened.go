package dns

import (
	"maps"
	"net/netip"
	"time"
)

// reopenMargin is how much an address's closing time must grow to open it again, so that frequent queries cost the data
// path little. It is less than openGrace.
const reopenMargin = 30 * time.Second

// open opens an address before the answer that contains it is sent. It returns when the address is open, also when
// another goroutine opens it. It never shortens the time that an address is open.
func (s *Server) open(o opening, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	until := o.closesAt(now)
	key := openPlace{o.addr, o.gardenPort}
	before, known := s.opened[key]
	if known && until.Sub(before) < reopenMargin {
		return
	}
	if !known && !s.hasSpace(now) {
		s.stats.openRefused.Add(1)
		return
	}
	if err := s.carryOut(o, until); err != nil {
		s.stats.openErrors.Add(1)
		s.unopened.Do(func() {
			s.log.Error("opening an address of the walled garden", "addr", o.addr, "name", name, "err", err)
		})
		return
	}
	s.opened[key] = until
	s.stats.opened.Add(1)
	s.log.Debug("opened an address of the walled garden", "addr", o.addr, "name", name, "until", until)
}

// openPlace is what an answer opened or shut: a whole address, one port of it, or its HTTP.
type openPlace struct {
	addr netip.Addr
	port gardenPort
}

// carryOut has the data path open an address, a port of it, or shut its HTTP.
func (s *Server) carryOut(o opening, until time.Time) error {
	prefix := netip.PrefixFrom(o.addr, o.addr.BitLen())
	switch {
	case o.shut:
		return s.opener.ShutHTTP(prefix, until)
	case o.port != 0:
		return s.opener.OpenPort(prefix, o.protocol, o.port, until)
	}
	return s.opener.Open(prefix, until)
}

// hasSpace reports whether another address may be opened. s.mu is held.
func (s *Server) hasSpace(now time.Time) bool {
	if len(s.opened) >= maxOpened {
		maps.DeleteFunc(s.opened, func(_ openPlace, end time.Time) bool { return end.Before(now) })
	}
	return len(s.opened) < maxOpened
}
