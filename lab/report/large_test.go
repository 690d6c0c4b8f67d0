// Tests of reports of very many trials and cells. simulate makes a run from a description such as portalSpec or single,
// without measuring; write writes it and its report into a folder (report_test.go).

package report_test

import (
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/report"
)

// TestManyTrials: the page of a run with 10,000 trials is at most 400 kB, and says that not every trial is drawn.
func TestManyTrials(t *testing.T) {
	spec := portalSpec()
	spec.RejectEvery, spec.Windows, spec.Blocks = 0, 50, 24
	run := simulate(spec)
	if len(run.Trials) < 10_000 {
		t.Fatalf("only %d trials", len(run.Trials))
	}
	dir, s := write(t, run)
	page := string(readFile(t, dir, report.HTMLFile))
	checkPage(t, page)
	if !strings.Contains(page, "At most 200 trials a cell are drawn") {
		t.Error("the page does not say that trials are left out of the charts")
	}
	if len(page) > 400_000 {
		t.Errorf("page of %d bytes", len(page))
	}
	if s.Cells[0].Pairs != 1200 {
		t.Errorf("%d pairs", s.Cells[0].Pairs)
	}
}

// manyCells is a run of 200 cells and 10,000 trials, a tenth of them rejected.
func manyCells() analysistest.Spec {
	spec := portalSpec()
	spec.DUTs = append(spec.DUTs, analysistest.DUT{Name: "allow-list", Ratio: 1.01})
	spec.Clients = []int{1, 10, 50, 100, 250}
	spec.Offered = []float64{100, 200, 300, 400, 500, 600, 700, 800, 900, 1000}
	spec.Blocks, spec.Windows, spec.AABlocks, spec.RejectEvery = 10, 4, 4, 10
	return spec
}

// TestManyCells: the page of a run with 200 cells is at most 4 MB, and its lists are bounded.
func TestManyCells(t *testing.T) {
	run := simulate(manyCells())
	if len(run.Trials) < 9_500 {
		t.Fatalf("only %d trials", len(run.Trials))
	}
	dir, s := write(t, run)
	page := string(readFile(t, dir, report.HTMLFile))
	checkPage(t, page)
	if len(s.Cells) != 200 || len(page) > 4_000_000 {
		t.Errorf("page of %d bytes for %d cells", len(page), len(s.Cells))
	}
	if n := strings.Count(page, "generator at"); n > 400 {
		t.Errorf("%d reasons of rejection are listed", n)
	}
	for _, want := range []string{"more are in trials.jsonl", "more sweeps of lighter loads are not drawn"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// BenchmarkWrite measures the writing of all files of a large run's report.
func BenchmarkWrite(b *testing.B) {
	dir := b.TempDir()
	if err := analysistest.Write(dir, simulate(manyCells())); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := report.Write(dir); err != nil {
			b.Fatal(err)
		}
	}
}
