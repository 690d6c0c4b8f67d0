package failover

import (
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Names of a cell's counts and tallies.
const (
	Died     = "died"     // a tally: how programs of the device ended by themselves
	TCPWhy   = "tcp_lost" // a tally: why connections were lost
	Failures = "failures" // a tally: why logins failed
	NotWork  = "no_login" // a count: faults after which no login worked until the end
)

// Summarise computes the summary of a run that measured failovers. It needs the run's records alone.
func (Measure) Summarise(run result.Run, opts analysis.Options) analysis.Summary {
	trials := result.RecordsOf[Trial](run.MeasureRecords)
	in := analysis.Input{
		Run: run, Measure: Name, Dimensions: Dimensions, Noun: "fault", Metrics: Metrics, Alone: true,
		Compare:  func(a, b result.Cell) int { return result.CompareCells(a, b, Fault, result.Clients, result.DUT) },
		Describe: func(c *analysis.Cell) { describe(c, trials) },
		Warn:     warn,
	}
	for _, t := range trials {
		in.Trials = append(in.Trials, analysis.TrialOf(t.Head, t.Cell, 0, t))
	}
	return analysis.Summarise(in, opts)
}

// describe adds counts and tallies to a cell.
func describe(c *analysis.Cell, trials []*Trial) {
	var died, tcp, failures analysis.Tallies
	c.Counts, c.Tallies = map[string]int{NotWork: 0}, map[string][]analysis.Tally{}
	for _, t := range trials {
		if !t.Accepted || t.Cell != c.Cell {
			continue
		}
		if t.Logins.WorkMs < 0 {
			c.Counts[NotWork]++
		}
		for _, text := range t.Died {
			died.Add(text, 1)
		}
		tcp.AddReasons(t.TCPWhy)
		failures.AddReasons(t.Logins.Failures)
	}
	c.Tallies[Died], c.Tallies[TCPWhy], c.Tallies[Failures] = died.Sorted(), tcp.Sorted(), failures.Sorted()
}

// warn returns what a reader must know of some cells.
func warn(s analysis.Summary) []string {
	return slices.Concat(
		s.Remark("Some clients had no packets until the end, so these outages are longer than shown",
			func(c analysis.Cell) bool { return c.Device(AgainPct).Mean > 0 }),
		s.Remark("No login worked until the end", func(c analysis.Cell) bool { return c.Counts[NotWork] > 0 }),
		s.Remark("A program of the device ended by itself",
			func(c analysis.Cell) bool { return len(c.Tallies[Died]) > 0 }))
}
