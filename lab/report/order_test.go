// Tests of the order of devices in a report. simulate makes a run from a description such as portalSpec or single,
// without measuring; write writes it and its report into a folder (report_test.go).

package report_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/capture"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/measure/logins"
	rates "github.com/gateweigh/gateweigh/lab/measure/rate"
	"github.com/gateweigh/gateweigh/lab/measure/throughput"
	"github.com/gateweigh/gateweigh/lab/measure/transfer"
	"github.com/gateweigh/gateweigh/lab/measure/transition"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
)

// cellWithInterval returns a cell of a device in which all given metrics have the same mean and interval.
func cellWithInterval(dut string, lo, mean, hi float64, metrics ...string) analysis.Cell {
	c := cell(dut, "", 1)
	e := analysis.Estimate{Mean: analysis.Number(mean), Lo: analysis.Number(lo), Hi: analysis.Number(hi), N: 3}
	for _, m := range metrics {
		c.Metrics[m] = analysis.Figure{Device: e}
	}
	return c
}

// TestOrderIsClaimedWhereIntervalsDecide: for every measure, the first sentence names a first or last device only if
// the intervals do not overlap (decided). Otherwise it says that the order is open, and the picture says that its order
// is an estimate.
func TestOrderIsClaimedWhereIntervalsDecide(t *testing.T) {
	ndr := "ndr_kpps"
	of := map[string][]string{
		rates.Name: {rates.Goodput, rates.PerCore}, logins.Name: {"login_per_second"}, throughput.Name: {ndr},
		capture.Name:  {"ns_per_frame"},
		transfer.Name: {transfer.MaxRate, "ns_per_byte"}, transition.Name: {transition.MetricOf(transition.Up, "p50")},
		"another": {"figure"},
	}
	for name, metrics := range of {
		s := analysis.Summary{Measure: name, Confidence: 0.95, Noun: "trial"}
		for _, m := range metrics {
			s.Metrics = append(s.Metrics, analysis.Metric{Name: m, Short: "NDR", Better: analysis.More})
		}
		for _, decided := range []bool{true, false} {
			s.Cells = []analysis.Cell{
				cellWithInterval("a", 130, 321, 553, metrics...), cellWithInterval("b", 61, 300, 935, metrics...)}
			if decided {
				s.Cells = []analysis.Cell{
					cellWithInterval("a", 300, 321, 353, metrics...), cellWithInterval("b", 100, 110, 120, metrics...)}
			}
			lead, _ := firstScreen(t, s)
			open := strings.Contains(lead, "open")
			if lead == "" || open == decided {
				t.Errorf("%s, decided %v: %q", name, decided, lead)
			}
			if picture := pageOf(t, s); strings.Contains(picture, "as estimated") == decided {
				t.Errorf("%s, decided %v: the picture says that its order is estimated: %v", name, decided, !decided)
			}
		}
	}
}

// pageOf returns the page of a summary.
func pageOf(t *testing.T, s analysis.Summary) string {
	t.Helper()
	if s.AA.Pairs == 0 {
		s.AA.Ratio = analysis.Unknown()
	}
	var b bytes.Buffer
	if err := report.HTML(&b, result.Run{}, s); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestLeadOfCostsThatOverlap: the sentence says that the order of two devices with overlapping intervals is open, and
// gives the interval of a device without a verdict.
func TestLeadOfCostsThatOverlap(t *testing.T) {
	near := func(dut, verdict string, lo, mean, hi float64) analysis.Cell {
		c := cell(dut, verdict, mean)
		c.Metrics[cost.PerBit].Change.Lo, c.Metrics[cost.PerBit].Change.Hi = analysis.Number(lo), analysis.Number(hi)
		return c
	}
	lead, _ := firstScreen(t, analysis.Summary{Confidence: 0.95, Delta: 0.05, Cells: []analysis.Cell{
		near("a", analysis.Different, 1.5, 1.9, 2.4), near("b", analysis.Different, 1.6, 2, 2.5),
		near("c", analysis.Different, 4, 5, 6), near("d", analysis.Inconclusive, 0.37, 5.5, 83),
	}})
	if want := "from 1.90 times the CPU with a to 5.00 times with c; the order of a and b is open, because intervals " +
		"overlap or are missing; what d [0.37, 83.0] costs, this run leaves open."; !strings.HasSuffix(lead, want) {
		t.Errorf("got  %s\nwant … %s", lead, want)
	}
}

// TestFirstScreenCountsRejectedTrials: the first screen says how many trials were rejected, of how many.
func TestFirstScreenCountsRejectedTrials(t *testing.T) {
	s := analysis.Summary{Measure: cost.Name, Noun: "trial", Confidence: 0.95, Delta: 0.05, Cells: []analysis.Cell{cell(
		"a", analysis.Different, 2)}}
	for want, counts := range map[string]analysis.Counts{
		"135 of 170 trials rejected (79.4 %).": {Accepted: 35, Rejected: 135},
		"None of 80 trials was rejected.":      {Accepted: 80},
	} {
		s.Trials = counts
		if text := plainSpaces(pageOf(t, s)); !strings.Contains(text, `<p class="trials">`+want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// TestNoChartWithoutAValue: if clients lease no addresses, there is no chart, table or column of leases. The page of
// login storms does not speak of portals.
func TestNoChartWithoutAValue(t *testing.T) {
	run := loginRun()
	for _, leases := range []bool{true, false} {
		if !leases {
			for i := range run.MeasureRecords {
				s := run.MeasureRecords[i].Record.(*logins.Storm)
				s.Lease, s.DeviceLeases = logins.Phase{}, false
			}
		}
		s := measure.Summarise(run, analysis.Options{})
		text := pageOf(t, s)
		for _, part := range []string{"<h4>Leased</h4>", "<summary>Leases</summary>"} {
			if strings.Contains(text, part) != leases {
				t.Errorf("leases %v: %s is there: %v", leases, part, !leases)
			}
		}
		if strings.Contains(text, "portal") {
			t.Errorf("leases %v: the page of login storms speaks of portals: %s", leases,
				regexp.MustCompile(`.{60}portal.{60}`).FindString(text))
		}
		var terminal bytes.Buffer
		if err := report.Terminal(&terminal, s, 0); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(terminal.String(), "leases/s") != leases {
			t.Errorf("leases %v: the terminal's table:\n%s", leases, &terminal)
		}
	}
}

// TestNoColumnWithoutAFigure: tables of results have no column for a metric that no cell has.
func TestNoColumnWithoutAFigure(t *testing.T) {
	s := measure.Summarise(simulate(single()), analysis.Options{})
	for _, c := range s.Cells {
		for name := range c.Metrics {
			if strings.HasPrefix(name, "login") {
				delete(c.Metrics, name)
			}
		}
	}
	text := pageOf(t, s)
	if strings.Contains(text, `data-field="metrics.login`) ||
		!strings.Contains(text, `data-field="metrics.setup_seconds`) {
		t.Error("columns of logins, of which nothing is known, or none of set-up")
	}
	for _, table := range regexp.MustCompile(`(?s)<table class="sortable">.*?</table>`).FindAllString(text, -1) {
		if !strings.Contains(table, "data-field") && !strings.Contains(table, `class="text"`) {
			t.Errorf("a table without figures: %.200s", table)
		}
	}
}
