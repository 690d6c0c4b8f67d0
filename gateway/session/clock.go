package session

import (
	"math"
	"time"
)

// moment is a time as the table counts it: nanoseconds since the table was opened, by
// the monotonic clock. A gateway without a battery starts in 1970 and learns the time
// later, which must not end its sessions. Times before the table was opened are
// negative.
type moment int64

// never is the moment of the zero time.
const never moment = math.MaxInt64

// after adds a duration without overflow.
func (m moment) after(d time.Duration) moment {
	if d > 0 && m > never-moment(d) {
		return never
	}
	return m + moment(d)
}

// clock converts moments to times and back, by the wall clock at the time of the call.
// Times read from a file are therefore converted once, and times given out are correct
// after the wall clock was set.
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
