package runner

import (
	"testing"
	"time"
)

// TestClockTrustsItsOwnPaceMoreAndMore: the estimate of the remaining time follows the plan at first, and after a
// quarter of the plan only the pace of the run.
func TestClockTrustsItsOwnPaceMoreAndMore(t *testing.T) {
	c := &clock{start: time.Now(), estimate: 100 * time.Second, begun: 0.5, done: 0.5}
	if done, left := c.state(); done != 0.5 || left != 50*time.Second {
		t.Errorf("resumed at half: %v done, %v left; want the plan's other half", done, left)
	}
	c.start = time.Now().Add(-80 * time.Second) // four times as slow as planned
	c.done = 0.75
	if _, left := c.state(); left < 79*time.Second || left > 81*time.Second {
		t.Errorf("%v left, want the pace so far for the last quarter: 80 s", left)
	}
}
