package cost_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
)

// interleavedRun returns a run with rounds of clean and two devices that cost 1 and 1.5 times as much. The machine
// drifts from round to round. Each lab and each window has noise of its own.
func interleavedRun(random *rand.Rand) result.Run {
	run := result.Run{Environment: result.Environment{Measure: cost.Name, Mode: result.ModeInterleaved, CPUs: 2}}
	for round := range 6 {
		drift := 0.2 * random.NormFloat64()
		for _, device := range []string{"clean", "equal", "dear"} {
			lab := drift + 0.05*random.NormFloat64()
			if device == "dear" {
				lab += math.Log(1.5)
			}
			for window := range 2 {
				cell := result.NewCell(result.DUT, device, result.Clients, 5, result.OfferedMbps, 100,
					result.Direction, result.Up, result.Profile, result.PerPacket)
				m := cost.Measurement{Seconds: 1, OfferedMbps: 100, DeliveredMbps: 100, LinkMbps: 105, Packets: 9000,
					NAPINs: int64(1e8 * math.Exp(lab+0.03*random.NormFloat64()))}
				run.Trials = append(run.Trials, result.Trial{Cell: cell, Block: round, Window: window, DUTLab: "a", Accepted: true,
					Figures: &cost.Sides{DUT: m}})
			}
		}
	}
	return run
}

// TestRoundsCover: about 95 % of the 95 % intervals over rounds contain the true cost ratio of a device, although the
// machine drifts by several times the noise of a lab. The device "equal" costs as much as the clean router, "dear" 1.5
// times as much.
func TestRoundsCover(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const runs = 1000
	hits := map[string]int{}
	for range runs {
		s := cost.Measure{}.Summarise(interleavedRun(random), analysis.Options{})
		if len(s.Cells) != 2 || s.Unit != "round" {
			t.Fatalf("%d cells, intervals over %s", len(s.Cells), s.Unit)
		}
		for _, c := range s.Cells {
			truth := map[string]float64{"equal": 1, "dear": 1.5}[c.DUT()]
			if r := c.Change(cost.PerBit); float64(r.Lo) <= truth && truth <= float64(r.Hi) {
				hits[c.DUT()]++
			}
		}
	}
	for name, n := range hits {
		t.Logf("%s: %.1f %% of the intervals contain the ratio", name, 100*float64(n)/runs)
		if share := float64(n) / runs; share < 0.93 || share > 0.97 { // three standard errors
			t.Errorf("%s: %.1f %%, want 95", name, 100*share)
		}
	}
}

// TestRoundWithoutClean: a device is compared only in rounds in which the clean router has an accepted window of the
// same sitting. Round 0 has no accepted one, and in round 1 the device "dear" was measured in another sitting.
func TestRoundWithoutClean(t *testing.T) {
	run := interleavedRun(rand.New(rand.NewPCG(1, 2)))
	for i := range run.Trials {
		if run.Trials[i].Block == 0 && run.Trials[i].Cell.Text(result.DUT) == "clean" {
			run.Trials[i].Accepted = false
		}
		if run.Trials[i].Block == 1 && run.Trials[i].Cell.Text(result.DUT) == "dear" {
			run.Trials[i].Sitting = 1
		}
	}
	s := cost.Measure{}.Summarise(run, analysis.Options{})
	for _, c := range s.Cells {
		if want := map[string]int{"equal": 5, "dear": 4}[c.DUT()]; c.Blocks != want {
			t.Errorf("%s has %d rounds, want %d", c.DUT(), c.Blocks, want)
		}
	}
}
