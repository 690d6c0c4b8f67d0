package runner

import "time"

// clock estimates the time left of a run: at first by the plan, later more and more by the
// pace so far.
type clock struct {
	start    time.Time
	estimate time.Duration // of the whole plan
	begun    float64       // share of the plan done in earlier sittings
	done     float64       // share of the plan done
}

// state is the share that is done and an estimate of the time left.
func (c *clock) state() (done float64, left time.Duration) {
	ahead := (1 - c.done) * float64(c.estimate)
	if progress := c.done - c.begun; progress > 0 {
		pace := float64(time.Since(c.start)) / progress * (1 - c.done)
		weight := min(1, progress*4) // after a quarter of the plan its own pace knows better
		ahead = weight*pace + (1-weight)*ahead
	}
	return c.done, time.Duration(ahead).Round(time.Second)
}
