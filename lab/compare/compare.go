// Package compare holds one run against another, cell by cell, and judges the
// outcome against limits, so that a CI job can refuse a gateway that became
// dearer. Like lab/analysis it is a pure function of what is in the run folders.
//
// What is compared is the overhead ratio: each run measured its device beside a
// clean router of its own, so what changed in the machine between the two runs
// cancels, as far as it does within a run. Absolute figures are compared too,
// but decide nothing.
package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/inference"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Version of the JSON of a Comparison.
const Version = 2

// Options of Runs and Single; the zero value is usable.
type Options struct {
	// Delta is the relative change that does not matter. Default 0.05.
	Delta float64
	// Confidence of intervals and verdicts, of all cells together. Default
	// 0.99: a job that compares every day should not cry wolf every month.
	Confidence float64
	// MaxRegression is how much dearer the second run may be than the first,
	// MaxOverhead how much dearer its devices may be than a clean router: 0.05 is
	// 5 %. Absent: no such gate.
	MaxRegression, MaxOverhead analysis.Number
	// Strict lets a gate fail when it cannot tell.
	Strict bool
	// Measures are what the runs may have measured; nil: what ships with the lab.
	Measures measure.Table
}

// Defaults are the options of a comparison without gates.
func Defaults() Options {
	return Options{Delta: 0.05, Confidence: 0.99, MaxRegression: analysis.Absent(), MaxOverhead: analysis.Absent()}
}

// Input is a run and what the user calls it: its folder or bundle.
type Input struct {
	Name string
	Run  result.Run
}

// Comparison is what compare --json prints. A is nil when a single run is judged.
type Comparison struct {
	Version    int     `json:"version"`
	A          *Side   `json:"a"`
	B          Side    `json:"b"`
	Confidence float64 `json:"confidence"`
	Delta      float64 `json:"delta"`
	// Metric is what is judged, Beside what is shown beside it.
	Metric analysis.Metric   `json:"metric"`
	Beside []analysis.Metric `json:"beside"`

	// Differences between the two environments and experiments: they may explain a change.
	Differences []Difference `json:"differences"`
	// SameMachine says whether absolute figures can be compared: same CPU,
	// kernel and placement.
	SameMachine bool `json:"same_machine"`
	// NoiseFloorPct is the least change that can be called: the most by which
	// two clean routers differed in either run. Absent without A/A pairs.
	NoiseFloorPct analysis.Number       `json:"noise_floor_pct"`
	Multiplicity  analysis.Multiplicity `json:"multiplicity"`

	Cells []Cell        `json:"cells"`
	OnlyA []result.Cell `json:"only_a"`
	OnlyB []result.Cell `json:"only_b"`

	Gate     *Gate    `json:"gate"` // nil without limits
	Warnings []string `json:"warnings"`
}

// Side is one of the two runs.
type Side struct {
	Name             string          `json:"name"`
	Experiment       string          `json:"experiment"`
	Start            string          `json:"start"` // RFC 3339, empty when not known
	GateweighVersion string          `json:"gateweigh_version"`
	Trials           analysis.Counts `json:"trials"`
	AA               analysis.AA     `json:"aa"`
}

// Measured is what one run says of a cell.
type Measured struct {
	Pairs    int `json:"pairs"`
	Rejected int `json:"rejected"`
	// Judged is the metric that the comparison judges: of costs the overhead ratio.
	Judged analysis.Estimate `json:"judged"`
	// Metrics are the device's further figures that are shown beside it.
	Metrics map[string]analysis.Estimate `json:"metrics"`
}

// Verdicts on a cell of B against the same in A.
const (
	Worse        = "worse"
	Better       = "better"
	Equivalent   = analysis.Equivalent
	Inconclusive = analysis.Inconclusive
)

// Cell is one cell of B, and of A when it was measured there too.
type Cell struct {
	At result.Cell `json:"dimensions"`
	A  *Measured   `json:"a"` // nil when a single run is judged
	B  Measured    `json:"b"`

	// Change is B's judged metric over A's; N is the blocks of both runs.
	Change analysis.Estimate `json:"change"`
	// PDifferent and PEquivalent are adjusted for the number of cells.
	PDifferent   analysis.Number `json:"p_different"`
	PEquivalent  analysis.Number `json:"p_equivalent"`
	Verdict      string          `json:"verdict"` // empty when a single run is judged
	VerdictNote  string          `json:"verdict_note"`
	BlocksNeeded *int            `json:"blocks_needed"` // further blocks, of each run

	// Changes are those of the further metrics, B over A; they decide nothing, and
	// mean nothing when the machine is another.
	Changes map[string]analysis.Estimate `json:"changes"`

	Regression *Decision `json:"regression"` // nil without such a limit
	Overhead   *Decision `json:"overhead"`

	change, overhead evidence // of logarithms
}

