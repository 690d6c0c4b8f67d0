package cluster

import (
	"strconv"
	"time"
)

// reading is what the store's clock said at a moment.
type reading struct {
	at    time.Time // with its monotonic reading; zero: nobody has asked yet
	store time.Time
}

// now returns the store's present time.
func (r reading) now() time.Time { return r.store.Add(time.Since(r.at)) }

// parseTime reads what Redis's TIME answers: seconds and microseconds.
func parseTime(seconds, micros any) (time.Time, bool) {
	a, _ := seconds.(string)
	b, _ := micros.(string)
	s, err1 := strconv.ParseInt(a, 10, 64)
	u, err2 := strconv.ParseInt(b, 10, 64)
	return time.Unix(s, u*1000), err1 == nil && err2 == nil
}

// Line tells on which time line the times in a gateway's records of a kind are: at converts a time of the wall clock.
// Without it they are of the wall clock.
func (s *Store) Line(kind string, at func(time.Time) time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines[kind] = at
}

// Shift returns what to add to times in another gateway's records of a kind, to have times on this gateway's line for
// that kind. It is not known before both gateways have asked the store for its time. It is exact to clockStep and a
// round trip.
func (s *Store) Shift(kind, gateway string) (shift time.Duration, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	theirs, known := s.others[gateway].Clocks[kind]
	if !known || s.clock.at.IsZero() {
		return 0, false
	}
	return time.Duration(theirs)*time.Microsecond - s.ahead(kind), true
}

// clockStep is by how much a gateway's clock must have moved against the store's before it says so.
const clockStep = 20 * time.Millisecond

// Moment returns when in the store's time a time in a gateway's records of a kind is, by what that gateway, which may
// be this one, has said of its clock. All gateways have the same answer, but for the two seconds in which they hear
// that a clock has moved. It is not known of a gateway that has not said it yet, and never of a pair's site.
func (s *Store) Moment(kind, gateway string, onLine time.Time) (at time.Time, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ahead, known := s.others[gateway].Clocks[kind]
	return onLine.Add(time.Duration(ahead) * time.Microsecond), known
}

// steadily is ahead in microseconds, as this gateway said before if that is still about right. mu is held.
func (s *Store) steadily(kind string) int64 {
	ahead := s.ahead(kind)
	said, known := s.others[s.Gateway].Clocks[kind]
	if known && (ahead-time.Duration(said)*time.Microsecond).Abs() < clockStep {
		return said
	}
	return ahead.Microseconds()
}

// ahead returns how far the store's clock is ahead of a kind's line. mu is held.
func (s *Store) ahead(kind string) time.Duration {
	now := time.Now()
	onLine := now
	if line := s.lines[kind]; line != nil {
		onLine = line(now)
	}
	return s.clock.store.Add(now.Sub(s.clock.at)).Sub(onLine.Round(0))
}
