// Package budget bounds how often each of many senders may have something done for it, with
// token buckets.
package budget

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// Rate is how often something may happen: EachSecond times a second on average, and AtOnce
// times after a silence of AtOnce/EachSecond seconds.
type Rate struct{ AtOnce, EachSecond int }

// Cost is the time in which the rate allows one, and Most the time in which it allows what
// may happen at once; nanoseconds.
func (r Rate) Cost() int64 { return int64(time.Second) / int64(r.EachSecond) }
func (r Rate) Most() int64 { return int64(r.AtOnce) * r.Cost() }

// began is time 0 of Now.
var began = time.Now().Add(-time.Hour)

// Now is a clock for Spend: nanoseconds that pass with CLOCK_MONOTONIC.
func Now() int64 { return int64(time.Since(began)) }

// Clock is one token bucket: the time up to which the rate has been used. It is never ahead
// of the caller's clock. The zero value is a full bucket.
type Clock struct{ used atomic.Int64 }

// Spend takes one from the bucket, and reports whether there was one. now is of any clock
// that is the same for all calls. If threads spend at once, one of them tries again.
func (c *Clock) Spend(r Rate, now int64) bool {
	for range 8 {
		was := c.used.Load()
		next, ok := spend(was, r, now)
		if !ok {
			return false
		}
		if c.used.CompareAndSwap(was, next) {
			return true
		}
	}
	return false
}

func spend(used int64, r Rate, now int64) (next int64, ok bool) {
	full := now - r.Most()
	if used == 0 { // never used, whatever the clock's age
		used = full
	}
	next = max(used, full) + r.Cost()
	return next, next <= now
}

// Senders are the token buckets of many senders with the same rate. It remembers up to Size
// senders; while it is full of senders whose buckets are not full again, further ones are not
// bounded: a device that makes up names faster than buckets fill escapes its bound in this way.
type Senders[K comparable] struct {
	Rate Rate
	Size int

	mu      sync.Mutex // guards what follows
	used    map[K]int64
	swept   int64
	refused uint64
}

// Spend takes one from a sender's bucket, and reports whether there was one.
func (s *Senders[K]) Spend(k K, now int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used == nil {
		s.used = map[K]int64{}
	}
	was, known := s.used[k]
	next, ok := spend(was, s.Rate, now)
	if !ok {
		s.refused++
		return false
	}
	if known || s.hasSpace(now) {
		s.used[k] = next
	}
	return true
}

// hasSpace reports whether another sender can be remembered, after it has forgotten those
// whose buckets are full again; it looks for these once a second. mu is held.
func (s *Senders[K]) hasSpace(now int64) bool {
	if len(s.used) >= s.Size && now-s.swept > int64(time.Second) {
		s.swept = now
		maps.DeleteFunc(s.used, func(_ K, used int64) bool { return used+s.Rate.Most() <= now })
	}
	return len(s.used) < s.Size
}

// Refused counts the calls of Spend that returned false.
func (s *Senders[K]) Refused() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}
