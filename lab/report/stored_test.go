package report_test

import (
	"encoding/json"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
)

// stored has the parts of summary.json that tests read.
type stored struct {
	Cells   []storedCell
	Sweeps  []analysis.Sweep
	Skipped []result.Skip
}

// storedCell is a cell of summary.json.
type storedCell struct {
	Dimensions    result.Cell
	Pairs, Blocks int
	Metrics       analysis.Figures
	Verdict       struct{ Word string }
}

func (c storedCell) dut() string { return c.Dimensions.Text(result.DUT) }

// readSummary reads summary.json of a run folder.
func readSummary(t *testing.T, dir string) (s stored) {
	t.Helper()
	if err := json.Unmarshal(readFile(t, dir, report.SummaryFile), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// rawCells returns the cells of summary.json as decoded JSON, with all their keys.
func rawCells(t *testing.T, dir string) []map[string]any {
	t.Helper()
	var raw struct {
		Cells []map[string]any `json:"cells"`
	}
	if err := json.Unmarshal(readFile(t, dir, report.SummaryFile), &raw); err != nil {
		t.Fatal(err)
	}
	return raw.Cells
}
