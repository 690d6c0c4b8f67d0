package cost

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// TestAddedDelay: the delay that the load adds is compared between the sides by difference. A run that did not measure
// idle labs has none of these metrics.
func TestAddedDelay(t *testing.T) {
	// side has medians of round-trip times in µs: idle without a load, loaded with it.
	side := func(idle, loaded float64) Measurement {
		s := &lab{idle: result.RTT{P50: idle, P99: 3 * idle}}
		return Measurement{Seconds: 1, RTT: result.RTT{P50: loaded, P99: 5 * loaded, Probes: 100}, Metrics: s.idleFigures()}
	}
	summary := func(idle float64) analysis.Summary {
		var run result.Run
		cell := result.NewCell(result.DUT, "d", result.Clients, 1, result.OfferedMbps, 10.0)
		for block, more := range []float64{0, 10} {
			sides := &Sides{DUT: side(idle, 300+more), Clean: side(idle, 250)}
			run.Trials = append(run.Trials, result.Trial{Cell: cell, Block: block, Accepted: true, Figures: sides})
		}
		return Measure{}.Summarise(run, analysis.Options{})
	}
	c := summary(200).Cells[0]
	for metric, want := range map[string][3]analysis.Number{ // device, clean router, difference
		IdleP50Us: {200, 200, 0}, IdleP99Us: {600, 600, 0},
		AddedP50Us: {105, 50, 55}, AddedP99Us: {925, 650, 275},
	} {
		got := [3]analysis.Number{c.Device(metric).Mean, c.Clean(metric).Mean, c.Change(metric).Mean}
		if got != want || c.Change(metric).N != 2 {
			t.Errorf("%s: device, clean, difference %v over %d blocks, want %v over 2", metric, got, c.Change(metric).N, want)
		}
	}
	text, err := json.Marshal(summary(0))
	if err != nil || strings.Contains(string(text), "rtt_idle") || strings.Contains(string(text), "rtt_added") {
		t.Errorf("%v, of a run without idle labs: %s", err, text)
	}
}
