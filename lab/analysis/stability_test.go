package analysis_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
)

// steady is a run of about three hours without any effect of time, order or lab on its figures.
var steady = analysistest.Spec{
	Seed: 6, DUTs: []analysistest.DUT{{Name: "one", Ratio: 2}, {Name: "two", Ratio: 5}}, Clients: []int{10},
	Offered: []float64{100, 500, 1000},
	Blocks:  9, Windows: 3, AABlocks: 9, BlockSD: 0.01, WindowSD: 0.01, MachineSD: 0.02,
	Effects: analysistest.Effects{BlockPause: 6 * time.Minute, RotateLoads: true},
}

// effects returns the effects that a summary has estimated, by name.
func effects(s analysis.Summary) map[string]analysis.Effect {
	return map[string]analysis.Effect{
		"drift": s.Stability.DriftPctPerHour, "clean drift": s.Stability.CleanDriftPctPerHour, "side": s.Stability.SidePct,
		"order": s.Stability.OrderPct, "load order": s.Stability.LoadOrderPct,
	}
}

// unstable returns the warnings about effects.
func unstable(s analysis.Summary) []string {
	return slices.DeleteFunc(slices.Clone(s.Warnings), func(w string) bool { return !strings.HasPrefix(w, "It matters") })
}

// TestSteadyRun: in a run without effects all estimated effects are equivalent to none. holds requires an estimate near
// the true value, and warned a warning with these words (sweeps_test.go, summary_test.go).
func TestSteadyRun(t *testing.T) {
	s := (cost.Measure{}).Summarise(analysistest.Run(steady), analysis.Options{})
	for name, e := range effects(s) {
		if e.Verdict != analysis.Equivalent || e.Note == "" {
			t.Errorf("%s: %+v", name, e)
		}
	}
	if n := len(unstable(s)); n != 0 {
		t.Errorf("warnings on a steady run: %q", s.Warnings)
	}
	if len(s.Stability.Series) != 27 || !s.Stability.Series[0].AA || s.Stability.Series[0].DUTLab != "a" ||
		s.Stability.Series[26].Hours < 2.5 {
		t.Errorf("series of %d, last %+v", len(s.Stability.Series), s.Stability.Series[len(s.Stability.Series)-1])
	}
}

// TestEffectsAreFound adds one effect to a run: the summary finds this effect and no other.
func TestEffectsAreFound(t *testing.T) {
	for name, tt := range map[string]struct {
		plant func(*analysistest.Effects)
		want  float64 // per cent
		about string
	}{
		"drift": {
			func(e *analysistest.Effects) { e.RatioPerHour = 0.05 }, 100 * math.Expm1(0.05), "ratios depend on when"},
		"clean drift": {
			func(e *analysistest.Effects) { e.CleanPerHour = -0.04 }, 100 * math.Expm1(-0.04), "CPU figures depend on when"},
		"side":       {func(e *analysistest.Effects) { e.Side = 0.08 }, 100 * math.Expm1(0.08), "labs are not alike"},
		"order":      {func(e *analysistest.Effects) { e.Later = -0.08 }, 100 * math.Expm1(-0.08), "had not settled"},
		"load order": {func(e *analysistest.Effects) { e.LoadOrder = 0.1 }, 100 * math.Expm1(0.1), "measured before it"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := steady
			tt.plant(&spec.Effects)
			s := (cost.Measure{}).Summarise(analysistest.Run(spec), analysis.Options{})
			for other, e := range effects(s) {
				if (e.Verdict == analysis.Different) != (other == name) {
					t.Errorf("%s: %+v", other, e)
				}
			}
			holds(t, name, effects(s)[name].Value, tt.want, 1.5)
			warned(t, s, tt.about)
			if len(unstable(s)) != 1 {
				t.Errorf("warnings %q", s.Warnings)
			}
		})
	}
}

