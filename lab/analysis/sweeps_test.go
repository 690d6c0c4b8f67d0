package analysis_test

import (
	"math"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure/cost"

	"github.com/gateweigh/gateweigh/lab/result"
)

// These tests compute sweeps (one device at several loads or numbers of clients) from simulated runs with known costs.
// cost.Measure.Summarise computes the summary of a run. between(t, what, got, lo, hi) requires a number in a range.

// bandwidth is a run with little noise over loads. The clean router costs 1 % of a core and 8 % per Gbit/s, and the
// device portal 2 % and 20 % per Gbit/s. The cost of bent grows faster from 400 Mbit/s on, and full delivers 700 Mbit/s
// at most.
var bandwidth = analysistest.Spec{
	Seed: 3, Clients: []int{100}, Offered: []float64{100, 200, 400, 800, 1000},
	DUTs: []analysistest.DUT{
		{Name: "bent", Cost: analysistest.Cost{PerGbit: 10, BendGbit: 0.4, BendFactor: 3}},
		{Name: "full", Cost: analysistest.Cost{PerGbit: 100}, MaxMbps: 700},
		{Name: "portal", Cost: analysistest.Cost{Constant: 2, PerGbit: 20}},
	},
	Clean:  analysistest.Cost{Constant: 1, PerGbit: 8},
	Blocks: 8, Windows: 3, AABlocks: 4, BlockSD: 0.01, WindowSD: 0.01, MachineSD: 0.02,
}

// crowd is a run with little noise over numbers of clients at one load.
var crowd = analysistest.Spec{
	Seed: 4, Clients: []int{1, 10, 50, 100}, Offered: []float64{1000},
	DUTs:   []analysistest.DUT{{Name: "portal", Cost: analysistest.Cost{PerGbit: 20, PerClient: 0.1}}},
	Blocks: 8, Windows: 3, AABlocks: 2, BlockSD: 0.01, WindowSD: 0.01, MachineSD: 0.02,
}

// sweepOf finds the sweep of a device over loads or over clients.
func sweepOf(t *testing.T, s analysis.Summary, dut string, along result.Dimension) analysis.Sweep {
	t.Helper()
	for _, sweep := range s.Sweeps {
		if sweep.Cell.Text(result.DUT) == dut && sweep.Along == along {
			return sweep
		}
	}
	t.Fatalf("no sweep of %s along %s", dut, along)
	return analysis.Sweep{}
}

// holds requires an estimate's mean to be at most within from the true value, and the true value to be in the interval.
// One interval of 95 % in twenty misses it, so the interval is taken half as wide again: one in three hundred misses
// it.
func holds(t *testing.T, what string, e analysis.Estimate, truth, within float64) {
	t.Helper()
	half := 1.5 * float64(e.Hi-e.Lo) / 2
	if off := math.Abs(float64(e.Mean) - truth); !(off <= half) || !(off <= within) {
		t.Errorf("%s: %g [%g, %g], true %g, within %g", what, e.Mean, e.Lo, e.Hi, truth, within)
	}
}

