// Tests of words that page and tables use for a figure. simulate makes a run from a description such as portalSpec or
// single, without measuring; write writes it and its report into a folder (report_test.go).

package report_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/measure/logins"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
)

// TestWordsOfPageAndTable: texts about skipped devices, rejected trials, limits and findings, which readers once
// misunderstood, have their present wording.
func TestWordsOfPageAndTable(t *testing.T) {
	run := result.Run{
		Skipped: []result.Skip{{DUT: "coovachilli", Reason: "not on PATH: chilli (build it)"}},
		Trials: []result.Trial{
			{Cell: result.NewCell(result.DUT, "ebpf"), Rejects: []string{"steal 3 %", "lost 5 probes"}, Block: 0, Window: 2,
				Figures: &cost.Sides{}},
			{Cell: result.NewCell(result.DUT, "ebpf"), Rejects: []string{"steal 4 %"}, Block: 1, Figures: &cost.Sides{}},
		},
	}
	s := measure.Summarise(run, analysis.Options{})
	s.Limits = []analysis.Limit{{DUT: "ebpf", Clients: 20, Took: 10, How: "no lease"}}
	s.Findings = []analysis.Finding{
		{ID: "x/coovachilli", Here: "coovachilli: not measured."}, {ID: "x/opennds", Here: "coovachilli and opennds: alike."},
		{ID: "x/clean", Here: "the clean router: straight."},
	}
	var page, text bytes.Buffer
	if err := report.HTML(&page, run, s); err != nil {
		t.Fatal(err)
	}
	if err := report.Terminal(&text, s, 0); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Skipped: coovachilli: not on PATH: chilli (build it)\n",
		"Rejected: 2 trials by self-tests, 0 accepted (0 repeat a rejected or noisy one). Some have several reasons:\n",
		"  1 ×: lost 5 probes\n",
		"  2 ×, such as: steal"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, text.String())
		}
	}
	for _, want := range []string{
		"<dt>coovachilli</dt><dd>not on PATH: chilli (build it)</dd>", "<li>ebpf took 10 clients and not 20: no lease.</li>",
		"<p>Not measured.</p>", "<p>coovachilli and opennds: alike.</p>", "<p>The clean router: straight.</p>",
		"<td>1</td><td>3</td><td>1</td><td class=\"text\">steal 3 %; lost 5 probes</td>",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// TestStormsHeldUpDifferently: if different things limited the storms of a cell, the report names all of them, and
// warns that the device may be faster.
func TestStormsHeldUpDifferently(t *testing.T) {
	run := loginRun()
	for _, st := range result.RecordsOf[logins.Storm](run.MeasureRecords) {
		if st.DUT == "fast" && st.Clients == 30 && st.Block > 0 {
			st.Login.Limit = logins.LimitWaiting
		}
	}
	var text strings.Builder
	if err := report.Terminal(&text, measure.Summarise(run, analysis.Options{}), 0); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"device: it waits (3), client host's CPU (1)\n",
		"faster than shown: fast, 30 clients, all at once; fast, 100 clients, all at once."} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q:\n%s", want, text.String())
		}
	}
}

// TestOpenIntervals: two blocks that differ by a factor of ten give a useless interval of a time. The page then shows
// the word "open" instead of the interval's digits.
func TestOpenIntervals(t *testing.T) {
	spec := single()
	spec.Blocks = 2
	run := analysistest.Run(spec)
	for i := range run.Trials {
		if trial := &run.Trials[i]; trial.Cell.Text(result.DUT) == "ebpf" && trial.Block == 1 {
			cost.SidesOf(*trial).DUT.RTT.P99 *= 10
		}
	}
	s := measure.Summarise(run, analysis.Options{})
	var page bytes.Buffer
	if err := report.HTML(&page, run, s); err != nil {
		t.Fatal(err)
	}
	for _, c := range s.Cells {
		wide := c.DUT() == "ebpf"
		if e := c.Device("rtt_p99_us"); e.Lo <= 0 || e.Hi > 1000*e.Mean != wide {
			t.Errorf("%s: %+v", c.DUT(), e)
		}
	}
	if n := strings.Count(page.String(), "<small>[open, n = 2]</small>"); n != 1 {
		t.Errorf("%d open intervals on the page", n)
	}
}