// Runs compares run b with run a.
func Runs(a, b Input, opts Options) Comparison {
	sa, sb := summarise(a, opts), summarise(b, opts)
	sideA := sideOf(a, sa)
	c := Comparison{
		Version: Version, A: &sideA, B: sideOf(b, sb), Confidence: opts.Confidence, Delta: opts.Delta,
		NoiseFloorPct: noiseFloor(sa.AA, sb.AA), OnlyA: []result.Cell{}, OnlyB: []result.Cell{}, Cells: []Cell{},
	}
	c.judge(sb)
	c.Differences, c.SameMachine = differences(a.Run, b.Run)
	if sa.Measure != sb.Measure {
		sa.Cells = nil // their metrics have nothing in common
	}
	for _, cb := range sb.Cells {
		i := slices.IndexFunc(sa.Cells, func(ca analysis.Cell) bool { return ca.Cell == cb.Cell })
		if i < 0 {
			c.OnlyB = append(c.OnlyB, cb.Cell)
			continue
		}
		c.Cells = append(c.Cells, c.pairUp(sa.Cells[i], cb, opts))
	}
	for _, ca := range sa.Cells {
		if !slices.ContainsFunc(sb.Cells, func(cb analysis.Cell) bool { return ca.Cell == cb.Cell }) {
			c.OnlyA = append(c.OnlyA, ca.Cell)
		}
	}
	c.Multiplicity = c.verdicts(opts)
	c.Warnings = c.warnings(a, b, sa, sb)
	c.judgeGate(opts)
	return c
}

// Single judges one run against a clean router.
func Single(b Input, opts Options) Comparison {
	s := summarise(b, opts)
	c := Comparison{
		Version: Version, B: sideOf(b, s), Confidence: opts.Confidence, Delta: opts.Delta, NoiseFloorPct: noiseFloor(s.AA),
		Differences: []Difference{}, SameMachine: true, OnlyA: []result.Cell{}, OnlyB: []result.Cell{}, Cells: []Cell{},
		Multiplicity: analysis.Multiplicity{Method: analysis.MethodHolm},
		Warnings:     append([]string{}, s.Warnings...),
	}
	c.judge(s)
	for _, cell := range s.Cells {
		c.Cells = append(c.Cells, Cell{
			At: cell.Cell, B: c.measured(cell), Change: analysis.Unknown(), Changes: map[string]analysis.Estimate{},
			PDifferent: analysis.Absent(), PEquivalent: analysis.Absent(), change: noEvidence(), overhead: c.overhead(cell),
		})
	}
	c.judgeGate(opts)
	return c
}

func summarise(in Input, opts Options) analysis.Summary {
	table := opts.Measures
	if table == nil {
		table = measure.All()
	}
	return table.Summarise(in.Run, analysis.Options{Delta: opts.Delta, Confidence: opts.Confidence})
}

func sideOf(in Input, s analysis.Summary) Side {
	env := in.Run.Environment
	side := Side{Name: in.Name, Experiment: s.Experiment, GateweighVersion: env.GateweighVersion, Trials: s.Trials, AA: s.AA}
	if !env.Start.IsZero() {
		side.Start = env.Start.UTC().Format("2006-01-02T15:04:05Z")
	}
	return side
}

// judge settles by which metric cells are compared.
func (c *Comparison) judge(s analysis.Summary) {
	c.Metric, c.Beside = s.Judged(), []analysis.Metric{}
	for _, m := range s.Metrics {
		if m.Short != "" {
			c.Beside = append(c.Beside, m)
		}
	}
}

func (c *Comparison) measured(cell analysis.Cell) Measured {
	m := Measured{Pairs: cell.Pairs, Rejected: cell.Rejected, Judged: cell.Device(c.Metric.Name), Metrics: map[string]analysis.Estimate{}}
	if c.Metric.Against != analysis.NotCompared {
		m.Judged = cell.Change(c.Metric.Name)
	}
	for _, beside := range c.Beside {
		m.Metrics[beside.Name] = cell.Device(beside.Name)
	}
	if delivered := cell.Device(cost.Delivered); delivered.Mean.Known() {
		m.Metrics[cost.Delivered] = delivered
	}
	return m
}

// log is the logarithm of a cell's judged metric: of a ratio over its blocks, of
// another figure from its interval.
func (c *Comparison) log(cell analysis.Cell, opts Options) inference.Sample {
	if c.Metric.Against == analysis.AsRatio {
		return logRatio(cell.Change(c.Metric.Name), cell.SDLog)
	}
	return logOf(cell.Device(c.Metric.Name), opts.Confidence)
}

