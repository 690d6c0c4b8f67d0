// Package compare compares two runs cell by cell and judges the outcome against limits,
// so that a CI job can refuse a gateway that became more expensive. Like lab/analysis it
// is a pure function of the run folders.
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

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
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
	// MaxRegression is by how much the second run's cost may exceed the first's,
	// MaxOverhead by how much its devices' cost may exceed a clean router's: 0.05 is
	// 5 %. Absent: no such gate.
	MaxRegression, MaxOverhead analysis.Number
	// AllowUnknown lets a gate pass although cells have no answer, if one has.
	AllowUnknown bool
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
	Version    int                 `json:"version"` // of the format: 2
	dimensions analysis.Dimensions // of the cells
	// Mark goes with every figure where either run had an emulated CPU (result.VM.Mark).
	Mark       string  `json:"mark,omitempty"`
	A          *Side   `json:"a"`          // the first run
	B          Side    `json:"b"`          // the second run
	Confidence float64 `json:"confidence"` // of all intervals
	Delta      float64 `json:"delta"`      // change that does not matter, as a share
	// Metric is judged; Beside are shown with it.
	Metric analysis.Metric   `json:"metric"`
	Beside []analysis.Metric `json:"beside"` // metrics shown beside the judged one

	// Differences between the two environments and experiments: they may explain a change.
	Differences []Difference `json:"differences"`
	// SameMachine says whether absolute figures can be compared: same CPU,
	// kernel and placement, and none emulated.
	SameMachine bool `json:"same_machine"`
	// NoiseFloorPct is the least change that can be called: the most by which
	// two clean routers differed in either run. Absent without A/A pairs.
	NoiseFloorPct analysis.Number       `json:"noise_floor_pct"`
	Multiplicity  analysis.Multiplicity `json:"multiplicity"` // how verdicts are corrected for their number

	Cells []Cell        `json:"cells"`  // of both runs
	OnlyA []result.Cell `json:"only_a"` // cells of one run
	OnlyB []result.Cell `json:"only_b"` // cells of the other

	Gate     *Gate    `json:"gate"`     // nil without limits
	Warnings []string `json:"warnings"` // a sentence each
}

// Side is one of the two runs.
type Side struct {
	Name             string          `json:"name"`              // folder or bundle
	Experiment       string          `json:"experiment"`        // its name
	Start            string          `json:"start"`             // RFC 3339, empty when not known
	GateweighVersion string          `json:"gateweigh_version"` // of the program
	Trials           analysis.Counts `json:"trials"`            // how many
	AA               analysis.AA     `json:"aa"`                // its noise floor
	// Slowed is set when the run's routers had a share of their CPU only.
	Slowed *analysis.Slowed `json:"slowed,omitempty"`
	// VM is the virtual machine that the run's lab was in.
	VM *result.VM `json:"vm,omitempty"`
}

// Measured is what one run says of a cell.
type Measured struct {
	Pairs    int `json:"pairs"`    // accepted trials
	Rejected int `json:"rejected"` // trials
	// Judged is the metric that the comparison judges: of costs the overhead ratio.
	Judged analysis.Estimate `json:"judged"`
	// Metrics are further figures of the device, shown with the judged one.
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
	At result.Cell `json:"dimensions"` // which cell
	A  *Measured   `json:"a"`          // nil when a single run is judged
	B  Measured    `json:"b"`          // in the second run

	// Change is B's judged metric over A's, its interval that of this cell by itself; N is the blocks of both runs.
	Change analysis.Estimate `json:"change"`
	// Deciding is Change with the interval that the verdict is read from, which holds for all cells together.
	Deciding analysis.Estimate `json:"deciding"`
	// PDifferent and PEquivalent are adjusted for the number of cells.
	PDifferent   analysis.Number `json:"p_different"`
	PEquivalent  analysis.Number `json:"p_equivalent"`  // adjusted
	Verdict      string          `json:"verdict"`       // empty when a single run is judged
	VerdictNote  string          `json:"verdict_note"`  // what it lacks
	BlocksNeeded *int            `json:"blocks_needed"` // further blocks, of each run

	// Changes are the changes of the further metrics, B over A; they decide nothing, and
	// mean nothing when the machine is another. Of an emulated CPU there are none.
	Changes map[string]analysis.Estimate `json:"changes"`

	Regression *Decision `json:"regression"` // nil without such a limit
	Overhead   *Decision `json:"overhead"`   // the decision on the limit of the overhead

	change, overhead evidence // of logarithms
	levels           testLevels
}

