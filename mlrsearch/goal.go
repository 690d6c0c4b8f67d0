package mlrsearch

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Goal is one Search Goal: what a load must satisfy to count as forwarded.
type Goal struct {
	Name string
	// LossRatio is the highest loss ratio of a good trial, 0 ≤ LossRatio < 1.
	LossRatio float64
	// ExceedRatio is the share of the trials' time that may lose more, 0 ≤ ExceedRatio < 1.
	ExceedRatio float64
	// Width is the relative distance (upper − lower)/upper at which the goal is reached,
	// 0 < Width < 1. The RFC recommends no less than LossRatio.
	Width float64
	// FinalDuration is the shortest duration of a trial that can prove a load good.
	FinalDuration time.Duration
	// DurationSum is the time of such trials that settles a load.
	DurationSum time.Duration
	// InitialDuration is the duration of the first trials; 0: FinalDuration. Shorter trials
	// find the neighbourhood of the bounds, and can prove a load bad.
	InitialDuration time.Duration
}

// NDR is the no-drop rate in the form that RFC 2544, 26.1 asks for, with trials of the given
// duration (60 s in the RFC) and the given relative width.
func NDR(final time.Duration, width float64) Goal {
	return Goal{Name: "NDR", Width: width, FinalDuration: final, DurationSum: final,
		InitialDuration: min(final, time.Second)}
}

// PDR is the partial-drop rate at a loss ratio, with half of the trials' time allowed to
// exceed that ratio, as RFC 9971 recommends for repeatable results.
func PDR(loss float64, final, sum time.Duration, width float64) Goal {
	return Goal{Name: "PDR", LossRatio: loss, ExceedRatio: 0.5, Width: width, FinalDuration: final, DurationSum: sum,
		InitialDuration: min(final, time.Second)}
}

// check names the first attribute that is out of its range.
func (g Goal) check() error {
	ratio := func(x float64) bool { return x >= 0 && x < 1 }
	switch {
	case !ratio(g.LossRatio):
		return fmt.Errorf("loss ratio %g is not in [0, 1)", g.LossRatio)
	case !ratio(g.ExceedRatio):
		return fmt.Errorf("exceed ratio %g is not in [0, 1)", g.ExceedRatio)
	case !(g.Width > 0 && g.Width < 1):
		return fmt.Errorf("width %g is not in (0, 1)", g.Width)
	case g.FinalDuration <= 0:
		return fmt.Errorf("final trial duration %v is not positive", g.FinalDuration)
	case g.DurationSum < g.FinalDuration:
		return fmt.Errorf("duration sum %v is shorter than a final trial, %v", g.DurationSum, g.FinalDuration)
	case g.InitialDuration < 0 || g.InitialDuration > g.FinalDuration:
		return fmt.Errorf(
			"initial trial duration %v is not between 0 and the final one, %v", g.InitialDuration, g.FinalDuration)
	}
	return nil
}

// Search is the Controller's input.
type Search struct {
	Goals []Goal // at least one
	// Min and Max bound the loads of trials, 0 < Min < Max. At Min every trial must offer at
	// least one packet.
	Min, Max float64
	// Budget bounds the sum of the trials' durations; 0: none. A search that exceeds it ends
	// with what it has found; goals that are not reached are irregular.
	Budget time.Duration
	// Warmup is the duration of a first trial at Max that counts for nothing; 0: none.
	Warmup time.Duration
}

func (s Search) check() error {
	if len(s.Goals) == 0 {
		return errors.New("a search needs a goal")
	}
	if !(s.Min > 0 && s.Min < s.Max) || math.IsInf(s.Max, 0) {
		return fmt.Errorf("loads from %g to %g: wanted 0 < lowest < highest", s.Min, s.Max)
	}
	if s.Budget < 0 || s.Warmup < 0 {
		return fmt.Errorf("budget %v and warm-up %v must not be negative", s.Budget, s.Warmup)
	}
	for i, g := range s.Goals {
		if err := g.check(); err != nil {
			return fmt.Errorf("goal %d %s: %w", i+1, g.Name, err)
		}
	}
	return nil
}
