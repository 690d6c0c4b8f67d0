package mlrsearch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Outcome is what the Measurer found out in one trial.
type Outcome struct {
	Loss float64 // ratio of packets lost to packets expected to be forwarded
	// Effective is the time that the trial counts for; 0: its intended duration.
	Effective time.Duration
}

// Measurer carries out one trial at a load for a duration.
type Measurer func(ctx context.Context, load float64, duration time.Duration) (Outcome, error)

// ErrBudget says that the search ended because its trials took longer than Search.Budget.
var ErrBudget = errors.New("the search has used up its time before every goal was reached")

// Result is a Goal Result. A regular one has both bounds, no further apart than the goal's width. An irregular one has
// no Upper where even Search.Max satisfies the goal, no Lower where even Search.Min does not, or bounds too far apart
// where the search was cut short.
type Result struct {
	Goal    Goal
	Regular bool
	// Lower is the highest load below Upper that satisfies the goal, Upper the lowest one that does not; 0: none.
	Lower, Upper float64
	// Throughput is the conditional throughput at Lower: the rate that is forwarded there.
	Throughput float64
}

// Report is the Controller's output: a result for each goal, in their order, and all trials in the order in which they
// were made, without the warm-up.
type Report struct {
	Results []Result
	Trials  []Trial
}

// Run searches. It returns what was found also with an error: ErrBudget, the Measurer's, or that of the context.
func Run(ctx context.Context, s Search, measure Measurer) (Report, error) {
	if err := s.check(); err != nil {
		return Report{}, err
	}
	c := &controller{Search: s, measure: measure, at: map[float64][]Trial{}}
	for _, g := range s.Goals {
		c.chains = append(c.chains, newChain(g))
	}
	err := c.run(ctx)
	return c.report(), err
}

// controller runs a search: it decides which trial is next, and keeps the results.
type controller struct {
	Search
	measure Measurer
	chains  []*chain
	loads   []float64 // with trials, ascending
	at      map[float64][]Trial
	trials  []Trial
	spent   time.Duration
}

// run makes trials until no goal asks for one. Among those that goals ask for, the shortest comes first, and of these
// the one at the lowest load: an upper bound found at a low load makes everything above it irrelevant, and never the
// other way round.
func (c *controller) run(ctx context.Context) error {
	if c.Warmup > 0 {
		if _, err := c.try(ctx, c.Max, c.Warmup); err != nil {
			return err
		}
	}
	for {
		var load float64
		var duration time.Duration
		for _, chain := range c.chains {
			l, d, more := chain.next(c)
			if more && (load == 0 || d < duration || d == duration && l < load) {
				load, duration = l, d
			}
		}
		if load == 0 {
			return nil
		}
		if c.Budget > 0 && c.spent+duration > c.Budget {
			return ErrBudget
		}
		out, err := c.try(ctx, load, duration)
		if err != nil {
			return err
		}
		c.add(Trial{Load: load, Duration: duration, Loss: out.Loss, Effective: out.Effective})
	}
}

func (c *controller) try(ctx context.Context, load float64, d time.Duration) (Outcome, error) {
	if err := ctx.Err(); err != nil {
		return Outcome{}, err
	}
	out, err := c.measure(ctx, load, d)
	if err == nil && !(out.Loss >= 0 && out.Loss <= 1 && out.Effective >= 0) {
		err = fmt.Errorf("loss ratio %g and effective duration %v are impossible", out.Loss, out.Effective)
	}
	if err != nil {
		return Outcome{}, fmt.Errorf("trial at a load of %g for %v: %w", load, d, err)
	}
	return out, nil
}

func (c *controller) add(t Trial) {
	if i, found := slices.BinarySearch(c.loads, t.Load); !found {
		c.loads = slices.Insert(c.loads, i, t.Load)
	}
	c.at[t.Load] = append(c.at[t.Load], t)
	c.trials = append(c.trials, t)
	c.spent += t.Duration
}

// bounds returns the relevant bounds for a goal; 0: none. Where a load satisfies the goal and a lower one does not, the
// lower one is believed.
func (c *controller) bounds(g Goal) (lower, upper float64) {
	for _, l := range c.loads {
		switch g.Classify(c.at[l]) {
		case Upper:
			return lower, l
		case Lower:
			lower = l
		}
	}
	return lower, 0
}

// rate is the forwarding rate at a load, the mean of its trials.
func (c *controller) rate(load float64) float64 {
	var lost, all float64
	for _, t := range c.at[load] {
		lost += t.Loss * t.seconds()
		all += t.seconds()
	}
	return load * (1 - lost/all)
}

func (c *controller) report() Report {
	r := Report{Trials: c.trials}
	for _, g := range c.Goals {
		lower, upper := c.bounds(g)
		res := Result{Goal: g, Lower: lower, Upper: upper, Regular: lower > 0 && upper > 0 && g.reached(lower, upper)}
		if lower > 0 {
			res.Throughput = g.ConditionalThroughput(lower, c.at[lower])
		}
		r.Results = append(r.Results, res)
	}
	return r
}

// reached reports whether two bounds are close enough.
func (g Goal) reached(lower, upper float64) bool {
	return (upper-lower)/upper <= g.Width*(1+1e-9)
}

// between is the middle of two loads, as far from one as from the other in relative terms.
func between(a, b float64) float64 { return math.Sqrt(a * b) }