// Runs compares run b with run a.
func Runs(a, b Input, opts Options) Comparison {
	sa, sb := summarise(a, opts), summarise(b, opts)
	c := comparisonOf(b, sb, opts)
	sideA := sideOf(a, sa)
	c.A, c.NoiseFloorPct = &sideA, c.noiseFloor(sa.AA, sb.AA)
	c.Differences, c.SameMachine = Differences(a.Run, b.Run)
	c.Mark = markOf(c.A, &c.B)
	c.SameMachine = c.SameMachine && c.Mark == ""
	others := otherInputs(a.Run, b.Run)
	in := map[result.Cell]analysis.Cell{}
	for _, ca := range sa.Cells {
		in[ca.Cell] = ca
	}
	for _, cb := range sb.Cells {
		ca, both := in[cb.Cell]
		if !both || sa.Measure != sb.Measure || !sameFrames(cb.Cell, others) {
			// metrics of different measures have nothing in common
			c.OnlyB = append(c.OnlyB, cb.Cell)
			if opts.MaxOverhead.Known() { // a limit for B by itself
				c.Cells = append(c.Cells, c.single(cb))
			}
			continue
		}
		delete(in, cb.Cell)
		c.Cells = append(c.Cells, c.pairCells(ca, cb, opts))
	}
	for _, ca := range sa.Cells {
		if _, left := in[ca.Cell]; left {
			c.OnlyA = append(c.OnlyA, ca.Cell)
		}
	}
	c.verdicts(opts)
	c.Warnings = append(inputWarnings(others), c.warnings(a, b, sa, sb)...)
	c.judgeGate(opts, &measuredRun{a.Run, sa}, measuredRun{b.Run, sb})
	return c
}

// Single judges one run against a clean router.
func Single(b Input, opts Options) Comparison {
	s := summarise(b, opts)
	c := comparisonOf(b, s, opts)
	c.NoiseFloorPct, c.Warnings = c.noiseFloor(s.AA), append([]string{}, s.Warnings...)
	for _, cell := range s.Cells {
		c.Cells = append(c.Cells, c.single(cell))
	}
	c.judgeGate(opts, nil, measuredRun{b.Run, s})
	return c
}

// single is a cell that is compared with its clean router only.
func (c *Comparison) single(cell analysis.Cell) Cell {
	return Cell{
		At: cell.Cell, B: c.measured(cell), Change: analysis.Unknown(), Deciding: analysis.Unknown(),
		Changes:    map[string]analysis.Estimate{},
		PDifferent: analysis.Absent(), PEquivalent: analysis.Absent(), change: noEvidence(), overhead: c.overhead(cell),
	}
}

// sharedCells counts the cells that both runs have.
func (c *Comparison) sharedCells() (n int) {
	for _, cell := range c.Cells {
		if cell.A != nil {
			n++
		}
	}
	return n
}

// comparisonOf says what is judged of run b, and by which metric; it has no cells yet.
func comparisonOf(b Input, s analysis.Summary, opts Options) Comparison {
	c := Comparison{
		Version: Version, B: sideOf(b, s), Confidence: opts.Confidence, Delta: opts.Delta, dimensions: s.Dimensions,
		Metric:      s.Judged(),
		Beside:      []analysis.Metric{},
		Differences: []Difference{}, SameMachine: true, OnlyA: []result.Cell{}, OnlyB: []result.Cell{}, Cells: []Cell{},
		Multiplicity: analysis.Multiplicity{Method: analysis.MethodHolm},
	}
	for _, m := range s.Metrics {
		if m.Short != "" {
			c.Beside = append(c.Beside, m)
		}
	}
	c.Mark = markOf(&c.B)
	return c
}

