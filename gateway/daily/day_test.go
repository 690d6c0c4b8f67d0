package daily

import (
	"testing"
	"time"
	_ "time/tzdata" // the machine may have no zones
)

// TestDays: whatever the zone's clock does, days follow each other without a gap and have 23 to 25 hours: those of
// Santiago skip midnight itself, and Lord Howe's clock is set by half an hour.
func TestDays(t *testing.T) {
	for _, name := range []string{"UTC", "Europe/Berlin", "America/Santiago", "Australia/Lord_Howe", "Africa/Cairo"} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, minutes := range []time.Duration{0, 90, 150, 240, 23*60 + 30} {
			begins := minutes * time.Minute
			c := Clock{begins, zone}
			at := time.Date(2025, 12, 31, 12, 0, 0, 0, zone)
			_, last := c.Day(at)
			for range 400 {
				begin, next := c.Day(last)
				if length := next.Sub(begin); !begin.Equal(last) || length < 23*time.Hour || length > 25*time.Hour {
					t.Errorf("%s, %v: the day of %v is from %v to %v", name, begins, last, begin, next)
				}
				for _, inside := range []time.Time{begin.Add(time.Minute), begin.Add(3 * time.Hour), next.Add(-1)} {
					if b, n := c.Day(inside); !b.Equal(begin) || !n.Equal(next) {
						t.Errorf("%s, %v: %v is of the day from %v to %v, not from %v to %v", name, begins, inside, b, n, begin, next)
					}
				}
				last = next
			}
		}
	}
}
