// Package compare compares two runs cell by cell and judges the changes by limits, so that a CI job can refuse a
// gateway that became more expensive. A is the first run, B the second. A gate is the limits together with their
// outcome. Like lab/analysis, the package computes its results from the run folders alone.
//
// It compares overhead ratios. Each run measured its device beside a clean router of its own, so a change of the
// machine between the two runs mostly cancels. Absolute figures are shown too, but they decide nothing.
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

// Options of Runs and Single. The zero value is usable.
type Options struct {
	// Delta is the relative change that does not matter. Default 0.05.
	Delta float64
	// Confidence of intervals and verdicts, for all cells together. Default 0.99, because a job that compares every day
	// should raise a false alarm less than once a month.
	Confidence float64
	// MaxRegression is the largest allowed increase of B's cost over A's. MaxOverhead is the largest allowed increase of a
	// device's cost over a clean router's. 0.05 is 5 %. Absent: no such limit.
	MaxRegression, MaxOverhead analysis.Number
	// AllowUnknown lets a gate pass although some cells have no answer. At least one cell must be within its limit.
	AllowUnknown bool
	// Measures are the measures that the runs may have. nil: those of the lab.
	Measures measure.Table
}

// Defaults returns the options of a comparison without limits.
func Defaults() Options {
	return Options{Delta: 0.05, Confidence: 0.99, MaxRegression: analysis.Absent(), MaxOverhead: analysis.Absent()}
}

// Input is a run with the name that the user gave: its folder or bundle.
type Input struct {
	Name string
	Run  result.Run
}

// Comparison is the output of compare --json. A is nil when a single run is judged.
type Comparison struct {
	Version    int                 `json:"version"` // of the format: 2
	dimensions analysis.Dimensions // of the cells
	// Mark is the text that must stand beside every figure if a run had an emulated CPU (result.VM.Mark).
	Mark       string  `json:"mark,omitempty"`
	A          *Side   `json:"a"`          // the first run
	B          Side    `json:"b"`          // the second run
	Confidence float64 `json:"confidence"` // of all intervals
	Delta      float64 `json:"delta"`      // change that does not matter, as a share
	// Metric is the judged metric. Beside are the metrics shown with it.
	Metric analysis.Metric   `json:"metric"`
	Beside []analysis.Metric `json:"beside"` // metrics shown beside the judged one

	// Differences between the two environments and experiments: they may explain a change.
	Differences []Difference `json:"differences"`
	// SameMachine reports whether absolute figures can be compared: CPU, kernel and placement are the same, and no CPU was
	// emulated.
	SameMachine bool `json:"same_machine"`
	// NoiseFloorPct is the largest difference between two clean routers in either run. Smaller changes get no verdict. It
	// is absent without A/A pairs.
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
	// Slowed is set when the run's routers had only a share of their CPU.
	Slowed *analysis.Slowed `json:"slowed,omitempty"`
	// VM is the virtual machine that the run's lab was in.
	VM *result.VM `json:"vm,omitempty"`
}

// Measured has the figures of one run for a cell.
type Measured struct {
	Pairs    int `json:"pairs"`    // accepted trials
	Rejected int `json:"rejected"` // trials
	// Judged is the metric that the comparison judges, such as the overhead ratio.
	Judged analysis.Estimate `json:"judged"`
	// Metrics are further figures of the device, shown with the judged one.
	Metrics map[string]analysis.Estimate `json:"metrics"`
}

// Verdicts on a cell of B, compared with the same cell of A.
const (
	Worse        = "worse"
	Better       = "better"
	Equivalent   = analysis.Equivalent
	Inconclusive = analysis.Inconclusive
)

