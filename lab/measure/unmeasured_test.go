package measure_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
)

// TestUnmeasuredCells: Unmeasured lists the planned cells of which a run has no attempt. Cells of skipped devices are
// not listed, nor is a cell whose attempts were all rejected. A/A trials, of two clean routers, do not count as
// attempts.
func TestUnmeasuredCells(t *testing.T) {
	dir := t.TempDir()
	const planned = "duts = [\"allowlist\", \"opennds\", \"gateway-ebpf\"]\nclients = [3]\noffered_mbps = [10, " +
		"20]\nblocks = 2\naa_blocks = 1\nwindows = 1\n"
	if err := os.WriteFile(filepath.Join(dir, result.ExperimentFile), []byte(planned), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := result.WriteEnvironment(dir, result.Environment{Measure: "cost", Interrupted: true, Skipped: []result.Skip{{
		DUT: "gateway-ebpf", Reason: "not here"}}}); err != nil {
		t.Fatal(err)
	}
	w, _, err := result.OpenWriter(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, tr := range []result.Trial{
		{Cell: cellOf("allowlist", 10), Accepted: true}, {Cell: cellOf("allowlist", 20), Rejects: []string{"held up"}},
		{Cell: cellOf("clean", 10), AA: true, Accepted: true}, {Cell: cellOf("opennds", 10), AA: true, Accepted: true},
	} {
		tr.Figures = &cost.Sides{DUT: cost.Measurement{Seconds: 1}, Clean: cost.Measurement{Seconds: 1}}
		if err := w.AppendTrial(tr); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	run, err := measure.ReadRun(dir)
	if want := []result.Cell{cellOf("opennds", 10), cellOf("opennds", 20)}; err != nil ||
		!slices.Equal(run.Unmeasured, want) {
		t.Errorf("%v, %v; want %v", run.Unmeasured, err, want)
	}
	if err := os.WriteFile(filepath.Join(dir, result.ExperimentFile), []byte(
		"duts = [\"opennds\"]\nclients = [4]\noffered_mbps = [10]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if run, err := measure.ReadRun(dir); err != nil || run.Unmeasured != nil {
		t.Errorf("with another run's experiment: %v, %v", run.Unmeasured, err)
	}
	if err := os.Remove(filepath.Join(dir, result.ExperimentFile)); err != nil {
		t.Fatal(err)
	}
	if run, err := measure.ReadRun(dir); err != nil || run.Unmeasured != nil {
		t.Errorf("without the experiment: %v, %v", run.Unmeasured, err)
	}
}

// cellOf returns a cell of the experiment: a device at a load.
func cellOf(dut string, mbps float64) result.Cell {
	return result.NewCell(result.DUT, dut, result.Clients, 3, result.OfferedMbps, mbps, result.Direction, result.Up,
		result.Profile, result.PerPacket)
}
