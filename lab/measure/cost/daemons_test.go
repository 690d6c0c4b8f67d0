package cost

import (
	"math"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// secondWindow is a second in which the device's processes used the given cores.
func secondWindow(block, window int, processCores float64) analysis.Trial {
	return TrialsOf([]result.Trial{{
		Cell: result.NewCell(result.DUT, "d", result.Clients, 1, result.OfferedMbps, 10, result.Direction, "up",
			result.Profile, "per-packet"), Block: block, Window: window, Accepted: true,
		Figures: &Sides{DUT: Measurement{Seconds: 1, NAPINs: 1e7, ProcessNs: int64(processCores * 1e9), DeliveredMbps: 10}},
	}})[0]
}

// blockOf is a block of ten seconds under the load of oneWindow.
func blockOf(index int, processCores float64) result.Block {
	return result.Block{
		DUT: "d", Clients: 1, Direction: "up", Profile: "per-packet", Block: index,
		Figures: &Stay{Stretches: []Stretch{{OfferedMbps: 10, Seconds: 10, ProcessNs: int64(processCores * 10e9)}}},
	}
}

func TestSporadicDaemonIsSpreadAndNotLost(t *testing.T) {
	// A tenth of a second of work falls into one window of six; the blocks of
	// ten seconds saw it twice and once.
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

// TestRepeatedWindowCountsOnce: a window that was measured again, because others had CPU, counts once, by the
// attempt that counts, in a block's median and in whether its process time follows the load.
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

func TestWorkThatFollowsTheLoadStaysAsMeasured(t *testing.T) {
	trials := []analysis.Trial{secondWindow(0, 0, 0.50), secondWindow(0, 1, 0.52), secondWindow(0, 2, 0.90)}
	for i, got := range levelDaemons(trials, []result.Block{blockOf(0, 0.40)}) {
		if now, before := got.Device["process_ns"], trials[i].Device["process_ns"]; now != before {
			t.Errorf("window %d: %.0f ns, want the %.0f it measured", got.Window, now, before)
		}
	}
}

func TestWithoutBlockRecordsTrialsStay(t *testing.T) {
	got := levelDaemons([]analysis.Trial{secondWindow(0, 0, 0.1), secondWindow(0, 1, 0.3)}, nil)
	if first, second := got[0].Device["process_ns"], got[1].Device["process_ns"]; first != 1e8 || second != 3e8 {
		t.Errorf("%.0f and %.0f ns, want them as measured", first, second)
	}
}

func TestShortBlocksAreSaidToMissHousekeeping(t *testing.T) {
	for _, c := range []struct {
		period, second float64 // the device's; seconds of the second block, after one of ten
		want           int
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