// TestSweepAlongLoad: a sweep over loads has levels with the true CPU, and increments between neighbouring levels. CPU
// is normalised by a factor of 1.046, the bandwidth with headers over the payload.
func TestSweepAlongLoad(t *testing.T) {
	s := (cost.Measure{}).Summarise(analysistest.Run(bandwidth), analysis.Options{})
	if len(s.Sweeps) != 4 || s.Sweeps[0].Cell.Text(result.DUT) != analysis.Clean {
		t.Fatalf("%d sweeps, first of %s", len(s.Sweeps), s.Sweeps[0].Cell.Text(result.DUT))
	}
	portal := sweepOf(t, s, "portal", result.OfferedMbps)
	if portal.Cell.Int(result.Clients) != 100 || portal.Cell.HasDimension(result.OfferedMbps) || len(portal.Levels) != 5 ||
		len(portal.Increments) != 4 {
		t.Fatalf("%+v", portal)
	}
	holds(t, "sampled at 400", portal.Levels[2].CPUSampled, 10, 0.3)
	holds(t, "normalised at 400", portal.Levels[2].CPUNormalised, 10/1.046, 0.3)
	step := portal.Increments[1] // 200 to 400: 6 to 10
	holds(t, "net", step.NetPct, 4/1.046, 0.2)
	holds(t, "relative", step.RelativePct, 100*(10./6-1), 4)
	holds(t, "proportion", step.Proportion, 10./6/2, 0.03)
	holds(t, "ratio", step.RatioPct, 100*(10./6*2.6/4.2-1), 2) // clean: 2.6 to 4.2
	if step.RatioVerdict != analysis.Equivalent || step.RatioPct.N != 8 {
		t.Errorf("ratio %s of %d blocks", step.RatioVerdict, step.RatioPct.N)
	}
	if step.From != 200 || step.To != 400 || step.Verdict != analysis.Different || step.NetPct.N != 8 {
		t.Errorf("%+v", step)
	}
	// Every level of the clean router has eight blocks of each of two devices and four A/A blocks. Blocks of the device
	// full, which was at its limit, do not count.
	clean := sweepOf(t, s, analysis.Clean, result.OfferedMbps)
	if n := [2]int{clean.Levels[0].CPUSampled.N, clean.Levels[4].CPUSampled.N}; n != [2]int{20, 20} {
		t.Errorf("clean router: blocks %v", n)
	}
	holds(t, "clean at 100", clean.Levels[0].CPUSampled, 1.8, 0.05)
}

// TestResumedBlockIsTwo: a block counts as two when its labs were built again in the middle of a load.
func TestResumedBlockIsTwo(t *testing.T) {
	run := analysistest.Run(bandwidth)
	whole := (cost.Measure{}).Summarise(run, analysis.Options{})
	for i := range run.Trials {
		trial := &run.Trials[i]
		load := trial.Cell.Number(result.OfferedMbps)
		if trial.Cell.Text(result.DUT) == "portal" && !trial.AA && trial.Block == 3 &&
			(load > 400 || load == 400 && trial.Window > 0) {
			trial.Sitting = 1
		}
	}
	s := (cost.Measure{}).Summarise(run, analysis.Options{})
	portal := sweepOf(t, s, "portal", result.OfferedMbps)
	for i, want := range []int{8, 8, 9, 8, 8} {
		if n := portal.Levels[i].CPUSampled.N; n != want {
			t.Errorf("%g Mbit/s: n = %d blocks, want %d", portal.Levels[i].Level, n, want)
		}
	}
	for _, step := range portal.Increments {
		if step.NetPct.N != 8 {
			t.Errorf("from %g to %g Mbit/s: n = %d blocks, want 8", step.From, step.To, step.NetPct.N)
		}
	}
	if a, b := costModel(t, whole, "portal").Blocks, costModel(t, s, "portal").Blocks; b != a+1 {
		t.Errorf("cost model of %d blocks, %d before", b, a)
	}
	if a, b := len(whole.Stability.Series), len(s.Stability.Series); b != a+1 {
		t.Errorf("stability of %d blocks, %d before", b, a)
	}
}

// TestSweepAlongClients: numbers of clients are measured in different blocks, so their levels are compared as
// independent samples (N is 16 of 8 and 8 blocks).
func TestSweepAlongClients(t *testing.T) {
	s := (cost.Measure{}).Summarise(analysistest.Run(crowd), analysis.Options{})
	portal := sweepOf(t, s, "portal", result.Clients)
	if portal.Cell.Number(result.OfferedMbps) != 1000 || portal.Linearity != nil || len(portal.Levels) != 4 {
		t.Fatalf("%+v", portal)
	}
	step := portal.Increments[2] // 50 to 100 clients: 25 to 30, different blocks
	holds(t, "net", step.NetPct, 5/1.046, 0.6)
	holds(t, "relative", step.RelativePct, 20, 3)
	holds(t, "proportion", step.Proportion, 30./25/2, 0.03)
	if step.NetPct.N != 16 || step.Verdict != analysis.Different {
		t.Errorf("%+v", step)
	}
	holds(t, "ratio", step.RatioPct, 20, 2)
	if step.RatioVerdict != analysis.Different {
		t.Errorf("ratio %s", step.RatioVerdict)
	}
	clean := sweepOf(t, s, analysis.Clean, result.Clients)
	if first := clean.Increments[0]; first.RatioPct.Mean.Known() || first.RatioVerdict != "" {
		t.Errorf("the clean router has a ratio: %+v", first)
	}
	for _, step := range clean.Increments {
		if step.Verdict != analysis.Equivalent {
			t.Errorf("clean router, %g to %g clients: %s %+v", step.From, step.To, step.Verdict, step.RelativePct)
		}
	}
}

