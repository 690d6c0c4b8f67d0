package analysis_test

import (
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
)

// TestSlowedRunsSayHowSlow: a summary has the router's speed in the accepted trials, also when the environment is lost.
func TestSlowedRunsSayHowSlow(t *testing.T) {
	spec := portals
	spec.Blocks, spec.AABlocks, spec.Windows = 2, 0, 1
	run := analysistest.Run(spec)
	if s := (cost.Measure{}).Summarise(run, analysis.Options{}); s.Slowed != nil || s.Speed() != 1 ||
		strings.Contains(string(encode(t, s)), `"slowed"`) {
		t.Errorf("at full speed: %v", s.Slowed)
	}
	for i := range run.Trials {
		share := 0.25
		switch i {
		case 0:
			share = 0.26
		case 1:
			share, run.Trials[i].Accepted = 0.9, false
		}
		cost.SidesOf(run.Trials[i]).DUT.Metrics = map[string]float64{result.RouterShare: share}
		cost.SidesOf(run.Trials[i]).Clean.Metrics = cost.SidesOf(run.Trials[i]).DUT.Metrics
	}
	s := (cost.Measure{}).Summarise(run, analysis.Options{})
	if s.Slowed == nil || !strings.HasPrefix(s.Slowed.String(), "routers slowed: measured share 25.") {
		t.Errorf("without the environment: %v", s.Slowed)
	}
	run.Environment.RouterSpeed = 0.25
	s = (cost.Measure{}).Summarise(run, analysis.Options{})
	if text := s.Slowed.String(); !strings.Contains(text, "slowed to 25 %") ||
		!strings.Contains(text, "(25.0 to 26.0 in ") || s.Slowed.Windows != 2*(len(run.Trials)-1) {
		t.Errorf("badge %q of %d trials", text, len(run.Trials))
	}
	if share := s.Cells[1].Device("router_share_pct"); !(share.Mean > 24.9 && share.Mean < 26.1) {
		t.Errorf("share of a cell: %+v", share)
	}
	aside := analysistest.Changed(run.Trials[2], func(s *cost.Sides) {
		s.DUT.Machine.Steal, s.DUT.Metrics = 20, map[string]float64{result.RouterShare: 0.9}
	})
	aside.Attempt, run.Trials = 1, append(run.Trials, aside)
	if again := (cost.Measure{}).Summarise(run, analysis.Options{}).Slowed; *again != *s.Slowed {
		t.Errorf("with an attempt that was set aside: %v, without it %v", again, s.Slowed)
	}
	run.Trials = nil
	if s = (cost.Measure{}).Summarise(run, analysis.Options{}); s.Speed() != 0.25 ||
		!strings.Contains(s.Slowed.String(), "no accepted trial") {
		t.Errorf("without trials: %v", s.Slowed)
	}
}