// TestLoadOrderCountsTheBlocksItUses: a block with one load does not count for the effect of the order of loads.
func TestLoadOrderCountsTheBlocksItUses(t *testing.T) {
	run := analysistest.Run(steady)
	for i := range run.Trials {
		trial := &run.Trials[i]
		trial.Accepted = trial.AA || trial.Cell.Text(result.DUT) != "one" || trial.Block != 2 ||
			trial.Cell.Number(result.OfferedMbps) == 500
	}
	s := (cost.Measure{}).Summarise(run, analysis.Options{})
	if n := s.Stability.LoadOrderPct.Value.N; n != 17 {
		t.Errorf("n = %d blocks, want 17 of 18", n)
	}
}

// TestShortRunsAreNotSaidInHours: a note gives the length of a run in seconds, minutes or hours, whichever fits.
func TestShortRunsAreNotSaidInHours(t *testing.T) {
	for pause, want := range map[time.Duration]string{
		2 * time.Second: " s of the run", 20 * time.Second: " min of the run", 6 * time.Minute: " h "} {
		spec := steady
		spec.Windows, spec.Effects.BlockPause = 1, pause
		s := (cost.Measure{}).Summarise(analysistest.Run(spec), analysis.Options{})
		for _, e := range []analysis.Effect{s.Stability.DriftPctPerHour, s.Stability.CleanDriftPctPerHour} {
			if _, over, _ := strings.Cut(e.Note, " over the "); !strings.Contains(over, want) || strings.Contains(over, "0.0") ||
				strings.HasPrefix(over, "0") {
				t.Errorf("blocks %s apart, want %q: %s", pause, want, e.Note)
			}
		}
	}
}

// TestClockSteps: if the clock was set back during a run, the blocks still have the order of their measurement.
func TestClockSteps(t *testing.T) {
	spec := steady
	spec.Effects.RatioPerHour = 0.05
	run := analysistest.Run(spec)
	for i := len(run.Trials) / 2; i < len(run.Trials); i++ {
		run.Trials[i].Start = run.Trials[i].Start.Add(-24 * time.Hour)
	}
	s := (cost.Measure{}).Summarise(run, analysis.Options{})
	warned(t, s, "set back by 24 h")
	holds(t, "drift", s.Stability.DriftPctPerHour.Value, 100*math.Expm1(0.05), 1.5)
	previous := analysis.Number(-1)
	for _, p := range s.Stability.Series {
		if p.Hours < previous {
			t.Fatalf("series goes back at %v h", p.Hours)
		}
		previous = p.Hours
	}
}

// setForward sets the clock forward in the middle of a run: it adds a time to the start of the later half of the
// records. The record of a block follows those of its trials.
func setForward(run result.Run, by time.Duration) {
	half := len(run.Trials) / 2
	for i := half; i < len(run.Trials); i++ {
		run.Trials[i].Start = run.Trials[i].Start.Add(by)
	}
	within := run.Trials[half-1]
	for i, moved := 0, false; i < len(run.Blocks); i++ {
		b := &run.Blocks[i]
		moved = moved || b.Block == within.Block && b.AA == within.AA && b.DUT == within.Cell.Text(result.DUT)
		if moved {
			b.Start = b.Start.Add(by)
		}
	}
}

