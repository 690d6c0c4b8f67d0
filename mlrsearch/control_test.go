package mlrsearch

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// hard forwards so many packets a second and not one more, and counts the time of its trials.
func hard(capacity float64, spent *time.Duration) Measurer {
	return func(_ context.Context, load float64, d time.Duration) (Outcome, error) {
		*spent += d
		sent := math.Floor(load * d.Seconds())
		received := min(sent, math.Floor(capacity*d.Seconds()))
		return Outcome{Loss: 1 - received/sent}, nil
	}
}

// TestExampleOfTheReference searches what the example in the description of the reference implementation (MLRsearch
// 1.2.1) does: a device of exactly 1,000,000 packets/s, NDR and PDR of 0.5 %, 1 s trials, 21 s a load. That finds
// 997,497.6 and 1,000,000.7.
func TestExampleOfTheReference(t *testing.T) {
	ndr := Goal{Name: "NDR", ExceedRatio: 0.005, Width: 0.005, FinalDuration: time.Second, DurationSum: 21 * time.Second,
		InitialDuration: time.Second}
	pdr := ndr
	pdr.Name, pdr.LossRatio = "PDR", 0.005
	var spent time.Duration
	r, err := Run(context.Background(), Search{Goals: []Goal{ndr, pdr}, Min: 1e3, Max: 1e9}, hard(1e6, &spent))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d trials, %v: NDR %.1f [%.1f, %.1f], PDR %.1f [%.1f, %.1f]", len(r.Trials), spent,
		r.Results[0].Throughput, r.Results[0].Lower, r.Results[0].Upper, r.Results[1].Throughput, r.Results[1].Lower,
		r.Results[1].Upper)
	n, p := r.Results[0], r.Results[1]
	if !n.Regular || !p.Regular {
		t.Errorf("irregular: %+v %+v", n, p)
	}
	const rounding = 1 + 1e-9
	if n.Throughput < 1e6*(1-0.005) || n.Throughput > 1e6*rounding {
		t.Errorf("NDR %g of a device of 1e6", n.Throughput)
	}
	if math.Abs(p.Throughput-1e6) > 1e6*0.005 || p.Lower > 1e6/(1-0.005)*rounding {
		t.Errorf("PDR %g at %g of a device of 1e6", p.Throughput, p.Lower)
	}
	if spent > 50*time.Second {
		t.Errorf("trials of %v; the reference needs 45 s", spent)
	}
}

// TestBoundsAreOnBothSides searches devices of any capacity with any goals.
func TestBoundsAreOnBothSides(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := math.Exp(rapid.Float64Range(math.Log(2e3), math.Log(5e8)).Draw(t, "log capacity"))
		var goals []Goal
		for range rapid.IntRange(1, 4).Draw(t, "goals") {
			final := time.Duration(rapid.IntRange(1, 60).Draw(t, "final")) * time.Second
			goals = append(goals, Goal{
				LossRatio:       rapid.SampledFrom([]float64{0, 0.001, 0.005, 0.05}).Draw(t, "loss"),
				ExceedRatio:     rapid.SampledFrom([]float64{0, 0.005, 0.5}).Draw(t, "exceed"),
				Width:           rapid.SampledFrom([]float64{0.002, 0.005, 0.05}).Draw(t, "width"),
				FinalDuration:   final,
				DurationSum:     final * time.Duration(rapid.IntRange(1, 3).Draw(t, "times")),
				InitialDuration: time.Second,
			})
		}
		var spent time.Duration
		r, err := Run(context.Background(), Search{Goals: goals, Min: 1e3, Max: 1e9}, hard(capacity, &spent))
		if err != nil {
			t.Fatal(err)
		}
		for _, res := range r.Results {
			limit := capacity / (1 - res.Goal.LossRatio) // the highest load within the goal, but for whole packets
			slack := 1 + 2/capacity
			if !res.Regular || res.Lower > limit*slack || res.Upper < limit/slack {
				t.Errorf("%+v: the highest good load is %g", res, limit)
			}
		}
		if len(r.Trials) > 100*len(goals)*3 {
			t.Errorf("%d trials", len(r.Trials))
		}
	})
}

// TestIrregularResults searches devices that have no bound within the limits.
func TestIrregularResults(t *testing.T) {
	goals := []Goal{NDR(10*time.Second, 0.005), PDR(0.005, time.Second, 10*time.Second, 0.005)}
	for _, c := range []struct {
		name         string
		capacity     float64
		lower, upper float64
	}{
		{"faster than the highest load", 1e10, 1e9, 0},
		{"slower than the lowest load", 10, 0, 1e3},
		{"dead", 0, 0, 1e3},
	} {
		t.Run(c.name, func(t *testing.T) {
			var spent time.Duration
			r, err := Run(context.Background(), Search{Goals: goals, Min: 1e3, Max: 1e9}, hard(c.capacity, &spent))
			if err != nil {
				t.Fatal(err)
			}
			for _, res := range r.Results {
				if res.Regular || res.Lower != c.lower || res.Upper != c.upper {
					t.Errorf("%+v, want bounds %g and %g", res, c.lower, c.upper)
				}
			}
		})
	}
}

