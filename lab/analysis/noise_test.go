package analysis_test

import (
	"math"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
)

// noisy adds noise to all trials of a run: a neighbour (another virtual machine) steals a share of the CPU, and both
// routers cost rise cores more. The simulated run portals is in summary_test.go.
func noisy(run result.Run, steal, rise float64) result.Run {
	for i := range run.Trials {
		t := &run.Trials[i]
		for _, m := range []*cost.Measurement{&cost.SidesOf(*t).DUT, &cost.SidesOf(*t).Clean} {
			m.Machine.Steal = 100 * steal
			m.NAPINs += int64(rise * m.Seconds * 1e9)
		}
	}
	return run
}

// TestIntervalsContainWhatNoiseDoes: noise makes both routers cost more, which pulls ratios towards 1. The intervals of
// the noisy run contain the ratios of the quiet run.
func TestIntervalsContainWhatNoiseDoes(t *testing.T) {
	spec := portals
	quiet := (cost.Measure{}).Summarise(analysistest.Run(spec), analysis.Options{})
	s := (cost.Measure{}).Summarise(noisy(analysistest.Run(spec), 0.09, 0.013), analysis.Options{})
	if quiet.Noise != nil || s.Noise == nil {
		t.Fatalf("badges: %v of the quiet run, %v of the noisy one", quiet.Noise, s.Noise)
	}
	moved := 0
	for i, c := range s.Cells {
		before, is := quiet.Cells[i].Change(cost.PerBit), c.Change(cost.PerBit)
		if math.Abs(math.Log(float64(is.Mean))) < math.Abs(math.Log(float64(before.Mean))) {
			moved++
		}
		if before.Mean < is.Lo || before.Mean > is.Hi {
			t.Errorf("%s: %v [%v, %v] does not contain the quiet run's %v", c.Cell, is.Mean, is.Lo, is.Hi, before.Mean)
		}
		if c.Noise == nil || !(c.Noise.WidenedPct > 0) || !(c.Noise.StealPct > 8.9) {
			t.Errorf("%s: noise %+v", c.Cell, c.Noise)
		}
	}
	if moved < len(s.Cells)/2 {
		t.Errorf("the noise moved %d of %d ratios: the test shows nothing", moved, len(s.Cells))
	}
	badge := s.Noise.String()
	if !strings.HasPrefix(badge, "noisy: a neighbour took 9 % of the machine's CPU; bounds of intervals are up to ") {
		t.Errorf("badge %q", badge)
	}
	if !strings.Contains(string(encode(t, s)), `"noise":{"steal_pct":9,`) {
		t.Error("the summary lacks the noise")
	}
}

// TestVerdictsAllowForNoise: a verdict is decided by the interval that is shown, which is widened for noise.
func TestVerdictsAllowForNoise(t *testing.T) {
	spec := portals
	quiet := (cost.Measure{}).Summarise(analysistest.Run(spec), analysis.Options{})
	run := analysistest.Run(spec)
	for i := range run.Trials { // other programs had the routers' CPU whole; the figures are the quiet run's
		cost.SidesOf(run.Trials[i]).DUT.Metrics = map[string]float64{result.OthersShare: 0.9}
	}
	s := (cost.Measure{}).Summarise(run, analysis.Options{})
	for i, c := range s.Cells {
		before, is := quiet.Cells[i].Change(cost.PerBit), c.Change(cost.PerBit)
		if !(is.Lo < before.Lo && is.Hi > before.Hi) {
			t.Errorf("%s: [%v, %v] is not wider than [%v, %v]", c.Cell, is.Lo, is.Hi, before.Lo, before.Hi)
		}
		if c.Verdict == analysis.Different && is.Lo <= 1 && is.Hi >= 1 ||
			c.Verdict == analysis.Equivalent && (is.Lo < 1/1.05 || is.Hi > 1.05) {
			t.Errorf("%s: %s over [%v, %v]", c.Cell, c.Verdict, is.Lo, is.Hi)
		}
		if float64(c.PDifferent) < float64(quiet.Cells[i].PDifferent) {
			t.Errorf("%s: p %v with noise, %v without", c.Cell, c.PDifferent, quiet.Cells[i].PDifferent)
		}
	}
}

// TestTheQuietestAttemptCounts: of several accepted attempts at a window the quietest counts, whatever their order.
func TestTheQuietestAttemptCounts(t *testing.T) {
	spec := portals
	plain := analysistest.Run(spec)
	want := (cost.Measure{}).Summarise(plain, analysis.Options{})
	for _, first := range []bool{true, false} {
		run := plain
		run.Trials = nil
		for _, tr := range plain.Trials {
			loud := analysistest.Changed(tr, func(s *cost.Sides) { s.DUT.Machine.Steal, s.DUT.NAPINs = 20, 3*s.DUT.NAPINs })
			quiet := tr
			if loud.Attempt++; !first {
				loud.Attempt, quiet.Attempt = tr.Attempt, tr.Attempt+1
			}
			switch {
			case !tr.Accepted:
				run.Trials = append(run.Trials, tr)
			case first:
				run.Trials = append(run.Trials, quiet, loud)
			default:
				run.Trials = append(run.Trials, loud, quiet)
			}
		}
		s := (cost.Measure{}).Summarise(run, analysis.Options{})
		if s.Noise != nil || s.Trials.Accepted != want.Trials.Accepted || s.Trials.Aside != want.Trials.Accepted {
			t.Errorf("quiet first %v: noise %v, counts %+v, want %+v", first, s.Noise, s.Trials, want.Trials)
		}
		for i, c := range s.Cells {
			if c.Change(cost.PerBit) != want.Cells[i].Change(cost.PerBit) {
				t.Errorf("quiet first %v, %s: %v, want %v", first, c.Cell, c.Change(cost.PerBit), want.Cells[i].Change(cost.PerBit))
			}
		}
	}
}

// TestBusyDevicesHideOthers: a busy device leaves other programs no CPU in its own windows. They were there
// nevertheless, so the device's interval is widened too.
func TestBusyDevicesHideOthers(t *testing.T) {
	run := analysistest.Run(portals)
	quiet := (cost.Measure{}).Summarise(run, analysis.Options{})
	busy := run.Trials[0].Cell
	for i := range run.Trials {
		share := 0.9
		if run.Trials[i].Cell == busy {
			share = 0
		}
		cost.SidesOf(run.Trials[i]).DUT.Metrics = map[string]float64{result.OthersShare: share}
	}
	for i, c := range (cost.Measure{}).Summarise(run, analysis.Options{}).Cells {
		before, is := quiet.Cells[i].Change(cost.PerBit), c.Change(cost.PerBit)
		if c.Cell == busy && !(is.Lo < before.Lo && is.Hi > before.Hi) {
			t.Errorf("%s: [%v, %v] is not wider than [%v, %v]", c.Cell, is.Lo, is.Hi, before.Lo, before.Hi)
		}
	}
}
