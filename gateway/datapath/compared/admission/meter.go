package admission

import (
	"sync/atomic"
	"time"
)

// meters are the state of a client's rate limits, up and down. They outlive the bounds, so that setting a client's
// limits again grants no second burst.
type meters struct{ up, down meter }

// meter is a token bucket stored as a virtual clock: it lags the real clock by at most the burst, and is never ahead of
// it.
type meter struct {
	usedUntil atomic.Int64 // the time up to which the rate has been used
	dropped   atomic.Int64 // how much of the burst was used at the last early drop, ns; 0: none lately
}

// Burst is the traffic that a silent client may send at once, as the time in which its limit would allow it: rate
// limits are token buckets. One half lets TCP make up for what it leaves unused after a loss; in the other half isEarly
// signals TCP that it reaches its rate. The burst is never less than the largest aggregated packet.
const Burst = time.Second

const burstBytes = 2 * 65536

// take uses the time that bytes need, and reports whether they may pass. If two threads meter one client at once, one
// of them tries again.
func (m *meter) take(psPerByte uint64, burst int64, bytes uint64, now int64) bool {
	needed := int64(bytes * psPerByte / 1000)
	for range 8 {
		before := m.usedUntil.Load()
		used := max(before, now-burst)
		if before == 0 { // never used, whatever the burst and the clock's age
			used = now - burst
		}
		if used+needed > now || m.isEarly(burst-(now-used), burst) {
			return false
		}
		if m.usedUntil.CompareAndSwap(before, used+needed) {
			return true
		}
	}
	return false
}

// isEarly reports whether to drop a packet although it would fit, so that TCP notices in time that it has reached its
// rate. A TCP sender that notices only when the whole burst is used loses a window at once and falls far below its
// rate, and what it leaves unused beyond a burst is lost to it. When more than half of the burst is used and the use
// still grows, one packet is dropped for each further sixteenth. While the use shrinks, as after the sender has slowed
// down, no packet is dropped. m.dropped then shrinks too, but stays a sixteenth above the use, so that a window of
// packets sent at once causes no drop.
func (m *meter) isEarly(used, burst int64) bool {
	last, half, step := m.dropped.Load(), burst/2, burst/16
	switch {
	case used < half:
		if last != 0 {
			m.dropped.Store(0)
		}
	case used >= max(last, half)+step:
		m.dropped.Store(used)
		return true
	case used+step < last:
		m.dropped.Store(used + step)
	}
	return false
}