// TestRareLossIsTolerated searches a device that now and then loses a burst: a goal that tolerates such trials finds
// its capacity, one that does not finds less.
func TestRareLossIsTolerated(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	measure := func(_ context.Context, load float64, d time.Duration) (Outcome, error) {
		loss := max(0, 1-1e6/load)
		if random.Float64() < 0.1 { // of trials of any duration
			loss = max(loss, 0.02)
		}
		return Outcome{Loss: loss}, nil
	}
	tolerant := PDR(0.005, time.Second, 21*time.Second, 0.005)
	r, err := Run(context.Background(), Search{Goals: []Goal{tolerant}, Min: 1e3, Max: 1e7}, measure)
	if err != nil {
		t.Fatal(err)
	}
	if res := r.Results[0]; !res.Regular || res.Lower < 0.99e6 || res.Lower > 1.006e6 {
		t.Errorf("%+v of a device of 1e6", res)
	}
}

// TestGapAboveLowLoad searches a device that fails at some low loads: a goal that fails at a load does not count as
// satisfied there because it is satisfied at a higher one.
func TestGapAboveLowLoad(t *testing.T) {
	measure := func(_ context.Context, load float64, d time.Duration) (Outcome, error) {
		if load > 4e5 && load < 5e5 || load > 1e6 {
			return Outcome{Loss: 0.1}, nil
		}
		return Outcome{}, nil
	}
	g := NDR(time.Second, 0.01)
	r, err := Run(context.Background(),
		Search{Goals: []Goal{g, PDR(0.2, time.Second, time.Second, 0.01)}, Min: 4.1e5, Max: 2e6}, measure)
	if err != nil {
		t.Fatal(err)
	}
	c := controller{Search: Search{Goals: []Goal{g}}, at: map[float64][]Trial{}}
	for _, l := range []float64{1e6, 4.5e5, 3e5} {
		out, _ := measure(context.Background(), l, time.Second)
		c.add(Trial{Load: l, Duration: time.Second, Loss: out.Loss})
	}
	if lower, upper := c.bounds(g); lower != 3e5 || upper != 4.5e5 {
		t.Errorf("bounds %g and %g", lower, upper)
	}
	if r.Results[1].Upper != 0 || r.Results[1].Lower != 2e6 {
		t.Errorf("%+v", r.Results[1])
	}
}

func TestBudgetEndsASearch(t *testing.T) {
	var spent time.Duration
	s := Search{Goals: []Goal{NDR(time.Minute, 0.005)}, Min: 1e3, Max: 1e9, Budget: 90 * time.Second}
	r, err := Run(context.Background(), s, hard(1e6, &spent))
	if !errors.Is(err, ErrBudget) || spent > s.Budget {
		t.Errorf("%v after %v", err, spent)
	}
	if len(r.Results) != 1 || r.Results[0].Regular || len(r.Trials) == 0 {
		t.Errorf("%+v", r)
	}
}

func TestFailuresKeepWhatWasMeasured(t *testing.T) {
	broken := errors.New("link down")
	n := 0
	r, err := Run(context.Background(), Search{Goals: []Goal{NDR(time.Minute, 0.005)}, Min: 1e3, Max: 1e9},
		func(context.Context, float64, time.Duration) (Outcome, error) {
			if n++; n > 3 {
				return Outcome{}, broken
			}
			return Outcome{Loss: 0.1}, nil
		})
	if !errors.Is(err, broken) || len(r.Trials) != 3 || len(r.Results) != 1 {
		t.Errorf("%v, %+v", err, r)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, Search{Goals: []Goal{NDR(time.Minute, 0.005)}, Min: 1e3, Max: 1e9}, nil); !errors.Is(
		err, context.Canceled) {
		t.Error(err)
	}
}

func TestImpossibleInputIsNamed(t *testing.T) {
	good := NDR(time.Minute, 0.005)
	with := func(change func(*Goal)) []Goal { g := good; change(&g); return []Goal{good, g} }
	for want, s := range map[string]Search{
		"needs a goal":           {Min: 1, Max: 2},
		"lowest":                 {Goals: []Goal{good}, Min: 2, Max: 2},
		"goal 2 NDR: loss ratio": {Goals: with(func(g *Goal) { g.LossRatio = 1 }), Min: 1, Max: 2},
		"exceed ratio":           {Goals: with(func(g *Goal) { g.ExceedRatio = math.NaN() }), Min: 1, Max: 2},
		"width":                  {Goals: with(func(g *Goal) { g.Width = 0 }), Min: 1, Max: 2},
		"final trial duration":   {Goals: with(func(g *Goal) { g.FinalDuration = 0 }), Min: 1, Max: 2},
		"duration sum":           {Goals: with(func(g *Goal) { g.DurationSum = time.Second }), Min: 1, Max: 2},
		"initial trial duration": {Goals: with(func(g *Goal) { g.InitialDuration = time.Hour }), Min: 1, Max: 2},
		"budget":                 {Goals: []Goal{good}, Min: 1, Max: 2, Budget: -1},
	} {
		if _, err := Run(context.Background(), s, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	_, err := Run(context.Background(), Search{Goals: []Goal{good}, Min: 1, Max: 2},
		func(context.Context, float64, time.Duration) (Outcome, error) {
			return Outcome{Loss: math.NaN()}, nil
		})
	if err == nil || !strings.Contains(err.Error(), "impossible") {
		t.Error(err)
	}
}
