package report

import (
	"slices"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// TestOpenSentences: the terminal says why cells have no verdict. Cells with the same reason are in one line.
func TestOpenSentences(t *testing.T) {
	open := func(dut string, note string) analysis.Cell {
		return analysis.Cell{
			Cell: result.NewCell(result.DUT, dut, result.Clients, 20, result.OfferedMbps, 100, result.Direction, "up"), Pairs: 4,
			Verdict: analysis.Inconclusive, VerdictNote: note}
	}
	decided := open("f", "")
	decided.Verdict = analysis.Different
	const wide = "the interval is too wide; needs about 4 more blocks by the spread seen"
	const noise = "two clean routers may differ as much, up or down (A/A 0.930 to 1.090)"
	got := openSentences(analysis.Summary{Cells: []analysis.Cell{
		open("a", wide), open("b", noise), open("c", wide), open("d", wide), open("e", wide), decided}})
	want := []string{
		"Left open (the interval is too wide): a at 100 Mbit/s upload with 20 clients, c at 100 Mbit/s upload with 20 " +
			"clients, d at 100 Mbit/s upload with 20 clients and 1 more.",
		"Left open (" + noise + "): b at 100 Mbit/s upload with 20 clients.",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}
