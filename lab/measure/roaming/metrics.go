package roaming

import (
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/failover"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Names of metrics, besides those of accounting, which are failover's.
const (
	AgainPct     = "log_in_again_pct"
	AdmitMs      = "admit_ms"
	AdmitMaxMs   = "admit_max_ms"
	BlockedMs    = "blocked_after_ms"
	BlockedMaxMs = "blocked_after_max_ms"
	OpenPct      = "still_open_pct"
	LeaseMs      = "address_ms"
)

// Dimensions of the measure's cells.
var Dimensions = analysis.Dimensions{analysis.DUT, analysis.Clients}

// Metrics lists the metrics of a cell. Each is computed from one move, and a cell shows their mean.
var Metrics = append(failover.PerWindow(
	analysis.Metric{Name: AgainPct, Short: "log in again", Unit: "%",
		Text: "clients without a packet at the new gateway until the end: they must log in again", Better: analysis.Less,
		Range: analysis.Percents, Value: failover.SharePct("again", "clients")},
	analysis.Metric{Name: AdmitMs, Short: "let in", Unit: "ms",
		Text:   "from a client's first packet with its new address until one of the server's came back, the median client",
		Better: analysis.Less, Range: analysis.Amounts, Value: seen("admit_p50")},
	analysis.Metric{Name: AdmitMaxMs, Short: "worst", Unit: "ms", Text: "the same, the worst client",
		Better: analysis.Less, Range: analysis.Amounts, Value: seen("admit_max")},
	analysis.Metric{Name: BlockedMs, Short: "blocked after", Unit: "ms",
		Text:  "from then until the last packet by the former gateway, the median client; negative: that was before",
		Range: analysis.Changes, Value: seen("blocked_p50")},
	analysis.Metric{Name: BlockedMaxMs, Unit: "ms", Text: "the same, the worst client",
		Range: analysis.Changes, Value: seen("blocked_max")},
	analysis.Metric{Name: OpenPct, Short: "still open", Unit: "%",
		Text:   "clients that came in at the new gateway and still got packets by the former one at the end",
		Better: analysis.Less, Range: analysis.Percents, Value: failover.SharePct("open", "clients")},
	analysis.Metric{Name: LeaseMs, Short: "address", Unit: "ms",
		Text: "until a client had an address at the new gateway, the median client", Better: analysis.Less,
		Range: analysis.Amounts, Value: analysis.Field("lease_p50")}), failover.AccountMetrics...)

// seen returns a function that returns a value; NaN where the record has none.
func seen(name string) func(analysis.MetricInput) float64 {
	return func(r analysis.MetricInput) float64 {
		if v, is := r.Values[name]; is {
			return v
		}
		return math.NaN()
	}
}

// Died is a tally: how programs of the device ended by themselves.
const Died = "died"

// Summarise computes the summary of a run that measured roaming. It needs the run's records alone.
func (Measure) Summarise(run result.Run, opts analysis.Options) analysis.Summary {
	trials := result.RecordsOf[Trial](run.MeasureRecords)
	in := analysis.Input{
		Run: run, Measure: Name, Dimensions: Dimensions, Noun: "move", Metrics: Metrics, Alone: true,
		Compare:  func(a, b result.Cell) int { return result.CompareCells(a, b, result.Clients, result.DUT) },
		Describe: func(c *analysis.Cell) { describe(c, trials) },
		Warn:     warn,
	}
	for _, t := range trials {
		in.Trials = append(in.Trials, analysis.TrialOf(t.Head, t.Cell, 0, t))
	}
	return analysis.Summarise(in, opts)
}

// describe adds tallies to a cell.
func describe(c *analysis.Cell, trials []*Trial) {
	var died analysis.Tallies
	for _, t := range trials {
		if t.Accepted && t.Cell == c.Cell {
			for _, text := range t.Died {
				died.Add(text, 1)
			}
		}
	}
	c.Tallies = map[string][]analysis.Tally{Died: died.Sorted()}
}

// warn returns what a reader must know of some cells.
func warn(s analysis.Summary) []string {
	return slices.Concat(
		s.Remark("Some clients still got packets by the former gateway at the end",
			func(c analysis.Cell) bool { return c.Device(OpenPct).Mean > 0 }),
		s.Remark("A program of the device ended by itself",
			func(c analysis.Cell) bool { return len(c.Tallies[Died]) > 0 }))
}
