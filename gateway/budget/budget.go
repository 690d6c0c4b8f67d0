// Package budget bounds how often something is done for each of many senders, with token buckets.
package budget

import (
	"sync"
	"sync/atomic"
	"time"
)

// Rate is how often something may happen: EachSecond times a second on average, and AtOnce times after a silence of
// AtOnce/EachSecond seconds.
type Rate struct {
	AtOnce     int
	EachSecond float64
}

// Minutely is once a minute.
var Minutely = Rate{AtOnce: 1, EachSecond: 1. / 60}

// Cost is the time in which the rate allows one event, in nanoseconds. BucketSize is the time in which it allows AtOnce
// events.
func (r Rate) Cost() int64       { return int64(float64(time.Second) / r.EachSecond) }
func (r Rate) BucketSize() int64 { return int64(r.AtOnce) * r.Cost() }

// clockOrigin is time 0 of Now.
var clockOrigin = time.Now().Add(-time.Hour)

// Now is a clock for Spend: nanoseconds that pass with CLOCK_MONOTONIC.
func Now() int64 { return int64(time.Since(clockOrigin)) }

// Clock is a token bucket that is stored as one time: the time up to which the rate has been used. Only Charge moves it
// ahead of the caller's clock. The zero value is a full bucket.
type Clock struct{ usedUntil atomic.Int64 }

// Spend takes one from the bucket, and reports whether there was one. now is of any clock that is the same for all
// calls. If threads spend at once, one of them tries again.
func (c *Clock) Spend(r Rate, now int64) bool { return c.take(r, 1, now, false) }

// Has reports whether n are in the bucket.
func (c *Clock) Has(r Rate, n int, now int64) bool {
	return c.usedFrom(r, now, c.usedUntil.Load())+int64(n)*r.Cost() <= now
}

// Charge takes n, also more than there are: then nothing can be spent until the rate has made up for them.
func (c *Clock) Charge(r Rate, n int, now int64) { c.take(r, n, now, true) }

// usedFrom is the time up to which the rate has been used, at least: the bucket holds no more than AtOnce.
func (c *Clock) usedFrom(r Rate, now, used int64) int64 {
	full := now - r.BucketSize()
	if used == 0 { // never used, whatever the clock's age
		return full
	}
	return max(used, full)
}

func (c *Clock) take(r Rate, n int, now int64, owes bool) bool {
	for range 8 {
		before := c.usedUntil.Load()
		next := c.usedFrom(r, now, before) + int64(n)*r.Cost()
		if next > now && !owes {
			return false
		}
		if c.usedUntil.CompareAndSwap(before, next) {
			return true
		}
	}
	return false
}

// Senders are token buckets of many senders with the same rate. It remembers the Size senders that sent last. How often
// an unknown sender is remembered is bounded too (Newcomers): at most Size in the time in which their buckets fill. So
// a device that makes up senders' names gets no more than Size senders may, and takes nothing from senders that are
// remembered or that the caller knows. New real senders compete with it.
type Senders[K comparable] struct {
	Rate Rate
	Size int

	mu       sync.Mutex // guards what follows
	bySender Recent[K, Clock]
	unknown  Clock
	refused  uint64
}

// Spend takes one from a sender's bucket, and reports whether there was one. known senders are real for another reason
// than that they send, such as a lease.
func (s *Senders[K]) Spend(k K, known bool, now int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sender := s.bySender.Get(k)
	if sender == nil && (known || s.unknown.Spend(Newcomers(s.Rate, s.Size), now)) {
		sender = s.bySender.Add(k, s.Size)
	}
	if sender != nil && sender.Spend(s.Rate, now) {
		return true
	}
	s.refused++
	return false
}

// Newcomers is how often senders of a rate are remembered where size of them can be: at most size in the time in which
// their buckets fill.
func Newcomers(each Rate, size int) Rate {
	half := size / 2
	return Rate{AtOnce: half, EachSecond: float64(half) * each.EachSecond / float64(each.AtOnce)}
}

// Refused counts the calls of Spend that returned false.
func (s *Senders[K]) Refused() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// OncePerMinute limits log messages that others can cause, so that they do not fill the log.
type OncePerMinute struct{ spent Clock }

// Do calls f, unless it did within the last minute.
func (s *OncePerMinute) Do(f func()) {
	if s.spent.Spend(Minutely, Now()) {
		f()
	}
}
