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

// These tests fit cost models to simulated runs with known costs. cost.Measure.Summarise computes the summary of a run.
// holds(t, what, estimate, truth, within) requires the truth in a slightly wider interval, and the mean within that
// distance of it; between requires a number in a range. bandwidth (loads) and crowd (clients) are runs in
// sweeps_test.go.

// grid is a run over clients, loads and packet sizes that tells all terms apart.
var grid = analysistest.Spec{
	Seed: 5, Clients: []int{1, 50, 100}, Offered: []float64{100, 400, 1000},
	DUTs: []analysistest.DUT{
		{Name: "portal", Cost: analysistest.Cost{Constant: 2, PerGbit: 10, PerClient: 0.05, PerMpps: 40}},
	},
	Clean: analysistest.Cost{Constant: 1, PerGbit: 4, PerMpps: 20},
	PayloadBytes: func(c result.Cell) float64 {
		if c.Int(result.Clients) == 50 {
			return 300
		}
		return 1448
	},
	Blocks: 8, Windows: 3, AABlocks: 4, BlockSD: 0.02, WindowSD: 0.02, MachineSD: 0.02,
}

// costModel finds the cost model of a device.
func costModel(t *testing.T, s analysis.Summary, dut string) analysis.CostModel {
	t.Helper()
	for _, m := range s.CostModels {
		if m.Cell.Text(result.DUT) == dut {
			return m
		}
	}
	t.Fatalf("no cost model of %s", dut)
	return analysis.CostModel{}
}

// terms checks the coefficients of a model. want has three values for each term: its name, its true value, and how far
// off the estimate may be.
func terms(t *testing.T, m analysis.CostModel, want ...any) {
	t.Helper()
	if len(m.Terms) != len(want)/3 {
		t.Fatalf("%s: terms %+v, omitted %q", m.Cell.Text(result.DUT), m.Terms, m.Omitted)
	}
	for i, term := range m.Terms {
		if term.Name != want[3*i] {
			t.Errorf("%s: term %s, want %v", m.Cell.Text(result.DUT), term.Name, want[3*i])
		}
		holds(t, m.Cell.Text(result.DUT)+", "+term.Name, term.Value, want[3*i+1].(float64), want[3*i+2].(float64))
	}
}

// TestCostModel: the fit to grid finds all four terms.
func TestCostModel(t *testing.T) {
	s := (cost.Measure{}).Summarise(analysistest.Run(grid), analysis.Options{})
	m := costModel(t, s, "portal")
	terms(t, m,
		analysis.TermLoad, 10.0, 2.0, analysis.TermConstant, 2.0, 0.4, analysis.TermClients, 0.05, 0.01, analysis.TermPackets,
		40.0, 6.0)
	if m.Cells != 9 || m.Blocks != 24 || m.MinClients != 1 || m.MaxClients != 100 || m.MinMbps != 100 ||
		m.MaxMbps != 1000 || len(m.Omitted) != 0 {
		t.Errorf("%+v", m)
	}
	between(t, "r2", m.R2, 0.99, 1)
	between(t, "residuals", m.ResidualPct, 1, 4)
	clean := costModel(t, s, analysis.Clean)
	if clean.Blocks != 36 || clean.Terms[0].Name != analysis.TermLoad {
		t.Errorf("clean %+v", clean)
	}
}

// TestCapacity: the capacity is the load at which the model reaches a whole core. For a device that reached its limit
// it is the load delivered.
func TestCapacity(t *testing.T) {
	s := (cost.Measure{}).Summarise(analysistest.Run(bandwidth), analysis.Options{})
	portal := costModel(t, s, "portal")
	terms(t, portal, analysis.TermLoad, 20.0, 0.5, analysis.TermConstant, 2.0, 0.1)
	c := portal.Capacity[0]
	holds(t, "capacity", c.Mbps, 4900, 100) // 2 + 20 · 4.9 = 100
	if len(portal.Capacity) != 1 || c.Clients != 100 || !c.Extrapolated || c.Saturated || c.MeasuredMbps != 1000 ||
		!strings.Contains(c.Note, "4.9 times") {
		t.Errorf("%+v", c)
	}
	if all := strings.Join(portal.Omitted, " "); !strings.Contains(all, "No term per client:") ||
		!strings.Contains(all, "No term per packet:") {
		t.Errorf("omitted %q", all)
	}
	full := costModel(t, s, "full")
	c = full.Capacity[0]
	if !c.Saturated || c.Extrapolated || c.Mbps.Mean != 700 || c.Mbps.N != 8 || full.Cells != 3 ||
		!strings.Contains(c.Note, "clean router beside it took 9 %") {
		t.Errorf("%+v of %d cells", c, full.Cells)
	}
}

