package analysis

import (
	"cmp"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/result"
)

// judged is the input of a run with one metric, heat in K, for a device called stove. Of its eight blocks the last four
// are A/A (two clean routers, which hardly differ). The device has 3 K more than the clean router: 14 and 11 in even
// blocks, 12 and 9 in odd ones. Each block has two windows and one record of its load, with the same figures.
func judged(m Metric) Input {
	m.Name, m.Unit, m.Better, m.Both, m.Range = "heat", "K", Less, true, Amounts
	m.Value = Field("heat")
	input := Input{
		Noun: "window", Metrics: []Metric{m}, Primary: "heat", Load: []result.Dimension{result.OfferedMbps},
		Compare: func(a, b result.Cell) int { return cmp.Compare(a.String(), b.String()) },
	}
	for block := range 8 {
		aa := block >= 4
		clean := 11 - 2*float64(block%2)
		device := clean + 3
		if aa {
			device = clean + 0.01*float64(block-5) - 0.005
		}
		cell := result.NewCell(result.DUT, "stove", result.OfferedMbps, 10)
		sides := [2]result.Values{{"heat": device}, {"heat": clean}}
		for window := range 2 {
			t := Trial{Device: sides[0], Clean: sides[1]}
			t.Cell, t.Block, t.Window, t.AA, t.Accepted = cell, block, window, aa, true
			input.Trials = append(input.Trials, t)
		}
		input.Samples = append(input.Samples, Sample{Per: PerLoad, Cell: cell, AA: aa, Device: sides[0], Clean: sides[1]})
	}
	return input
}

// TestAnyMetricIsJudged: a metric of windows or of other records gets a verdict by ratio or by difference.
func TestAnyMetricIsJudged(t *testing.T) {
	for _, per := range []Per{PerWindow, PerLoad} {
		for against, want := range map[Against]struct{ change, floor float64 }{AsRatio: {1.302678, 1}, AsDifference: {3, 0}} {
			s := Summarise(judged(Metric{Per: per, Against: against}), Options{})
			c := s.Cells[0]
			change, floor := c.Change("heat"), s.AA.Ratio
			if diff := float64(change.Mean) - want.change; diff*diff > 1e-10 || change.N != 4 || !change.HasInterval() {
				t.Errorf("per %s, by %s: the change is %+v, want %g over 4 blocks", per, against, change, want.change)
			}
			if float64(floor.Lo) > want.floor || float64(floor.Hi) < want.floor || floor.N != 4 || floor.Hi-floor.Lo > 0.1 {
				t.Errorf("per %s, by %s: the noise floor is %+v, want about %g over 4 blocks", per, against, floor, want.floor)
			}
			if c.Verdict != Different || c.Device("heat").Mean != 13 || c.Clean("heat").Mean != 10 || len(s.Warnings) > 0 {
				t.Errorf("per %s, by %s: %s (%s), figures %+v, warnings %q", per, against, c.Verdict, c.VerdictNote, c.Metrics,
					s.Warnings)
			}
		}
	}
}

// TestDifferencesAreHeldAgainstTheirOwnLimits: for a difference, δ is a share of the clean router's figure, and equal
// routers have the difference 0.
func TestDifferencesAreHeldAgainstTheirOwnLimits(t *testing.T) {
	input := judged(Metric{Per: PerWindow, Against: AsDifference})
	for i, tr := range input.Trials {
		if !tr.AA {
			input.Trials[i].Device = result.Values{"heat": tr.Clean["heat"] + 0.3 + 0.01*float64(tr.Block)}
		}
	}
	if c := Summarise(input, Options{Delta: 0.05}).Cells[0]; c.Verdict != Equivalent { // 0.315 of 10
		t.Errorf("δ of 5 %%: %s (%s)", c.Verdict, c.VerdictNote)
	}
	if c := Summarise(input, Options{Delta: 0.02}).Cells[0]; c.Verdict != Different ||
		c.VerdictNote != "the interval leaves out 0" {
		t.Errorf("δ of 2 %%: %s (%s)", c.Verdict, c.VerdictNote)
	}
	for i, tr := range input.Trials {
		if tr.AA {
			input.Trials[i].Device = result.Values{"heat": tr.Clean["heat"] + 0.5 + 0.01*float64(tr.Block)}
		}
	}
	s := Summarise(input, Options{Delta: 0.02})
	if c := s.Cells[0]; c.Verdict != Inconclusive || !strings.Contains(c.VerdictNote, "two clean routers") {
		t.Errorf("below the noise floor: %s (%s)", c.Verdict, c.VerdictNote)
	}
	if len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "differ by a difference of 0.55") {
		t.Errorf("warnings %q", s.Warnings)
	}
}

// TestUnknownPrimaryMetric: a summary has figures but no verdicts when its primary metric is unknown or compares
// nothing.
func TestUnknownPrimaryMetric(t *testing.T) {
	for _, change := range []func(*Input){
		func(in *Input) { in.Primary = "cold" },
		func(in *Input) { in.Metrics[0].Against = NotCompared },
	} {
		input := judged(Metric{Per: PerWindow, Against: AsRatio})
		input.Laws = &Laws{CPU: "heat", Normalised: "heat", Link: "heat", Delivered: "heat", Packets: Field("heat")}
		change(&input)
		s := Summarise(input, Options{})
		if c := s.Cells[0]; s.Primary != "" || c.Verdict != "" || c.Device("heat").Mean != 13 || s.AA.Pairs != 0 {
			t.Errorf("%q: verdict %q, primary %q, noise floor %+v", input.Primary, c.Verdict, s.Primary, s.AA)
		}
		if len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], input.Primary) {
			t.Errorf("warnings %q", s.Warnings)
		}
	}
}
