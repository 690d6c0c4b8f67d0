package runner

import "time"

// clock estimates the remaining time of a run, at first from the plan, later more and more from the pace so far.
type clock struct {
	start    time.Time
	estimate time.Duration // length of the whole plan
	begun    float64       // share of the plan done in earlier sittings
	done     float64       // share of the plan done
}

// state returns the share of the plan that is done, 0 to 1, and the estimated remaining time.
func (c *clock) state() (done float64, left time.Duration) {
	ahead := (1 - c.done) * float64(c.estimate)
	if progress := c.done - c.begun; progress > 0 {
		pace := float64(time.Since(c.start)) / progress * (1 - c.done)
		weight := min(1, progress*4) // after a quarter of the plan, only the run's own pace counts
		ahead = weight*pace + (1-weight)*ahead
	}
	return c.done, time.Duration(ahead).Round(time.Second)
}