// TestOneLevelIsNoSweep: a sweep needs two levels.
func TestOneLevelIsNoSweep(t *testing.T) {
	single := bandwidth
	single.Offered = []float64{400}
	if s := (cost.Measure{}).Summarise(analysistest.Run(single), analysis.Options{}); len(s.Sweeps) != 0 ||
		len(s.CostModels) != 0 {
		t.Errorf("%d sweeps and %d cost models of one cell a device", len(s.Sweeps), len(s.CostModels))
	}
	both := crowd
	both.Offered = []float64{500, 1000}
	s := (cost.Measure{}).Summarise(analysistest.Run(both), analysis.Options{})
	// Both routers have a sweep over loads for each of 4 numbers of clients, and one over clients for each of 2 loads.
	if len(s.Sweeps) != 2*(4+2) {
		t.Errorf("%d sweeps", len(s.Sweeps))
	}
}

// TestLinearity: a straight line fits portal, bent has a bend at 800 Mbit/s, and the levels at which full was at its
// limit are left out.
func TestLinearity(t *testing.T) {
	s := (cost.Measure{}).Summarise(analysistest.Run(bandwidth), analysis.Options{})
	portal := sweepOf(t, s, "portal", result.OfferedMbps).Linearity
	holds(t, "slope", portal.Slope, 20/1.046, 0.5)
	holds(t, "intercept", portal.Intercept, 2, 0.1)
	between(t, "r2", portal.R2, 0.999, 1)
	between(t, "exponent", portal.Exponent.Mean, 0.7, 0.85) // the constant flattens it
	if portal.BendAt.Known() || portal.LevelsUsed != 5 || len(portal.LevelsLeft) != 0 {
		t.Errorf("portal %+v", portal)
	}
	bent := sweepOf(t, s, "bent", result.OfferedMbps).Linearity
	// 10/Gbit/s up to 400 Mbit/s and 30 beyond: 16 at 800 instead of 8.
	if bent.BendAt != 800 {
		t.Errorf("bend at %v", bent.BendAt)
	}
	holds(t, "bend", bent.BendPct, 100, 5)
	between(t, "exponent of the bent one", bent.Exponent.Mean, 1.2, 1.5)
	full := sweepOf(t, s, "full", result.OfferedMbps).Linearity
	if full.LevelsUsed != 3 || len(full.LevelsLeft) != 2 || full.LevelsLeft[0] != 800 || full.BendAt.Known() {
		t.Errorf("full %+v", full)
	}
	holds(t, "exponent of the proportional one", full.Exponent, 1, 0.02)
}

// TestBendFalseAlarms: of 400 noisy sweeps without a bend, at most 5 % may be said to have one (20, give or take 4
// standard deviations: 17).
func TestBendFalseAlarms(t *testing.T) {
	spec := bandwidth
	spec.DUTs = []analysistest.DUT{{Name: "portal", Cost: analysistest.Cost{Constant: 2, PerGbit: 20}}}
	spec.Blocks, spec.AABlocks, spec.MachineSD = 6, 0, 0.15
	alarms := 0
	for seed := range uint64(200) {
		spec.Seed = seed
		s := (cost.Measure{}).Summarise(analysistest.Run(spec), analysis.Options{})
		for _, sweep := range s.Sweeps {
			if sweep.Linearity.BendAt.Known() {
				alarms++
			}
		}
	}
	t.Logf("%d of 400 straight lines called bent", alarms)
	if alarms > 37 {
		t.Errorf("%d of 400 straight lines called bent", alarms)
	}
}

