package admission

import (
	"sync/atomic"
	"time"
)

// meters are the state of an address's rate limits. They outlive the bounds: a
// client that is told its limits again gets no second burst.
type meters struct{ up, down meter }

// meter is a virtual clock that runs no more than the burst behind the real one and
// not before it.
type meter struct {
	used atomic.Int64 // the moment up to which the rate has been used
	told atomic.Int64 // how much of the burst was used when TCP was last told so, ns; 0: not lately
}

// Burst is how long a client that was silent may send at any rate, as bits of its
// limit: rate limits are token buckets. Half of it is what TCP leaves unused after a
// loss and makes up for later, half is where it is told in time that it has come to
// its rate; never less than the largest aggregated packet.
const Burst = time.Second

const burstBytes = 2 * 65536

// take takes the time that bytes need from what is left of it, and says whether they
// may pass. Two threads that meter one client at once try again.
func (m *meter) take(psPerByte uint64, burst int64, bytes uint64, now int64) bool {
	need := int64(bytes * psPerByte / 1000)
	for range 8 {
		was := m.used.Load()
		used := max(was, now-burst)
		if was == 0 { // never used, however long the burst is and young the clock
			used = now - burst
		}
		if used+need > now || m.isEarly(burst-(now-used), burst) {
			return false
		}
		if m.used.CompareAndSwap(was, used+need) {
			return true
		}
	}
	return false
}

// isEarly says whether to drop a packet although it would fit, so that TCP learns in
// time that it has come to its rate: one that is told only when all of the burst is
// used loses a window at once, falls far below its rate, and what it leaves unused
// beyond a burst is lost to it. Told it is where more than half of the burst is used
// and still more gets used: one packet for each sixteenth more. While less gets used,
// as after it has slowed down, it is left alone; told follows, at a distance that a
// window sent at once does not bridge.
func (m *meter) isEarly(used, burst int64) bool {
	told, half, step := m.told.Load(), burst/2, burst/16
	switch {
	case used < half:
		if told != 0 {
			m.told.Store(0)
		}
	case used >= max(told, half)+step:
		m.told.Store(used)
		return true
	case used+step < told:
		m.told.Store(used + step)
	}
	return false
}
