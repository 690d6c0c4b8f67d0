package report

import (
	"slices"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/measure/logins"
	"github.com/gateweigh/gateweigh/lab/result"
)

// TestZeroHasNoSign: a figure that rounds to 0 is printed without a minus sign.
func TestZeroHasNoSign(t *testing.T) {
	for n, want := range map[analysis.Number]string{
		-0.001: "0.00", 0.004: "0.00", -0.006: "-0.01", 0: "0.00", -1: "-1.00"} {
		if got := percentBare(n); got != want {
			t.Errorf("%v is printed as %q, want %q", float64(n), got, want)
		}
	}
}

// TestCellsOfDifferentDimensions: a table names cells by all dimensions that any of them has.
func TestCellsOfDifferentDimensions(t *testing.T) {
	cells := []analysis.Cell{
		{Cell: result.NewCell(result.DUT, "a", result.OfferedMbps, 100)},
		{Cell: result.NewCell(result.DUT, "b", result.Clients, 20, logins.LoginRate, 5, result.Dimension("cipher"), "aes")},
	}
	want := map[string][2]string{
		"DUT": {"a", "b"}, "Offered": {"100", absentFigure}, "Clients": {absentFigure, "20"}, "They come": {absentFigure,
			"5/s"}, "Cipher": {"", "aes"}}
	g := build("", analysis.Summary{Dimensions: slices.Concat(cost.Dimensions, logins.Dimensions)}, cells)
	for i, head := range g.Head {
		for row := range cells {
			if got := g.Rows[row].Cells[i].Main; got != want[head.Name][row] {
				t.Errorf("%s of cell %d is %q, want %q", head.Name, row, got, want[head.Name][row])
			}
		}
		delete(want, head.Name)
	}
	if len(want) > 0 {
		t.Errorf("columns are missing: %v", want)
	}
}
