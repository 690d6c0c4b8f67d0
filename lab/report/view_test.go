// Tests of metrics and measures without a view of their own. simulate makes a run from a description such as portalSpec
// or single, without measuring; write writes it and its report into a folder (report_test.go).

package report_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
)

// joules is a metric that only these tests have. Such a description is all that a new metric needs.
var joules = analysis.Metric{
	Name: "router_joules", Unit: "J", Text: "energy of the router", Better: analysis.Less, Against: analysis.AsDifference,
	Host: "router", Per: analysis.PerWindow, Both: true, Range: analysis.Amounts,
	Value: analysis.Field("metrics.router_joules")}

// withJoules is a simulated run with the metric in each window: 7 J at the device, 3 J at the clean router.
func withJoules() result.Run {
	run := simulate(portalSpec())
	for i := range run.Trials {
		cost.SidesOf(run.Trials[i]).DUT.Metrics = map[string]float64{"router_joules": 7}
		cost.SidesOf(run.Trials[i]).Clean.Metrics = map[string]float64{"router_joules": 3}
	}
	return run
}

// TestNewMetricIsWritten: the new metric is in the summary and in the CSV, with its interval, for both sides and as
// their difference.
func TestNewMetricIsWritten(t *testing.T) {
	shipped := cost.Metrics
	t.Cleanup(func() { cost.Metrics = shipped })
	cost.Metrics = append(slices.Clone(shipped), joules)
	s := measure.Summarise(withJoules(), analysis.Options{})
	c := s.Cells[0]
	if c.Device("router_joules").Mean != 7 || c.Clean("router_joules").Mean != 3 || c.Change("router_joules").Mean != 4 ||
		c.Device("router_joules").N < 2 {
		t.Errorf("device %+v, clean %+v, change %+v", c.Device("router_joules"), c.Clean("router_joules"),
			c.Change("router_joules"))
	}
	var table bytes.Buffer
	if err := report.CSV(&table, s); err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(table.String(), "\n")
	for _, column := range []string{"router_joules", "router_joules_lo", "clean_router_joules", "router_joules_change"} {
		if !slices.Contains(strings.Split(head, ","), column) {
			t.Errorf("the CSV has no column %s: %s", column, head)
		}
	}
}

// TestPlainViewOfNewMeasure: a measure without a view of its own is shown by its list of metrics, and its new dimension
// (frame_bytes) is shown too.
func TestPlainViewOfNewMeasure(t *testing.T) {
	input := analysis.Input{
		Measure: "energy", Noun: "trial", Metrics: []analysis.Metric{joules}, Compare: func(a, b result.Cell) int {
			return result.CompareCells(a, b, result.DUT, "frame_bytes")
		}}
	for i, dut := range []string{"a", "b\x1b[31m", "a", "b\x1b[31m"} {
		cell := result.NewCell(result.DUT, dut, result.Dimension("frame_bytes"), 64)
		trial := analysis.Trial{Trial: result.Trial{Cell: cell, Block: i / 2, Accepted: true}, Device: result.Values{
			"metrics.router_joules": float64(i%2 + 1)}, Clean: result.Values{"metrics.router_joules": 1}}
		input.Trials = append(input.Trials, trial)
	}
	s := analysis.Summarise(input, analysis.Options{})
	var text, page bytes.Buffer
	if err := report.Terminal(&text, s, 100); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text.String(), "\x1b") || !strings.Contains(text.String(), "router_joules") ||
		!strings.Contains(text.String(), "energy · 64") {
		t.Errorf("terminal:\n%q", text.String())
	}
	if err := report.HTML(&page, input.Run, s); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Energy of the router, J", "The least energy of the router: a with 1.00", "Frame bytes",
		`data-field="metrics.router_joules.device.mean"`} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	s.Metrics[0].Better = analysis.More
	page.Reset()
	if err := report.HTML(&page, input.Run, s); err != nil ||
		!strings.Contains(page.String(), "The most energy of the router: b") {
		t.Errorf("%v: more is better, and the page does not name the device with the most", err)
	}
	if !slices.IsSortedFunc(s.Cells, func(a, b analysis.Cell) int { return input.Compare(a.Cell, b.Cell) }) {
		t.Error("the page put the summary's cells in another order")
	}
}

// TestSummaryReadsBack: cells can be read again from summary.json.
func TestSummaryReadsBack(t *testing.T) {
	s := measure.Summarise(simulate(portalSpec()), analysis.Options{})
	first, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back analysis.Summary
	if err := json.Unmarshal(first, &back); err != nil {
		t.Fatal(err)
	}
	if again, err := json.Marshal(back.Cells); err != nil || !bytes.Contains(first, again) {
		t.Errorf("%v: cells changed on their way: %.300s", err, again)
	}
}

// TestCellWithoutVerdict: a cell may be read with "verdict": null, as other programs may write it.
func TestCellWithoutVerdict(t *testing.T) {
	var c analysis.Cell
	if err := json.Unmarshal([]byte(`{"dimensions":{"dut":"a"},"verdict":null}`), &c); err != nil || c.DUT() != "a" ||
		c.Verdict != "" || c.PDifferent.Known() {
		t.Errorf("%v: %+v", err, c)
	}
}
