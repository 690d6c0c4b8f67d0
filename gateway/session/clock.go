package session

import (
	"math"
	"time"
)

// moment is a time as the table counts it: nanoseconds since the table was
// opened, by the clock that nobody sets. A gateway without a battery starts in
// 1970 and learns the time later; its sessions must not end of that. What
// happened before the table was opened is negative.
type moment int64

// never is the moment of the zero time.
const never moment = math.MaxInt64

// after is m a while later, without running over.
func (m moment) after(d time.Duration) moment {
	if d > 0 && m > never-moment(d) {
		return never
	}
	return m + moment(d)
}

// clock turns moments into times and back. Both go by what the wall clock says
// at that instant, so times read from a file count from the wall clock, once,
// and times given out are right after it was set.
type clock struct{ opened time.Time } // with its monotonic reading

func (c clock) now() moment { return moment(time.Since(c.opened)) }

func (c clock) moment(t time.Time) moment {
	if t.IsZero() {
		return never
	}
	now := time.Now()
	return moment(now.Sub(c.opened)).after(t.Sub(now))
}

func (c clock) time(m moment) time.Time {
	if m == never {
		return time.Time{}
	}
	now := time.Now()
	return now.Add(time.Duration(m) - now.Sub(c.opened))
}
