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

// Minutely is the rate of one event a minute.
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

// Spend takes a token from the bucket, and reports whether there was one. now is the time of any clock, the same one in
// all calls. If several threads spend at the same moment, all but one of them try again.
func (c *Clock) Spend(r Rate, now int64) bool { return c.take(r, 1, now, false) }

// Has reports whether n tokens are in the bucket.
func (c *Clock) Has(r Rate, n int, now int64) bool {
	return c.usedFrom(r, now, c.usedUntil.Load())+int64(n)*r.Cost() <= now
}

// Charge takes n tokens, also more than there are: then none can be spent until the missing ones have come in at the
// rate.
func (c *Clock) Charge(r Rate, n int, now int64) { c.take(r, n, now, true) }

// usedFrom is the time up to which the rate has been used, at least: the bucket holds no more than AtOnce.
func (c *Clock) usedFrom(r Rate, now, used int64) int64 {
	full := now - r.BucketSize()
	if used == 0 { // never used, whatever the clock's age
		return full
	}
	return max(used, full)
}

// take takes n tokens from the bucket, and reports whether it did. With owes it also takes tokens that the bucket does
// not have.
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

// Senders are the token buckets of many senders, with the same rate. It remembers the Size senders that sent last. It
// also bounds how often it begins to remember an unknown sender (Newcomers): at most Size times in the time in which a
// bucket fills. So a device that makes up senders' names gets no more than Size senders may, and takes nothing from
// senders that are remembered or that the caller knows. Other new senders compete with it.
type Senders[K comparable] struct {
	Rate Rate
	Size int

	mu       sync.Mutex // guards what follows
	bySender Recent[K, Clock]
	unknown  Clock
	refused  uint64
}

// Spend takes a token from a sender's bucket, and reports whether there was one. known: the caller knows that the
// sender is not made up, for example because it has a lease.
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

// Newcomers returns the rate at which Senders with a rate and a size begin to remember unknown senders: at most size of
// them in the time in which a bucket fills.
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
