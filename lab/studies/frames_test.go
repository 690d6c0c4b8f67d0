// Tests of a claim about a metric and dimension of its own. simulate makes a run from a description and a course
// (measuredCourse), which says how much dearer a bit is in a cell than proportional; bandwidth and clients are such
// runs over loads and over numbers of clients (simulated_test.go).

package studies

import (
	"testing"
	"testing/fstest"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// TestClaimOnOwnMetricAndDimension: a claim can be on a metric that runs have in their cells
// alone, along a dimension that the summary has no sweeps of.
func TestClaimOnOwnMetricAndDimension(t *testing.T) {
	const size, other = result.Dimension("frame_bytes"), result.Dimension("queues")
	defer func(studies []Study, dimensions analysis.Dimensions) {
		allStudies, files, swept = studies, shipped, dimensions
	}(allStudies, swept)
	files = fstest.MapFS{"frames.csv": {Data: []byte(
		"scenario,frame_bytes,queues,ns_per_packet\nnone,64,2,50\nnone,512,2,60\nnone,1500,2,80\n" +
			"tap,64,2,100\ntap,512,2,150\ntap,1500,2,300\nring,64,2,90\nring,512,2,100\nring,1500,2,110\n")}}
	swept = analysis.Dimensions{
		{Name: size, Axis: analysis.Axis{Heading: "Frame size", Noun: "frame size", By: "at", One: "byte", Many: "bytes"}},
		{Name: other, Axis: analysis.Axis{Heading: "Queues", Noun: "queues", By: "with", One: "queue", Many: "queues"}},
	}
	each := Metric{Name: "ns_per_packet", Noun: "CPU per packet", Short: "ns", Unit: "ns", PublishedUnit: "ns"}
	times := Metric{
		Name: "times", Change: "ns_per_packet", Over: "ns_per_packet", Noun: "CPU per packet over none", Short: "ratio"}
	sizes := &Sweep{Along: size, Fixed: result.NewCell(other, 2), Held: other, Prefer: result.PerPacket, Moves: true,
		Metrics: []Metric{each, times}, File: "frames.csv", Run: "frames"}
	on := []*Sweep{sizes}
	allStudies = []Study{{Number: 98,
		Scenarios: []Scenario{
			{Published: "none", DUT: "clean"}, {Published: "tap", DUT: "tap"}, {Published: "ring", DUT: "ring"}},
		Sweeps: on, Pairs: []Pair{{First: "tap", Second: "ring", Study: true}},
		Claims: []Claim{
			{ID: "rises", Sweeps: on, Metric: each, Judge: monotone()},
			{ID: "above", Subjects: devices, Sweeps: on, Metric: times, Judge: alwaysAbove(1.5)},
			{ID: "larger", Subjects: pairs, Sweeps: on, Metric: each, Judge: costsMore()},
			{ID: "converges", Subjects: pairs, Sweeps: on, Metric: times, Judge: converges()},
		},
		Tables: []TableForm{{Sweep: sizes, Numbers: []string{"1"}, Columns: []ColumnForm{{"%s", each, metricItself, "", ""}, {
			"%s step", each, netStep, "ns", "ns"}}}},
		Units: func(int) string { return "" },
	}}
	around := func(v float64) *analysis.Estimate {
		n := analysis.Number(v)
		return &analysis.Estimate{Mean: n, Lo: n * 0.99, Hi: n * 1.01, N: 5}
	}
	run := analysis.Summary{Experiment: "frames", Delta: 0.05}
	for _, c := range []struct{ bytes, clean, tap, ring float64 }{
		{64, 50, 100, 70}, {512, 60, 150, 90}, {1500, 80, 300, 85}} {
		for dut, ns := range map[string]float64{"tap": c.tap, "ring": c.ring} {
			run.Cells = append(run.Cells, analysis.Cell{Cell: result.NewCell(result.DUT, dut, size, c.bytes, other, 2), Pairs: 9,
				Metrics: analysis.Figures{
					"ns_per_packet": {Device: *around(ns), Clean: around(c.clean), Change: around(ns / c.clean)}}})
		}
	}
	o := Beside(run)[0]
	said := map[string]*bool{}
	for _, f := range o.Findings {
		said[f.ID] = f.Holds
	}
	for id, holds := range map[string]bool{"rises/clean": true, "rises/tap": true, "rises/ring": false,
		"above/tap": true, "above/ring": false, "larger/tap-ring": true, "converges/tap-ring": false} {
		if said[id] == nil || *said[id] != holds {
			t.Errorf("%s does not come to %v: %+v", id, holds, o.Findings)
		}
	}
	step := o.Tables[0].Rows[2].Values[4] // of tap, from 512 to 1500 bytes
	if step.Here.Mean != 150 || !(step.Here.Lo < 147) || !step.Here.HasInterval() || step.Published != 150 {
		t.Errorf("step %+v of %+v", step, o.Tables[0].Columns)
	}
}
