package daily

import "time"

// Clock is the hour at which days begin, in a zone.
type Clock struct {
	Begins time.Duration // since midnight, by the clock on the wall: 4h is "04:00"
	Zone   *time.Location
}

// on returns the begin of the day of a date. Where the zone's clock skips that hour, it is the hour before or behind.
func (c Clock) on(year int, month time.Month, day int) time.Time {
	return time.Date(year, month, day, 0, int(c.Begins/time.Minute), 0, 0, c.Zone)
}

// Day returns the begin of the day of a time, and that of the next day. A day has 23 to 25 hours, where the zone's
// clock is set.
func (c Clock) Day(t time.Time) (begin, next time.Time) {
	year, month, day := t.In(c.Zone).Date()
	for offset := -2; ; offset++ {
		if next = c.on(year, month, day+offset); next.After(t) {
			return begin, next
		}
		begin = next
	}
}