// Cell is one cell of B, and of A if A has it too.
type Cell struct {
	Dimensions result.Cell `json:"dimensions"` // which cell
	A          *Measured   `json:"a"`          // nil when a single run is judged
	B          Measured    `json:"b"`          // in the second run

	// Change is B's judged metric divided by A's, with the interval for this cell alone. N is the number of blocks of both
	// runs.
	Change analysis.Estimate `json:"change"`
	// Deciding is Change with the interval that decides the verdict. This interval holds for all cells together.
	Deciding analysis.Estimate `json:"deciding"`
	// PDifferent and PEquivalent are adjusted for the number of cells.
	PDifferent   analysis.Number `json:"p_different"`
	PEquivalent  analysis.Number `json:"p_equivalent"`  // adjusted
	Verdict      string          `json:"verdict"`       // empty when a single run is judged
	VerdictNote  string          `json:"verdict_note"`  // what it lacks
	BlocksNeeded *int            `json:"blocks_needed"` // further blocks, of each run

	// Changes are the further metrics of B divided by those of A. They decide nothing, and they mean nothing if the
	// machines differ. With an emulated CPU there are none.
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
			// metrics of different measures cannot be compared
			c.OnlyB = append(c.OnlyB, cb.Cell)
			if opts.MaxOverhead.Known() { // MaxOverhead judges B alone
				c.Cells = append(c.Cells, c.single(cb))
			}
			continue
		}
		delete(in, cb.Cell)
		c.Cells = append(c.Cells, c.pairCells(ca, cb, opts))
	}
	for _, ca := range sa.Cells {
		if _, onlyInA := in[ca.Cell]; onlyInA {
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

// single makes a cell that is compared only with its clean router.
func (c *Comparison) single(cell analysis.Cell) Cell {
	return Cell{
		Dimensions: cell.Cell, B: c.measured(cell), Change: analysis.Unknown(), Deciding: analysis.Unknown(),
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

// comparisonOf begins the comparison of run b: its metrics and settings, without cells.
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

// summarise computes the summary of a run, with δ and confidence of the comparison.
func summarise(input Input, opts Options) analysis.Summary {
	table := opts.Measures
	if table == nil {
		table = measure.All()
	}
	return table.Summarise(input.Run, analysis.Options{Delta: opts.Delta, Confidence: opts.Confidence})
}

// sideOf describes a run by its environment and its summary.
func sideOf(input Input, s analysis.Summary) Side {
	env := input.Run.Environment
	side := Side{Name: input.Name, Experiment: s.Experiment, GateweighVersion: env.GateweighVersion, Trials: s.Trials,
		AA: s.AA, Slowed: s.Slowed, VM: s.VM}
	if !env.Start.IsZero() {
		side.Start = env.Start.UTC().Format("2006-01-02T15:04:05Z")
	}
	return side
}

// ratio reports whether the judged metric is a ratio to the clean router. If not, the devices' figures are compared
// with each other.
func (c *Comparison) ratio() bool { return c.Metric.Against == analysis.AsRatio }

// difference reports whether the judged metric is a difference from the clean router.
func (c *Comparison) difference() bool { return c.Metric.Against == analysis.AsDifference }

// measured returns the figures of one run for a cell.
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

// log returns the logarithm of a cell's judged metric. That of a ratio is estimated from its blocks, that of another
// figure from its interval.
func (c *Comparison) log(cell analysis.Cell, opts Options) evidence {
	if c.ratio() {
		return c.overhead(cell)
	}
	return againstZero(logOf(cell.Device(c.Metric.Name), opts.Confidence))
}

// overhead compares a cell with the clean router. It returns no evidence where there was none.
func (c *Comparison) overhead(cell analysis.Cell) evidence {
	if !c.ratio() {
		return noEvidence()
	}
	e := againstZero(logRatio(cell.Change(c.Metric.Name), cell.SDLog))
	e.down, e.up = cell.Outwards(c.Metric.Name)
	return e
}

// pairCells computes the changes of one cell. The verdict follows later, because it needs all cells.
func (c *Comparison) pairCells(a, b analysis.Cell, opts Options) Cell {
	ma := c.measured(a)
	out := Cell{Dimensions: b.Cell, A: &ma, B: c.measured(b), overhead: c.overhead(b),
		Changes: map[string]analysis.Estimate{}}
	if c.incomparable() {
		out.Change, out.change = analysis.Unknown(), noEvidence()
		return out
	}
	out.change = difference(c.log(a, opts), c.log(b, opts))
	out.Change = out.change.ratio(opts.Confidence)
	if c.Mark != "" {
		return out
	}
	logarithm := func(cell analysis.Cell, m analysis.Metric) evidence {
		return againstZero(logOf(cell.Device(m.Name), opts.Confidence))
	}
	for _, m := range c.Beside {
		out.Changes[m.Name] = difference(logarithm(a, m), logarithm(b, m)).ratio(opts.Confidence)
	}
	return out
}

// noiseFloor returns the largest difference of two clean routers, in per cent. It is absent where one of the runs has
// no A/A pairs, or where the judged metric is no ratio.
func (c *Comparison) noiseFloor(runs ...analysis.AA) analysis.Number {
	if !c.ratio() {
		return analysis.Absent()
	}
	floor := 0.0
	for _, aa := range runs { // max returns NaN if one is NaN
		floor = max(floor, math.Abs(math.Log(float64(aa.Ratio.Mean))))
	}
	return analysis.Number(100 * math.Expm1(floor))
}

// manyRejected is the share of rejected trials above which the comparison warns about a run.
const manyRejected = 0.1

// warnings lists what weakens the comparison, one sentence each.
func (c *Comparison) warnings(a, b Input, sa, sb analysis.Summary) []string {
	out := []string{}
	warn := func(applies bool, format string, args ...any) {
		if applies {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	for _, skip := range sb.Skipped {
		warn(!slices.ContainsFunc(sa.Skipped, func(s result.Skip) bool { return s.DUT == skip.DUT }),
			"B skipped %s, which A did not: %s", skip.DUT, skip.Reason)
	}
	warn(sameTrials(a.Run, b.Run), "A and B have the same trials: this is one run compared with itself.")
	warn(c.sharedCells() == 0, "No cell is in both runs: there is nothing to compare.")
	warn(c.ratio() && sa.Measure == sb.Measure && !c.NoiseFloorPct.Known(),
		"A run has no accepted A/A pair: the least change that can be called is not known.")
	if noisy := c.rejectedRemarks(); len(noisy) > 0 {
		warn(true, "%s: where the machine is not quiet, identical runs differ by several per cent.", words.Listed(noisy))
	}
	warn(c.difference() && sa.Measure == sb.Measure,
		"%s is compared with the clean router by a difference. Here the devices' own figures are compared, "+
			"so what the machine changed between the two runs is in the change.", c.figure())
	warn(sa.Measure != sb.Measure, "A measured %s, B %s: they have no metric in common.", sa.Measure, sb.Measure)
	warn(sa.Mode != sb.Mode, "A was measured in mode %s, B in mode %s.", sa.Mode, sb.Mode)
	for _, cell := range c.Cells {
		if cell.A == nil {
			continue
		}
		a, b := cell.A.Metrics[cost.Delivered].Mean, cell.B.Metrics[cost.Delivered].Mean
		warn(cell.B.Pairs > 0 && b < result.FullLoad*a, "%s delivers less in B: %s Mbit/s after %s.",
			c.dimensions.Label(cell.Dimensions),
			b, a)
	}
	warn(sa.Speed() != sb.Speed(), "The routers of A and B had not the same speed: a change may be the slowing's.")
	for _, remark := range textsOfBoth(differing(sa), differing(sb)) {
		warn(true, "%s labs that differ in more than the device: %s. Ratios of that are no overheads.",
			words.Either(len(remark.runs), remark.name()+" compares", remark.name()+" compare"), remark.text)
	}
	for _, warning := range textsOfBoth(sa.Warnings, sb.Warnings) {
		warn(true, "%s: %s", warning.name(), warning.text)
	}
	return out
}

// rejectedRemarks says of each run with many rejected trials how many they are.
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

// differing says in what the two labs of a run differed, apart from the device. It returns nothing if in nothing.
func differing(s analysis.Summary) []string {
	if s.Sides == nil {
		return nil
	}
	return []string{s.Sides.Device + " against " + s.Sides.Clean}
}

// textOfRuns is a text with the runs that gave it, each as often as it gave the text.
type textOfRuns struct {
	text string
	runs []string
}

// name names the runs: "A", "A (2 times)", "A and B".
func (s textOfRuns) name() string {
	count := map[string]int{}
	for _, run := range s.runs {
		count[run]++
	}
	return words.ListOf(slices.Compact(slices.Clone(s.runs)), func(run string) string {
		return run + words.When(count[run] > 1, fmt.Sprintf(" (%d times)", count[run]))
	})
}

// textsOfBoth lists the texts of both runs, each text once.
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

// sameTrials reports whether two run folders have the same measurements.
func sameTrials(a, b result.Run) bool {
	starts := func(r result.Run) (list []int64) {
		for _, t := range r.Trials {
			list = append(list, t.Start.UnixNano())
			if sides, is := t.Figures.(*cost.Sides); is {
				list = append(list, sides.DUT.NAPINs, sides.Clean.NAPINs)
			}
		}
		for _, l := range r.MeasureRecords {
			list = append(list, l.Start.UnixNano(), int64(1e9*l.Seconds))
		}
		return list
	}
	return len(starts(a)) > 0 && slices.Equal(starts(a), starts(b))
}
