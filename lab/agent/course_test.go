// A test of the times at which a host's meter is read in steps (a course).

package agent

import (
	"testing"
	"time"
)

// TestReadingsOfACourseAreBounded: readings come at multiples of the step, fewer where each is dear, and one that was
// late is not made up for.
func TestReadingsOfACourseAreBounded(t *testing.T) {
	const ms, us = time.Millisecond, time.Microsecond
	q := Course{Step: 100 * ms}
	for _, c := range []struct{ due, now, cost, want time.Duration }{
		{0, 0, 80 * us, 100 * ms}, {100 * ms, 101 * ms, 900 * us, 200 * ms},
		{100 * ms, 101 * ms, 1500 * us, 300 * ms}, {0, 10 * ms, 20 * ms, 2100 * ms}, {100 * ms, 730 * ms, 80 * us, 800 * ms},
	} {
		got := q.after(c.due, c.now, c.cost)
		if got != c.want || float64(c.cost) > mostOfStep*float64(got-c.now) && got != c.due+q.Step {
			t.Errorf("after a reading due at %s, made at %s, that took %s: %s, want %s", c.due, c.now, c.cost, got, c.want)
		}
	}
}
