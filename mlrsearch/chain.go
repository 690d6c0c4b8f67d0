package mlrsearch

import (
	"math"
	"time"
)

// stageFactor is how much longer a load is tried in each stage than in the one before, at
// most. Trials that are four times as long cost what four bisections of the last stage do.
const stageFactor = 4

// chain leads to a goal in stages. The first stage has short trials and a wide target; each
// further one has longer trials and half of the width, and begins at the bounds of the one
// before. The last stage is the goal itself.
type chain struct {
	stages []Goal
	step   float64 // relative distance of the next load from a bound that has no partner yet
	// tried is the load that the stage asks for until its class is known; 0: none.
	tried float64
	// from are the bounds of the stage before, which this one tries first; 0: none.
	from [2]float64
}

func newChain(g Goal) *chain {
	first := g.InitialDuration
	if first == 0 {
		first = g.FinalDuration
	}
	before := int(math.Ceil(math.Log(g.DurationSum.Seconds()/first.Seconds())/math.Log(stageFactor) - 1e-9))
	c := &chain{}
	for i := range before + 1 {
		stage := g
		if left := before - i; left > 0 {
			share := math.Pow(first.Seconds()/g.DurationSum.Seconds(), float64(left)/float64(before))
			stage.DurationSum = max(first, time.Duration(float64(g.DurationSum)*share))
			stage.FinalDuration = min(g.FinalDuration, stage.DurationSum)
			stage.Width = math.Min(g.Width*math.Pow(2, float64(left)), 0.5)
		}
		c.stages = append(c.stages, stage)
	}
	c.step = c.stages[0].Width
	return c
}

// next returns the load and the duration of the trial that the chain asks for next, or more
// == false where the goal is reached, or out of reach.
func (c *chain) next(s *controller) (load float64, d time.Duration, more bool) {
	for {
		stage := c.stages[0]
		lower, upper := s.bounds(stage)
		open := c.tried > lower && (upper == 0 || c.tried < upper) // trials of other goals may have closed it
		if open && stage.Classify(s.at[c.tried]) == Undecided {
			return c.tried, stage.FinalDuration, true
		}
		if load := c.choose(s, stage, lower, upper); load > 0 {
			c.tried = load
			return load, stage.FinalDuration, true
		}
		if len(c.stages) == 1 {
			return 0, 0, false
		}
		c.stages, c.tried, c.from = c.stages[1:], 0, [2]float64{lower, upper}
		c.step = c.stages[0].Width
	}
}

// choose picks the load to try, given the stage's bounds; 0: the stage is done.
func (c *chain) choose(s *controller, stage Goal, lower, upper float64) float64 {
	if lower > 0 && upper > 0 && stage.reached(lower, upper) {
		return 0
	}
	for _, l := range c.from {
		if l > lower && (upper == 0 || l < upper) {
			return l // of the stage before, and open here
		}
	}
	switch {
	case lower == 0 && upper == 0:
		return s.Max
	case upper == 0:
		if lower >= s.Max {
			return 0
		}
		return min(c.up(lower), s.Max)
	case lower == 0:
		if upper <= s.Min {
			return 0
		}
		// What was forwarded there is the best guess, as far as loss is allowed.
		if guess := s.rate(upper) / (1 - stage.LossRatio); guess < upper*(1-c.step) {
			return max(guess, s.Min)
		}
		return max(c.down(upper), s.Min)
	}
	// The lower bound may be near the goal and the upper one far: steps from the lower one
	// that double lead there faster than halves.
	if middle := between(lower, upper); lower/(1-c.step) >= middle {
		return middle
	}
	return c.up(lower)
}

// up and down step away from a bound; each step is twice as long as the one before.
func (c *chain) up(from float64) float64 {
	defer c.widen()
	return from / (1 - c.step)
}

func (c *chain) down(from float64) float64 {
	defer c.widen()
	return from * (1 - c.step)
}

func (c *chain) widen() { c.step = min(2*c.step, 0.5) }
