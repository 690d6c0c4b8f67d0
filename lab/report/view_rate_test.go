package report_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure"
	rates "github.com/gateweigh/gateweigh/lab/measure/rate"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
)

// TestRatesWithoutAnAcceptedWindow: without figures, terminal and page do not explain how to read them. The page begins
// with what happened.
func TestRatesWithoutAnAcceptedWindow(t *testing.T) {
	for _, accepted := range []bool{true, false} {
		trial := &rates.Trial{
			Head:        result.Head{Version: result.Version, Kind: rates.KindRate, Accepted: accepted},
			Cell:        result.Cell{}.With(result.DUT, "vxlan").With(result.Clients, 1),
			LoadSeconds: 1, LinkSeconds: 1, DeliveredBytes: 1e6, LinkBytes: 11e5, TheoryShare: 0.9, Formula: "90 / 100",
		}
		if !accepted {
			trial.Rejects = []string{"the lab was held up"}
		}
		run := result.Run{Environment: result.Environment{Measure: rates.Name},
			MeasureRecords: []result.Entry{{Head: trial.Head, Cell: trial.Cell, Record: trial}}}
		var text bytes.Buffer
		if err := report.Terminal(&text, measure.Summarise(run, analysis.Options{}), 0); err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"How to read it", "useful share of the link 90 / 100 = 90"} {
			if strings.Contains(text.String(), part) != accepted {
				t.Errorf("accepted %v: %q is there: %v\n%s", accepted, part, !accepted, &text)
			}
		}
		var page bytes.Buffer
		if err := report.HTML(&page, run, measure.Summarise(run, analysis.Options{})); err != nil {
			t.Fatal(err)
		}
		for part, found := range map[string]bool{
			"Carried is": accepted, `<p class="lead">There is nothing to conclude from`: !accepted} {
			if strings.Contains(page.String(), part) != found {
				t.Errorf("accepted %v: the page has %q: %v", accepted, part, !found)
			}
		}
	}
}

// TestPageOfAFailedRun: the page of a run without any result begins with the error that ended its blocks.
func TestPageOfAFailedRun(t *testing.T) {
	run := result.Run{Environment: result.Environment{Measure: rates.Name}, Blocks: []result.Block{{DUT: "vxlan",
		Error: "there is no way"}}}
	var page bytes.Buffer
	if err := report.HTML(&page, run, measure.Summarise(run, analysis.Options{})); err != nil {
		t.Fatal(err)
	}
	if first := `<p class="lead">Nothing was measured. Block failed: vxlan, block 1: there is no way.`; !strings.Contains(
		page.String(), first) {
		t.Errorf("the page does not begin with %q", first)
	}
}
