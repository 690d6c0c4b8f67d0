package rate

import (
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Names of texts of a cell.
const (
	TextFormula = "formula" // how the useful share of the link is computed from the headers' sizes
	TextHeaders = "headers" // the headers around each packet, in words
)

// Summarise computes the summary of a run that measured rates. It needs the run's records alone.
func (Measure) Summarise(run result.Run, opts analysis.Options) analysis.Summary {
	trials := result.RecordsOf[Trial](run.MeasureRecords)
	in := analysis.Input{
		Run: run, Measure: Name, Dimensions: Dimensions, Noun: "window", Metrics: Metrics, Trials: trialsOf(trials),
		Compare:  analysis.CompareCells(run),
		Describe: func(c *analysis.Cell) { describe(c, trials) },
		Warn: func(s analysis.Summary) []string {
			return slices.Concat(
				s.Remark("MTU black hole: packets that the sender takes for short enough vanish, and no ICMP message says so",
					func(c analysis.Cell) bool { return c.Flagged(BlackHole) }),
				s.Remark("TCP stalled: nothing arrived in a window, although short packets went both ways",
					func(c analysis.Cell) bool { return c.Flagged(Stalled) }),
				s.Remark("The gateways cut packets into fragments",
					func(c analysis.Cell) bool { return c.Device("fragments_ratio").Mean > fragmented }))
		},
	}
	return analysis.Summarise(in, opts)
}

// fragmented is the number of fragments per packet above which the summary has a remark on fragments.
const fragmented = 0.01

// trialsOf returns the records as trials. Each has one flag: the fault of its path, or what limited its rate.
func trialsOf(trials []*Trial) []analysis.Trial {
	out := make([]analysis.Trial, 0, len(trials))
	for _, t := range trials {
		a := analysis.TrialOf(t.Head, t.Cell, t.Window, t)
		flag := t.Outcome
		if flag == "" {
			flag = LimitFlag(t.LimitedBy)
		}
		a.Flags = []string{flag}
		out = append(out, a)
	}
	return out
}

// LimitFlag returns the flag of windows whose rate was limited by ByLink, ByGateway, ByEnds or ByUnknown.
func LimitFlag(by string) string { return "limit-" + by }

// describe adds the texts of the cell's device: formula and headers.
func describe(c *analysis.Cell, trials []*Trial) {
	for _, t := range trials {
		if t.Cell == c.Cell && c.Texts == nil {
			c.Texts = map[string]string{TextFormula: t.Formula, TextHeaders: t.Headers}
		}
	}
}