// TestAlwaysAtTheLimit: a device that was at its limit in all cells has no terms, but a capacity.
func TestAlwaysAtTheLimit(t *testing.T) {
	spec := crowd
	spec.DUTs = []analysistest.DUT{{Name: "full", Cost: analysistest.Cost{PerGbit: 100}, MaxMbps: 700}}
	m := costModel(t, (cost.Measure{}).Summarise(analysistest.Run(spec), analysis.Options{}), "full")
	if len(m.Terms) != 0 || m.R2.Known() || len(m.Omitted) != 1 || !strings.Contains(m.Omitted[0], "0 cells of 4") {
		t.Errorf("%+v", m)
	}
	for _, c := range m.Capacity {
		if !c.Saturated || c.Mbps.Mean != 700 {
			t.Errorf("%+v", c)
		}
	}
}

// TestCapacityAlongClients: a run with one load cannot tell a constant from a cost that grows with the load. The model
// says so in Omitted.
func TestCapacityAlongClients(t *testing.T) {
	s := (cost.Measure{}).Summarise(analysistest.Run(crowd), analysis.Options{})
	m := costModel(t, s, "portal")
	terms(t, m, analysis.TermLoad, 20.0, 0.5, analysis.TermClients, 0.1, 0.01)
	if len(m.Capacity) != 4 || !strings.HasPrefix(m.Omitted[0], "No constant:") {
		t.Fatalf("%+v", m)
	}
	holds(t, "capacity for 100 clients", m.Capacity[3].Mbps, 4500, 150) // 20 · 4.5 + 0.1 · 100
	if !strings.Contains(m.Capacity[3].Note, "proportional") {
		t.Errorf("note %q", m.Capacity[3].Note)
	}
}

// TestNoCapacityWithoutSlope: if CPU hardly grows with the load, or is above a core without load, no capacity can be
// computed.
func TestNoCapacityWithoutSlope(t *testing.T) {
	spec := bandwidth
	spec.DUTs = []analysistest.DUT{{Name: "flat", Cost: analysistest.Cost{Constant: 5, PerGbit: 0.001}}}
	c := costModel(t, (cost.Measure{}).Summarise(analysistest.Run(spec), analysis.Options{}), "flat").Capacity[0]
	if c.Mbps.Mean.Known() || c.Note == "" {
		t.Errorf("%+v", c)
	}
	spec.DUTs[0].Cost = analysistest.Cost{Constant: 200, PerGbit: 100}
	c = costModel(t, (cost.Measure{}).Summarise(analysistest.Run(spec), analysis.Options{}), "flat").Capacity[0]
	if c.Mbps.Mean.Known() || !strings.Contains(c.Note, "whole core by itself") {
		t.Errorf("%+v", c)
	}
}

// TestCostModelCoverage: the intervals of coefficients and capacity hold the
// truth at least 93 % of the time; the jackknife may be a little wide.
func TestCostModelCoverage(t *testing.T) {
	const simulations = 500
	spec := analysistest.Spec{
		Clients: []int{1, 50, 100}, Offered: []float64{100, 1000}, Blocks: 4, Windows: 2, BlockSD: 0.04, WindowSD: 0.03,
		MachineSD: 0.03,
		DUTs:      []analysistest.DUT{{Name: "x", Cost: analysistest.Cost{Constant: 2, PerGbit: 20, PerClient: 0.05}}},
	}
	truth := map[string]float64{
		analysis.TermConstant: 2, analysis.TermLoad: 20, analysis.TermClients: 0.05, "capacity": math.Log(4650)}
	covered := map[string]int{}
	// count counts the intervals that contain the true value; of puts their bounds on the scale of the truth.
	count := func(name string, e analysis.Estimate, of func(analysis.Number) float64) {
		if of(e.Lo) <= truth[name] && truth[name] <= of(e.Hi) {
			covered[name]++
		}
	}
	for seed := range uint64(simulations) {
		spec.Seed = seed
		m := costModel(t, (cost.Measure{}).Summarise(analysistest.Run(spec), analysis.Options{}), "x")
		for _, term := range m.Terms {
			count(term.Name, term.Value, func(n analysis.Number) float64 { return float64(n) })
		}
		count("capacity", m.Capacity[2].Mbps, func(n analysis.Number) float64 { return math.Log(float64(n)) })
	}
	t.Logf("of %d intervals hold the truth: %v", simulations, covered)
	for name := range truth {
		if covered[name] < 465 {
			t.Errorf("%s: %d of %d intervals hold the truth", name, covered[name], simulations)
		}
	}
}
