package cost

import (
	"math"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// The tests of this file check levelDaemons, which spreads the CPU time of daemons that work rarely evenly over the
// windows, and the warning when blocks are too short to contain that work. d is the device.

// secondWindow returns the trial of a window of one second in which the device's processes used processCores cores.
func secondWindow(block, window int, processCores float64) analysis.Trial {
	return TrialsOf([]result.Trial{{
		Cell: result.NewCell(result.DUT, "d", result.Clients, 1, result.OfferedMbps, 10, result.Direction, "up",
			result.Profile, "per-packet"), Block: block, Window: window, Accepted: true,
		Figures: &Sides{DUT: Measurement{Seconds: 1, NAPINs: 1e7, ProcessNs: int64(processCores * 1e9), DeliveredMbps: 10}},
	}})[0]
}

// blockOf returns the record of a block with ten seconds of secondWindow's load, in which the device's processes used
// processCores cores.
func blockOf(index int, processCores float64) result.Block {
	return result.Block{
		DUT: "d", Clients: 1, Direction: "up", Profile: "per-packet", Block: index,
		Figures: &Stay{Stretches: []Stretch{{OfferedMbps: 10, Seconds: 10, ProcessNs: int64(processCores * 10e9)}}},
	}
}

// TestSporadicDaemonIsSpreadAndNotLost: the CPU time of a daemon that works rarely is replaced in each window by its
// mean over whole blocks.
func TestSporadicDaemonIsSpreadAndNotLost(t *testing.T) {
	// Work of 0.1 s falls into one of six windows. Of the blocks of ten seconds, one has it twice and the other once.
	trials := []analysis.Trial{
		secondWindow(0, 0, 0), secondWindow(0, 1, 0.1), secondWindow(0, 2, 0),
		secondWindow(1, 0, 0), secondWindow(1, 1, 0), secondWindow(1, 2, 0),
	}
	for _, got := range levelDaemons(trials, []result.Block{blockOf(0, 0.02), blockOf(1, 0.01)}) {
		if want := 0.015e9; math.Abs(got.Device["process_ns"]-want) > 1 {
			t.Errorf("block %d window %d: %.0f ns, want the run's average of %.0f", got.Block, got.Window,
				got.Device["process_ns"], want)
		}
	}
	if trials[1].Device["process_ns"] != 1e8 {
		t.Error("the raw trial was changed")
	}
}

// TestRepeatedWindowCountsOnce: a window may be measured again, because other programs used CPU (loud: the hypervisor
// took time). Only its quiet attempt counts: the CPU is that of a run (plain) which has nothing but the quiet attempts.
func TestRepeatedWindowCountsOnce(t *testing.T) {
	for _, c := range []struct{ quiet, loud float64 }{{0.002, 0.006}, {0.006, 0.002}, {0.002, 0.30}, {0.30, 0.002}} {
		var run, plain result.Run
		for w := range 3 {
			trial := secondWindow(0, w, c.quiet).Trial
			plain.Trials = append(plain.Trials, trial)
			loud := secondWindow(0, w, c.loud).Trial
			SidesOf(loud).DUT.Machine.Steal, trial.Attempt = 20, 1
			run.Trials = append(run.Trials, loud, trial)
			loud.Attempt = 2
			run.Trials = append(run.Trials, loud)
		}
		run.Blocks = []result.Block{blockOf(0, 0.004)}
		plain.Blocks = run.Blocks
		got, want := (Measure{}).Summarise(run, analysis.Options{}).Cells[0],
			(Measure{}).Summarise(plain, analysis.Options{}).Cells[0]
		if got.Pairs != 3 || got.Device(CPU).Mean.String() != want.Device(CPU).Mean.String() {
			t.Errorf("%+v: %v %% of a core in %d pairs, %v without what was set aside", c, got.Device(CPU).Mean, got.Pairs,
				want.Device(CPU).Mean)
		}
	}
}

// TestWorkThatFollowsTheLoadStaysAsMeasured: the CPU time of processes that work all the time is not changed.
func TestWorkThatFollowsTheLoadStaysAsMeasured(t *testing.T) {
	trials := []analysis.Trial{secondWindow(0, 0, 0.50), secondWindow(0, 1, 0.52), secondWindow(0, 2, 0.90)}
	for i, got := range levelDaemons(trials, []result.Block{blockOf(0, 0.40)}) {
		if now, before := got.Device["process_ns"], trials[i].Device["process_ns"]; now != before {
			t.Errorf("window %d: %.0f ns, want the %.0f it measured", got.Window, now, before)
		}
	}
}

// TestWithoutBlockRecordsTrialsStay: trials of blocks without a record are not changed.
func TestWithoutBlockRecordsTrialsStay(t *testing.T) {
	got := levelDaemons([]analysis.Trial{secondWindow(0, 0, 0.1), secondWindow(0, 1, 0.3)}, nil)
	if first, second := got[0].Device["process_ns"], got[1].Device["process_ns"]; first != 1e8 || second != 3e8 {
		t.Errorf("%.0f and %.0f ns, want them as measured", first, second)
	}
}

// TestShortBlocksAreSaidToMissHousekeeping: there is a warning if no block is as long as the device's housekeeping
// period. The first block takes ten seconds.
func TestShortBlocksAreSaidToMissHousekeeping(t *testing.T) {
	for _, c := range []struct {
		period float64 // of the device's housekeeping, seconds; 0: it has none
		second float64 // length of the second block, seconds
		want   int     // number of warnings
	}{{0, 10, 0}, {30, 12, 1}, {10, 5, 0}, {30, 31, 0}} {
		blocks := []result.Block{blockOf(0, 0), blockOf(1, 0), {DUT: "clean", AA: true,
			Figures: &Stay{HousekeepingSeconds: 99}}}
		for i := range 2 {
			StayOf(blocks[i]).HousekeepingSeconds = c.period
		}
		StayOf(blocks[1]).Stretches = []Stretch{{Seconds: c.second / 2}, {Seconds: c.second / 2}}
		got := housekeepingWarnings(blocks)
		if len(got) != c.want {
			t.Errorf("works every %g s, %g s a block: %q, want %d warnings", c.period, c.second, got, c.want)
		}
		for _, text := range got {
			if !strings.Contains(text, "d works by itself every 30 s, and blocks of this run load it for 12 s") {
				t.Errorf("warning %q does not say how often and how long", text)
			}
		}
	}
}