// TestIncrementCoverage: about 95 % of the intervals of increments contain the true value, for levels of the same
// blocks (paired) and of different blocks (Welch): 950 of 1000, give or take 4 standard deviations (28).
func TestIncrementCoverage(t *testing.T) {
	for name, spec := range map[string]analysistest.Spec{"paired": {Clients: []int{1}, Offered: []float64{500, 1000}},
		"welch": {Clients: []int{1, 2}, Offered: []float64{500}}} {
		spec.DUTs = []analysistest.DUT{{Name: "x", Cost: analysistest.Cost{PerGbit: 20}}}
		spec.Blocks, spec.Windows, spec.BlockSD, spec.WindowSD, spec.MachineSD = 6, 3, 0.05, 0.05, 0.05
		truth := 0.0
		if name == "paired" {
			truth = 100
		}
		covered := 0
		for seed := range uint64(1000) {
			spec.Seed = seed
			step := sweepOf(t, (cost.Measure{}).Summarise(analysistest.Run(spec), analysis.Options{}), "x",
				map[string]result.Dimension{"paired": result.OfferedMbps, "welch": result.Clients}[name]).Increments[0]
			if float64(step.RelativePct.Lo) <= truth && truth <= float64(step.RelativePct.Hi) {
				covered++
			}
		}
		t.Logf("%s: %d of 1000 intervals hold the truth", name, covered)
		if covered < 922 || covered > 980 { // Welch's is a little wide with few blocks
			t.Errorf("%s: %d of 1000 intervals hold the truth", name, covered)
		}
	}
}

// TestProfilesAndDirectionsApart: a sweep has one packet profile and one direction.
func TestProfilesAndDirectionsApart(t *testing.T) {
	spec := crowd
	spec.Profiles, spec.Directions, spec.Blocks = []string{"bulk", "per-packet"}, []string{"up", "down"}, 2
	s := (cost.Measure{}).Summarise(analysistest.Run(spec), analysis.Options{})
	if len(s.Sweeps) != 8 || len(s.CostModels) != 8 {
		t.Fatalf("%d sweeps, %d cost models", len(s.Sweeps), len(s.CostModels))
	}
	if first := s.Sweeps[0]; first.Cell.Text(result.Profile) != "bulk" || first.Cell.Text(result.Direction) != "up" ||
		first.Levels[0].LinkMbps.N != 4 {
		t.Errorf("first sweep %+v", first)
	}
	if last := s.Sweeps[7].Cell; last.Text(result.Profile) != "per-packet" || last.Text(result.Direction) != "down" {
		t.Errorf("last sweep %s", last)
	}
}

// TestCleanRouterBesideFullDevices: when all devices were at their limit, the clean router's figures come from its
// windows beside them.
func TestCleanRouterBesideFullDevices(t *testing.T) {
	spec := bandwidth
	spec.DUTs, spec.AABlocks = spec.DUTs[1:2], 0
	clean := sweepOf(
		t, (cost.Measure{}).Summarise(analysistest.Run(spec), analysis.Options{}), analysis.Clean, result.OfferedMbps)
	if len(clean.Levels) != 5 || clean.Levels[4].CPUSampled.N != 8 {
		t.Errorf("%+v", clean.Levels)
	}
}

// TestShortfallWithoutFlag: a fit leaves out a level that did not reach its load, also without a flag.
func TestShortfallWithoutFlag(t *testing.T) {
	run := analysistest.Run(bandwidth)
	for i := range run.Trials {
		run.Trials[i].Flags = nil
	}
	full := sweepOf(t, (cost.Measure{}).Summarise(run, analysis.Options{}), "full", result.OfferedMbps)
	if !full.Levels[4].Shortfall || full.Levels[2].Shortfall || full.Linearity.LevelsUsed != 4 {
		t.Errorf("%+v", full)
	}
}
