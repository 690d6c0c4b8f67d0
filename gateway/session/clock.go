package session

import (
	"math"
	"time"

	"github.com/gateweigh/gateweigh/gateway/timeline"
)

// tableTime is a time as the table counts it: nanoseconds since the table was opened, by the monotonic clock. A gateway
// without a battery starts in 1970 and learns the time later, which must not end its sessions. Times before the table
// was opened are negative.
type tableTime int64

// zeroTime is the tableTime that stands for the zero time.Time, which means never.
const zeroTime tableTime = math.MaxInt64

// after adds a duration without overflow.
func (m tableTime) after(d time.Duration) tableTime {
	if d > 0 && m > zeroTime-tableTime(d) {
		return zeroTime
	}
	return m + tableTime(d)
}

// clock converts a tableTime to a time.Time and back, by the wall clock at the time of the call: times given out are
// correct after the wall clock was set. Times in the file are of a timeline.Line, which goes on across changes of the
// wall clock.
type clock struct {
	opened time.Time // when the table was opened, with the monotonic clock's reading
	filed  time.Time // the same moment as a time of the file
}

func newClock(line *timeline.Line) clock {
	now := time.Now()
	return clock{now, line.At(now)}
}

// inFile converts a tableTime to a time in the file, and ofFile converts a time in the file to a tableTime.
func (c clock) inFile(m tableTime) time.Time {
	if m == zeroTime {
		return time.Time{}
	}
	return c.filed.Add(time.Duration(m))
}

func (c clock) ofFile(t time.Time) tableTime {
	if t.IsZero() {
		return zeroTime
	}
	return tableTime(0).after(t.Sub(c.filed))
}

func (c clock) now() tableTime { return tableTime(time.Since(c.opened)) }

func (c clock) tableTime(t time.Time) tableTime {
	if t.IsZero() {
		return zeroTime
	}
	now := time.Now()
	return tableTime(now.Sub(c.opened)).after(t.Sub(now))
}

func (c clock) time(m tableTime) time.Time {
	if m == zeroTime {
		return time.Time{}
	}
	now := time.Now()
	return now.Add(time.Duration(m) - now.Sub(c.opened))
}
