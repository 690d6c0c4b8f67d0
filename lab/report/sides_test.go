// Tests of warnings of labs that differ. simulate makes a run from a description such as portalSpec or single, without
// measuring; write writes it and its report into a folder (report_test.go).

package report_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
)

// runOfDifferentLabs is a run (keys beside.*) in which the device's lab has other clients and other traffic than the
// clean router's lab. The ratio is then not the cost of the device alone.
func runOfDifferentLabs() result.Run {
	run := simulate(analysistest.Spec{
		Seed: 5, DUTs: []analysistest.DUT{{Name: "personas", Ratio: 1.2}}, Clients: []int{1, 100}, Offered: []float64{1000},
		Blocks: 6, Windows: 3, AABlocks: 4, BlockSD: 0.02, WindowSD: 0.03,
	})
	run.Environment.Sides = &result.Sides{
		Device: "clients of kind persona, traffic of kind streams", Clean: "clients of kind macvlan, traffic of kind iperf3"}
	for i := range run.Trials {
		t := &run.Trials[i]
		cost.SidesOf(*t).Clean.SegmentsPerBurst, cost.SidesOf(*t).Clean.PacketsPerWakeup = 44, 30
	}
	return run
}

// TestWarningOfDifferentLabs: neither the terminal's table nor the page calls the ratio an overhead. Both show figures
// that explain why packets cost more: segments per burst, packets per wake-up.
func TestWarningOfDifferentLabs(t *testing.T) {
	run := runOfDifferentLabs()
	s := measure.Summarise(run, analysis.Options{})
	var table, page bytes.Buffer
	if err := report.Terminal(&table, s, 120); err != nil {
		t.Fatal(err)
	}
	golden(t, "terminal-sides.txt", table.Bytes())
	if err := report.HTML(&page, run, s); err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(page.String(), "\u00a0", " ")
	for _, want := range []string{
		"How the two labs compare",
		"Compared with a clean router with clients of kind macvlan, traffic of kind iperf3, carrying the same bit",
		"× a clean router with clients of kind macvlan, traffic of kind iperf3",
		"The labs of a pair differ in more than the device", "Ratio of the labs over clients",
		"Only at the clean router beside it", "clean router, clients of kind macvlan", "Packets per wake-up",
		"ACKs per segment",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	for _, not := range []string{"What it costs", "Overhead ratio over", "Published findings"} {
		if strings.Contains(text, not) {
			t.Errorf("the page says %q of a run that compares two kinds of lab", not)
		}
	}
	// In A/A pairs both labs are as the device's. So they must not count in the sweep of the clean router's lab.
	for _, sweep := range s.Sweeps {
		if sweep.Cell.Text(result.DUT) == analysis.Clean && sweep.Levels[0].CPUSampled.N != 6 {
			t.Errorf("the clean router's sweep is of %d blocks, want the 6 with a device", sweep.Levels[0].CPUSampled.N)
		}
	}
	for _, m := range s.CostModels {
		if m.Cell.Text(result.DUT) == analysis.Clean {
			t.Error("there is a cost model over clients for the clean router, which had other clients")
		}
	}
}

// TestSlowedRoutersAreMarked: page, terminal and every row of the CSV say that the routers were slow.
func TestSlowedRoutersAreMarked(t *testing.T) {
	run := runOfDifferentLabs()
	run.Environment.RouterSpeed = 0.25
	for i := range run.Trials {
		cost.SidesOf(run.Trials[i]).DUT.Metrics = map[string]float64{result.RouterShare: 0.251}
	}
	s := measure.Summarise(run, analysis.Options{})
	var table, page, rows bytes.Buffer
	if err := errors.Join(report.Terminal(&table, s, 0), report.HTML(&page, run, s), report.CSV(&rows, s)); err != nil {
		t.Fatal(err)
	}
	const badge = "routers slowed to 25 % of their CPU: measured share 25.1 %"
	for name, text := range map[string]string{"terminal": table.String(), "page": page.String()} {
		if !strings.Contains(text, badge) {
			t.Errorf("%s: no %q", name, badge)
		}
	}
	if n := strings.Count(rows.String(), badge); n != len(s.Cells) {
		t.Errorf("%d of %d rows of the CSV are marked", n, len(s.Cells))
	}
}
