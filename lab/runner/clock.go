package runner

import "time"

// clock estimates what is left of a run: from the plan at first, and more and
// more from the pace so far.
type clock struct {
	start    time.Time
	estimate time.Duration // of the whole plan
	begun    float64       // share of it that an earlier sitting had done
	done     float64       // share that is done
}

// state is the share that is done and an estimate of the time left.
func (c *clock) state() (done float64, left time.Duration) {
	ahead := (1 - c.done) * float64(c.estimate)
	if own := c.done - c.begun; own > 0 {
		pace := float64(time.Since(c.start)) / own * (1 - c.done)
		weight := min(1, own*4) // after a quarter of the plan its own pace knows better
		ahead = weight*pace + (1-weight)*ahead
	}
	return c.done, time.Duration(ahead).Round(time.Second)
}
