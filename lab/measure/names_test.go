package measure_test

import (
	"encoding/csv"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/capture"
	"github.com/gateweigh/gateweigh/lab/measure/failover"
	"github.com/gateweigh/gateweigh/lab/measure/logins"
	"github.com/gateweigh/gateweigh/lab/measure/transfer"
	"github.com/gateweigh/gateweigh/lab/measure/transition"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
)

// TestColumnsHaveOneName: the CSV file of a measure has no two columns of the same name, even if its cells have all
// dimensions. Columns are dimensions, metrics and counts.
func TestColumnsHaveOneName(t *testing.T) {
	cell := result.NewCell(
		result.DUT, "x", result.Clients, 1, result.OfferedMbps, 1, result.Direction, result.Up, result.Profile, result.Bulk,
		result.FrameSize, "60", result.LinkMbps, 20, transfer.RouterSpeed, 1, logins.LoginRate, 1, capture.SnapLength, 1,
		capture.BufferKiB, 1,
		capture.Filter, "udp", capture.Work, "gzip", capture.Programs, 1, capture.CPUs, 1, result.BackgroundPct, 1,
		transition.BackgroundKind, "idle", failover.Fault, "kill")
	for _, m := range measure.All() {
		s := m.Summarise(result.Run{}, analysis.Options{})
		s.Cells = []analysis.Cell{{Cell: cell, Metrics: analysis.Figures{}}}
		var b strings.Builder
		if err := report.CSV(&b, s); err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, name := range rows[0] {
			if seen[name] {
				t.Errorf("%s: two columns are called %s", s.Measure, name)
			}
			seen[name] = true
		}
	}
}