// TestClockSetForward: if the clock was set forward or back during a run, the run does not count as longer, and a
// warning says it. In one case records have the monotonic time (Elapsed), in the other the lengths of blocks are used.
func TestClockSetForward(t *testing.T) {
	spec := steady
	spec.Effects.RatioPerHour = 0.05
	whole := (cost.Measure{}).Summarise(analysistest.Run(spec), analysis.Options{})
	lasts := whole.Stability.Series[len(whole.Stability.Series)-1].Hours
	for _, tt := range []struct {
		monotonic bool
		by        time.Duration
		says      string
	}{
		{false, 24 * time.Hour, "set forward by 24 h"}, {true, 24 * time.Hour, "set forward by 24 h"},
		{false, 30 * time.Minute, "set forward by "}, {true, 30 * time.Minute, "set forward by 30 min"},
		{true, 10 * time.Second, "set forward by 10 s"},
		{true, -10 * time.Second, "set back by 10 s"}, {true, -time.Hour, "set back by 1 h "},
	} {
		run := analysistest.Run(spec)
		if tt.monotonic {
			for i := range run.Trials {
				run.Trials[i].Elapsed = 100 + run.Trials[i].Start.Sub(run.Trials[0].Start).Seconds()
			}
		}
		setForward(run, tt.by)
		s := (cost.Measure{}).Summarise(run, analysis.Options{})
		warned(t, s, tt.says)
		if n := strings.Count(strings.Join(s.Warnings, " "), "The clock"); n != 1 {
			t.Errorf("%v: %d warnings of the clock: %q", tt.by, n, s.Warnings)
		}
		holds(t, "drift", s.Stability.DriftPctPerHour.Value, 100*math.Expm1(0.05), 1.5)
		if last := s.Stability.Series[len(s.Stability.Series)-1].Hours; math.Abs(float64(last-lasts)) > 0.6 {
			t.Errorf("%v: the run lasts %v h, want %v", tt.by, last, lasts)
		}
	}
	run := analysistest.Run(spec) // a resumed one
	for i := len(run.Trials) / 2; i < len(run.Trials); i++ {
		run.Trials[i].Start, run.Trials[i].Sitting = run.Trials[i].Start.Add(24*time.Hour), 1
	}
	for _, s := range []analysis.Summary{whole, (cost.Measure{}).Summarise(run, analysis.Options{})} {
		if text := strings.Join(s.Warnings, " "); strings.Contains(text, "clock") {
			t.Errorf("the clock is in order, and said is: %s", text)
		}
	}
}

// TestUnknownEffects: an effect that a run cannot show is unknown, not absent.
func TestUnknownEffects(t *testing.T) {
	spec := steady
	spec.Windows, spec.Effects.RotateLoads = 1, false
	run := analysistest.Run(spec)
	for i := range run.Trials {
		run.Trials[i].DUTLab = "b"
	}
	s := (cost.Measure{}).Summarise(run, analysis.Options{})
	for _, name := range []string{"side", "order", "load order"} {
		if e := effects(s)[name]; e.Verdict != analysis.Inconclusive || e.Value.Mean.Known() || e.Note == "" {
			t.Errorf("%s: %+v", name, e)
		}
	}
	empty := (cost.Measure{}).Summarise(result.Run{}, analysis.Options{})
	for name, e := range effects(empty) {
		if e.Verdict != analysis.Inconclusive || e.Value.Mean.Known() {
			t.Errorf("%s of nothing: %+v", name, e)
		}
	}
}

// TestEffectCoverage: about 95 % of the intervals contain the true effect (475 of 500, give or take 4 standard
// deviations: 19).
func TestEffectCoverage(t *testing.T) {
	spec := steady
	spec.Blocks, spec.AABlocks = 6, 3
	spec.Effects.RatioPerHour, spec.Effects.CleanPerHour, spec.Effects.Side, spec.Effects.Later,
		spec.Effects.LoadOrder = 0.02, -0.03, 0.02, 0.01, 0.03
	truth := map[string]float64{"drift": 0.02, "clean drift": -0.03, "side": 0.02, "order": 0.01, "load order": 0.03}
	covered := map[string]int{}
	for seed := range uint64(500) {
		spec.Seed = seed
		for name, e := range effects((cost.Measure{}).Summarise(analysistest.Run(spec), analysis.Options{})) {
			if want := 100 * math.Expm1(truth[name]); float64(e.Value.Lo) <= want && want <= float64(e.Value.Hi) {
				covered[name]++
			}
		}
	}
	t.Logf("of 500 intervals hold the truth: %v", covered)
	for name := range truth {
		if covered[name] < 456 || covered[name] > 494 {
			t.Errorf("%s: %d of 500 intervals hold the truth", name, covered[name])
		}
	}
}
