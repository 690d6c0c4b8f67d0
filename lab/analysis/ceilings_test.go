package analysis_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
)

// ladder is a simulated run of mode solo: each lab has the whole machine for its windows. Of its devices, full carries
// 700 Mbit/s and none 100 Mbit/s; the others carry all loads.
func ladder() result.Run {
	return analysistest.Run(analysistest.Spec{
		Seed: 5, Mode: result.ModeSolo, Clients: []int{20}, Offered: []float64{1000, 500, 750, 250}, Blocks: 3, Windows: 2,
		DUTs: []analysistest.DUT{
			{Name: "full", Ratio: 5, MaxMbps: 700}, {Name: "light", Ratio: 0.9}, {Name: "none", Ratio: 9, MaxMbps: 100},
			{Name: "lossy", Ratio: 2},
		},
	})
}

// TestCeilings: a ceiling lies between two loads: the first that was not carried, and the one below it.
func TestCeilings(t *testing.T) {
	run := ladder()
	for i := range run.Trials {
		if trial := &run.Trials[i]; trial.Cell.Text(result.DUT) == "lossy" {
			switch {
			case trial.Cell.Number(result.OfferedMbps) == 500: // frames were lost in all trials: the load is not carried
				trial.Flags = append(trial.Flags, result.FlagLossy)
			case trial.Cell.Number(result.OfferedMbps) == 250 && trial.Block == 1: // in one block of three: a hiccup
				trial.Flags = append(trial.Flags, result.FlagLossy)
			}
		}
	}
	got := map[string]string{}
	for _, l := range (cost.Measure{}).Summarise(run, analysis.Options{}).Ceilings {
		got[l.Cell.Text(result.DUT)] = fmt.Sprintf(
			"%.0f, fails %.0f %s, most %.0f", l.CarriesMbps, l.FailsMbps, l.Why, l.MostMbps)
		if l.Cell.Without(result.DUT) != result.NewCell(result.Clients, 20, result.Direction, result.Up, result.Profile,
			result.PerPacket) || l.CarriesMbps.Known() != l.CPUCorePct.Known() {
			t.Errorf("%+v", l)
		}
	}
	want := map[string]string{
		"clean": "1000, fails NaN , most 1000",
		"full":  "500, fails 750 dut-saturated, most 700",
		"light": "1000, fails NaN , most 1000",
		"none":  "NaN, fails 250 dut-saturated, most 100",
		"lossy": "250, fails 500 dut-lossy, most 1000",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestNoCeilings: a duet has no ceilings, because a device beside a clean router reaches its limit early. A run with
// one load has none either, and loads without an accepted trial do not count.
func TestNoCeilings(t *testing.T) {
	run := ladder()
	run.Environment.Mode = result.ModeDuet
	if l := (cost.Measure{}).Summarise(run, analysis.Options{}).Ceilings; l != nil {
		t.Errorf("duet: %+v", l)
	}
	run = ladder()
	for i := range run.Trials {
		trial := &run.Trials[i]
		trial.Accepted = trial.Cell.Number(result.OfferedMbps) < 1000 && trial.Cell.Text(result.DUT) == "light"
	}
	for _, l := range (cost.Measure{}).Summarise(run, analysis.Options{}).Ceilings {
		dut := l.Cell.Text(result.DUT)
		switch carried := dut == "light" || dut == analysis.Clean; {
		case carried && (l.CarriesMbps != 750 || l.FailsMbps.Known()):
			t.Errorf("%+v", l)
		case !carried && (l.CarriesMbps.Known() || l.FailsMbps.Known() || l.MostMbps.Known()):
			t.Errorf("%+v", l)
		}
	}
	one := analysistest.Run(
		analysistest.Spec{Seed: 5, Mode: result.ModeSolo, Clients: []int{20}, Offered: []float64{100}, Blocks: 2, Windows: 1,
			DUTs: []analysistest.DUT{{Name: "light", Ratio: 1}}})
	if l := (cost.Measure{}).Summarise(one, analysis.Options{}).Ceilings; l != nil {
		t.Errorf("one load: %+v", l)
	}
}