// overhead holds a cell against the clean router; no evidence where there is none.
func (c *Comparison) overhead(cell analysis.Cell) evidence {
	if c.Metric.Against != analysis.AsRatio {
		return noEvidence()
	}
	return alone(logRatio(cell.Change(c.Metric.Name), cell.SDLog))
}

// pairUp computes the changes of one cell; the verdict follows when all are known.
func (c *Comparison) pairUp(a, b analysis.Cell, opts Options) Cell {
	ma := c.measured(a)
	out := Cell{At: b.Cell, A: &ma, B: c.measured(b), overhead: c.overhead(b), Changes: map[string]analysis.Estimate{}}
	out.change = difference(c.log(a, opts), c.log(b, opts))
	out.Change = out.change.ratio(opts.Confidence)
	for _, m := range c.Beside {
		out.Changes[m.Name] = difference(logOf(a.Device(m.Name), opts.Confidence), logOf(b.Device(m.Name), opts.Confidence)).ratio(opts.Confidence)
	}
	return out
}

// noiseFloor is the most by which two clean routers differed, in per cent.
func noiseFloor(runs ...analysis.AA) analysis.Number {
	floor := 0.0
	for _, aa := range runs {
		// An unknown ratio makes the floor unknown: max keeps NaN.
		floor = max(floor, math.Abs(math.Log(float64(aa.Ratio.Mean))))
	}
	return analysis.Number(100 * math.Expm1(floor))
}

// unquiet is the share of rejected trials above which a run is remarked on.
const unquiet = 0.1

// warnings say what a careful reader would hold against the comparison.
func (c *Comparison) warnings(a, b Input, sa, sb analysis.Summary) []string {
	out := []string{}
	if sameTrials(a.Run, b.Run) {
		out = append(out, "A and B have the same trials: this is one run compared with itself.")
	}
	if len(c.Cells) == 0 {
		out = append(out, "No cell is in both runs: there is nothing to compare.")
	}
	if c.Metric.Against != analysis.NotCompared && !c.NoiseFloorPct.Known() {
		out = append(out, "A run has no accepted A/A pair: the least change that can be called is not known.")
	}
	for _, side := range []Side{*c.A, c.B} {
		if t := side.Trials; float64(t.Rejected) > unquiet*float64(t.Accepted+t.Rejected) {
			out = append(out, fmt.Sprintf("%s rejected %d of %d trials: where the machine is not quiet, identical runs differ by several per cent.",
				side.Name, t.Rejected, t.Accepted+t.Rejected))
		}
	}
	if sa.Measure != sb.Measure {
		out = append(out, fmt.Sprintf("A measured %s, B %s: they have no metric in common.", sa.Measure, sb.Measure))
	}
	if sa.Mode != sb.Mode {
		out = append(out, fmt.Sprintf("A was measured in mode %s, B in mode %s.", sa.Mode, sb.Mode))
	}
	for _, cell := range c.Cells {
		a, b := cell.A.Metrics[cost.Delivered].Mean, cell.B.Metrics[cost.Delivered].Mean
		if cell.B.Pairs > 0 && b < result.FullLoad*a {
			out = append(out, fmt.Sprintf("%s delivers less in B: %s Mbit/s after %s.", Label(cell.At), b, a))
		}
	}
	for _, side := range []struct {
		name string
		s    analysis.Summary
	}{{"A", sa}, {"B", sb}} {
		if d := side.s.Sides; d != nil {
			out = append(out, fmt.Sprintf("%s weighed labs that differ in more than the device: %s against %s. Its ratios are no overheads.", side.name, d.Device, d.Clean))
		}
		for _, w := range side.s.Warnings {
			out = append(out, side.name+": "+w)
		}
	}
	return out
}

// sameTrials reports whether two folders hold the same measurements.
func sameTrials(a, b result.Run) bool {
	starts := func(r result.Run) (list []int64) {
		for _, t := range r.Trials {
			list = append(list, t.Start.UnixNano(), t.DUT.NAPINs, t.Clean.NAPINs)
		}
		for _, l := range r.Own {
			list = append(list, l.Start.UnixNano(), int64(1e9*l.Seconds))
		}
		return list
	}
	return len(starts(a)) > 0 && slices.Equal(starts(a), starts(b))
}

// Label names a cell: "opennds, 100 clients, 400 Mbit/s, up".
func Label(c result.Cell) string {
	parts := []string{c.Text(result.DUT)}
	for _, v := range c.Without(result.DUT).Values() {
		if v.Text != result.PerPacket {
			parts = append(parts, analysis.WordsOf(v))
		}
	}
	return strings.Join(parts, ", ")
}