func summarise(input Input, opts Options) analysis.Summary {
	table := opts.Measures
	if table == nil {
		table = measure.All()
	}
	return table.Summarise(input.Run, analysis.Options{Delta: opts.Delta, Confidence: opts.Confidence})
}

func sideOf(input Input, s analysis.Summary) Side {
	env := input.Run.Environment
	side := Side{Name: input.Name, Experiment: s.Experiment, GateweighVersion: env.GateweighVersion, Trials: s.Trials,
		AA: s.AA, Slowed: s.Slowed, VM: s.VM}
	if !env.Start.IsZero() {
		side.Start = env.Start.UTC().Format("2006-01-02T15:04:05Z")
	}
	return side
}

// ratio reports whether the judged metric is a ratio to the clean router. Any other is
// judged by the device's own figures.
func (c *Comparison) ratio() bool { return c.Metric.Against == analysis.AsRatio }

// difference reports whether the judged metric is a difference from the clean router.
func (c *Comparison) difference() bool { return c.Metric.Against == analysis.AsDifference }

func (c *Comparison) measured(cell analysis.Cell) Measured {
	m := Measured{Pairs: cell.Pairs, Rejected: cell.Rejected, Judged: cell.Device(c.Metric.Name),
		Metrics: map[string]analysis.Estimate{}}
	if c.ratio() {
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
func (c *Comparison) log(cell analysis.Cell, opts Options) evidence {
	if c.ratio() {
		return c.overhead(cell)
	}
	return againstZero(logOf(cell.Device(c.Metric.Name), opts.Confidence))
}

// overhead compares a cell with the clean router; no evidence where there is none.
func (c *Comparison) overhead(cell analysis.Cell) evidence {
	if !c.ratio() {
		return noEvidence()
	}
	e := againstZero(logRatio(cell.Change(c.Metric.Name), cell.SDLog))
	e.down, e.up = cell.Outwards(c.Metric.Name)
	return e
}

// pairCells computes the changes of one cell; the verdict follows when all are known.
func (c *Comparison) pairCells(a, b analysis.Cell, opts Options) Cell {
	ma := c.measured(a)
	out := Cell{At: b.Cell, A: &ma, B: c.measured(b), overhead: c.overhead(b), Changes: map[string]analysis.Estimate{}}
	if c.incomparable() {
		out.Change, out.change = analysis.Unknown(), noEvidence()
		return out
	}
	out.change = difference(c.log(a, opts), c.log(b, opts))
	out.Change = out.change.ratio(opts.Confidence)
	if c.Mark != "" {
		return out
	}
	of := func(cell analysis.Cell, m analysis.Metric) evidence {
		return againstZero(logOf(cell.Device(m.Name), opts.Confidence))
	}
	for _, m := range c.Beside {
		out.Changes[m.Name] = difference(of(a, m), of(b, m)).ratio(opts.Confidence)
	}
	return out
}

// noiseFloor is the most by which two clean routers differed, in per cent; absent where one
// of the runs does not know, or where no ratio is judged.
func (c *Comparison) noiseFloor(runs ...analysis.AA) analysis.Number {
	if !c.ratio() {
		return analysis.Absent()
	}
	floor := 0.0
	for _, aa := range runs { // max keeps NaN
		floor = max(floor, math.Abs(math.Log(float64(aa.Ratio.Mean))))
	}
	return analysis.Number(100 * math.Expm1(floor))
}

// manyRejected is the share of rejected trials above which a run is remarked on.
const manyRejected = 0.1

// warnings say what a careful reader would hold against the comparison.
func (c *Comparison) warnings(a, b Input, sa, sb analysis.Summary) []string {
	out := []string{}
	say := func(applies bool, format string, args ...any) {
		if applies {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	for _, skip := range sb.Skipped {
		say(!slices.ContainsFunc(sa.Skipped, func(s result.Skip) bool { return s.DUT == skip.DUT }),
			"B skipped %s, which A did not: %s", skip.DUT, skip.Reason)
	}
	say(sameTrials(a.Run, b.Run), "A and B have the same trials: this is one run compared with itself.")
	say(c.sharedCells() == 0, "No cell is in both runs: there is nothing to compare.")
	say(c.ratio() && sa.Measure == sb.Measure && !c.NoiseFloorPct.Known(),
		"A run has no accepted A/A pair: the least change that can be called is not known.")
	if noisy := c.rejectedRemarks(); len(noisy) > 0 {
		say(true, "%s: where the machine is not quiet, identical runs differ by several per cent.", words.Listed(noisy))
	}
	say(c.difference() && sa.Measure == sb.Measure,
		"%s is compared with the clean router by a difference. Here the devices' own figures are compared, "+
			"so what the machine changed between the two runs is in the change.", c.figure())
	say(sa.Measure != sb.Measure, "A measured %s, B %s: they have no metric in common.", sa.Measure, sb.Measure)
	say(sa.Mode != sb.Mode, "A was measured in mode %s, B in mode %s.", sa.Mode, sb.Mode)
	for _, cell := range c.Cells {
		if cell.A == nil {
			continue
		}
		a, b := cell.A.Metrics[cost.Delivered].Mean, cell.B.Metrics[cost.Delivered].Mean
		say(cell.B.Pairs > 0 && b < result.FullLoad*a, "%s delivers less in B: %s Mbit/s after %s.",
			c.dimensions.Label(cell.At),
			b, a)
	}
	say(sa.Speed() != sb.Speed(), "The routers of A and B had not the same speed: a change may be the slowing's.")
	for _, of := range textsOfBoth(differing(sa), differing(sb)) {
		say(true, "%s labs that differ in more than the device: %s. Ratios of that are no overheads.",
			words.Either(len(of.runs), of.name()+" compares", of.name()+" compare"), of.text)
	}
	for _, of := range textsOfBoth(sa.Warnings, sb.Warnings) {
		say(true, "%s: %s", of.name(), of.text)
	}
	return out
}

// rejectedRemarks says how many trials each run rejected that rejected many.
func (c *Comparison) rejectedRemarks() (list []string) {
	for i, side := range []Side{*c.A, c.B} {
		all := side.Trials.Accepted + side.Trials.Rejected
		if float64(side.Trials.Rejected) > manyRejected*float64(all) {
			list = append(list,
				fmt.Sprintf("%s rejected %d of %s", string("AB"[i]), side.Trials.Rejected, words.Counted(all, "trial")))
		}
	}
	return list
}

// differing says how the two labs of a run differ; nothing where they have all but the device in common.
func differing(s analysis.Summary) []string {
	if s.Sides == nil {
		return nil
	}
	return []string{s.Sides.Device + " against " + s.Sides.Clean}
}

// textOfRuns is a text with the runs that it is of, each as often as it said so.
type textOfRuns struct {
	text string
	runs []string
}

// name is that of the runs: "A", "A (2 times)", "A and B".
func (s textOfRuns) name() string {
	count := map[string]int{}
	for _, run := range s.runs {
		count[run]++
	}
	return words.ListOf(slices.Compact(slices.Clone(s.runs)), func(run string) string {
		return run + words.When(count[run] > 1, fmt.Sprintf(" (%d times)", count[run]))
	})
}

// textsOfBoth lists what either run says, each text once.
func textsOfBoth(a, b []string) (list []textOfRuns) {
	for i, texts := range [][]string{a, b} {
		for _, text := range texts {
			index := slices.IndexFunc(list, func(s textOfRuns) bool { return s.text == text })
			if index < 0 {
				index, list = len(list), append(list, textOfRuns{text: text})
			}
			list[index].runs = append(list[index].runs, string("AB"[i]))
		}
	}
	return list
}

// sameTrials reports whether two folders hold the same measurements.
func sameTrials(a, b result.Run) bool {
	starts := func(r result.Run) (list []int64) {
		for _, t := range r.Trials {
			list = append(list, t.Start.UnixNano())
			if sides, is := t.Figures.(*cost.Sides); is {
				list = append(list, sides.DUT.NAPINs, sides.Clean.NAPINs)
			}
		}
		for _, l := range r.Own {
			list = append(list, l.Start.UnixNano(), int64(1e9*l.Seconds))
		}
		return list
	}
	return len(starts(a)) > 0 && slices.Equal(starts(a), starts(b))
}
