package runner

import (
	"testing"

	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
)

// TestRecallGoesOnWhereTheEarlierSittingsEnded: recall reads the records of earlier sittings (parts of the run between
// two interruptions), and counts the attempts at each window. A window is done when an attempt was accepted, or after
// the first attempt and 2 repetitions (Redo).
func TestRecallGoesOnWhereTheEarlierSittingsEnded(t *testing.T) {
	dir := t.TempDir()
	w, _, err := result.OpenWriter(dir)
	if err != nil {
		t.Fatal(err)
	}
	cell := result.NewCell(
		result.DUT, "clean", result.Clients, 1, result.OfferedMbps, 10, result.Direction, "up", result.Profile, "per-packet")
	for _, tr := range []result.Trial{
		{Window: 0, Accepted: true},
		{Window: 1, Attempt: 0, Sitting: 0},
		{Window: 1, Attempt: 1, Sitting: 2},
		{Window: 2, Attempt: 0}, {Window: 2, Attempt: 1}, {Window: 2, Attempt: 2, Sitting: 1},
	} {
		tr.Cell = cell
		if err := w.AppendTrial(tr); err != nil {
			t.Fatal(err)
		}
	}
	alone := struct { // a record of a measure's own kind, with its dimensions among its keys
		result.Head
		DUT     string `json:"dut"`
		Clients int    `json:"clients"`
	}{result.Head{Block: 1, Seconds: 1, Accepted: true}, "opennds", 3}
	if err := w.Append("alone", &alone); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r := &Session{
		Dir: dir, Experiment: &experiment.Experiment{Redo: 2},
		windows: map[windowKey]window{},
	}
	if err := r.recall(); err != nil {
		t.Fatal(err)
	}
	if r.sitting != 3 {
		t.Errorf("sitting %d, want 3 after sittings 0, 1 and 2", r.sitting)
	}
	for w, want := range []struct {
		tried      int
		done, good bool
	}{{1, true, true}, {2, false, false}, {3, true, false}, {0, false, false}} {
		key := windowKey{cell: cell, window: w}
		if got := r.windows[key]; got != (window{tried: want.tried, accepted: want.good, done: want.done}) {
			t.Errorf("window %d: %+v; want %+v", w, got, want)
		}
	}
	if got := r.windows[windowKey{cell: result.NewCell(result.DUT, "opennds", result.Clients, 3), block: 1}]; got != (window{tried: 1, accepted: true, done: true}) {
		t.Errorf("own kind: %+v", got)
	}
}
