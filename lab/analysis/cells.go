package analysis

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Trial is one measured window with the figures of both sides. A measure whose
// devices stand alone has no clean side.
type Trial struct {
	result.Trial
	Device, Clean result.Values
}

// TrialOf makes a trial from the head and the record of a measure's own kind.
func TrialOf(h result.Head, cell result.Cell, window int, record any) (t Trial) {
	t.Cell, t.Block, t.Window, t.Attempt, t.Sitting, t.Node = cell, h.Block, window, h.Attempt, h.Sitting, h.Node
	t.Start, t.Elapsed, t.Accepted, t.Rejects = h.Start, h.Elapsed, h.Accepted, h.Rejects
	t.Device = result.ValuesOf(record)
	return t
}

// Input is a run prepared by its measure for Summarise.
type Input struct {
	Run     result.Run
	Measure string
	Noun    string // the word for a trial: "trial", "login storm"
	// Dimensions describe the dimensions of the cells.
	Dimensions Dimensions
	// Metrics are in the order of the summary. Primary names the metric that verdicts judge
	// against the clean router. Empty: there are no verdicts.
	Metrics []Metric
	Primary string
	Trials  []Trial // in the order they were measured, with rejected ones and A/A pairs
	// Controls are the windows of the clean routers in an interleaved run. Devices are paired with them.
	Controls []Trial
	// Alone: a trial is a whole block and has no block record.
	Alone    bool
	Samples  []Sample // other records than windows, for metrics that are not PerWindow
	ByFamily []string // metrics, each of a window, by which devices are compared between families
	// Load are the dimensions that change within a block. Cells that differ only in these
	// dimensions are measured in the same labs.
	Load []result.Dimension
	// Compare gives the order of the cells in the summary.
	Compare func(a, b result.Cell) int
	// Laws name the metrics for sweeps, cost models, ceilings and stability. nil: the summary has none of these.
	Laws *Laws
	// Bias returns the largest change by noise of log, the logarithm of a ratio of two routers' CPU. cores is the CPU of
	// the clean router, in cores. nil: the measure does not know the effect of noise.
	Bias func(n Noise, log, cores float64) float64
	// Rise returns the largest increase of CPU by noise. rise is the increase of both routers, in cores. more is a
	// device's further increase, of the logarithm of its CPU. cores is the CPU of the clean router, in cores.
	// nil: the measure does not know the effect of noise.
	Rise func(n Noise, cores float64) (rise, more float64)
	// Describe adds the measure's counts, texts, tallies and curves to a cell; nil: none.
	Describe func(*Cell)
	// Warn returns the measure's own warnings about the result, one sentence each.
	Warn func(Summary) []string

	noise   Noise  // mean noise of all accepted trials
	primary Metric // the metric named by Primary; zero without verdicts
}

// Cell is one point of the sweep: one device at one load.
type Cell struct {
	result.Cell
	Pairs    int // accepted trials
	Blocks   int // blocks with an accepted trial
	Rejected int
	Redone   int

	Metrics Figures
	Noise   *Noise // nil: the machine was quiet, or the measure does not record noise

	// The verdict judges the primary metric. PDifferent is the chance of such blocks if the ratio were 1.
	// PEquivalent is their chance if the ratio were outside [1/(1+δ), 1+δ]. Both are adjusted for multiplicity.
	Verdict      string
	VerdictNote  string
	PDifferent   Number
	PEquivalent  Number
	BlocksNeeded *int // further blocks for a verdict
	// Together is the change with the wider interval for all cells together. It is set where this interval leaves the
	// verdict open, although the interval of the cell alone does not. Otherwise it is nil.
	Together *Estimate
	SDLog    Number // spread of the blocks' log ratios

	Ended *Ended // nil: the run has no rule for ending cells, or the cell is not yet ended

	Flags   []Tally
	Rejects []Tally
	// Counts, Texts, Tallies and Curves are results that are not estimates, such as the number of admitted clients,
	// the source of their addresses, and their errors.
	Counts  map[string]int
	Texts   map[string]string
	Tallies map[string][]Tally
	Curves  map[string][]CurvePoint
}

// CurvePoint is one point of a distribution, or of a course over time.
type CurvePoint struct {
	Ms       Number `json:"ms"`                  // time
	SharePct Number `json:"share_pct,omitempty"` // of a distribution: of the clients that asked
	Value    Number `json:"value,omitempty"`     // of a course
}

// cellJSON is a cell of summary.json, version 2. Numbers that are no estimates stand in `counts`, words in `texts`.
type cellJSON struct {
	Dimensions result.Cell `json:"dimensions"`
	Pairs      int         `json:"pairs"`    // accepted trials
	Blocks     int         `json:"blocks"`   // blocks with an accepted trial
	Rejected   int         `json:"rejected"` // rejected trials
	Redone     int         `json:"redone"`   // trials that repeat a rejected or noisy one
	// Figures by the names of metrics (the list `metrics` of the summary). Metrics without a known figure are left out.
	Metrics Figures      `json:"metrics"`
	Verdict *verdictJSON `json:"verdict,omitempty"` // on the primary metric
	Flags   []Tally      `json:"flags"`             // remarks that do not reject a trial
	Rejects []Tally      `json:"rejects"`           // why trials were rejected
	// numbers such as those of admitted clients and guests, each the smallest of all blocks
	Counts  map[string]int          `json:"counts,omitempty"`
	Texts   map[string]string       `json:"texts,omitempty"`
	Tallies map[string][]Tally      `json:"tallies,omitempty"` // lists of counted texts, such as failures
	Curves  map[string][]CurvePoint `json:"curves,omitempty"`
	Noise   *Noise                  `json:"noise,omitempty"` // of noisy runs
	Ended   *Ended                  `json:"ended,omitempty"` // of runs that end when they are exact enough
}

// verdictJSON is the word that the blocks support. Both p are adjusted for the number of verdicts.
type verdictJSON struct {
	Word         string `json:"word"` // different, equivalent, inconclusive
	Note         string `json:"note"` // what the verdict is missing
	PDifferent   Number `json:"p_different"`
	PEquivalent  Number `json:"p_equivalent"`
	BlocksNeeded *int   `json:"blocks_needed"` // further blocks for a verdict
	SDLog        Number `json:"sd_log"`        // spread of the blocks' log ratios
	// The change with the wider interval for all cells together. It is set where only this interval leaves the verdict
	// open.
	Together *Estimate `json:"together,omitempty"`
}

// CellRecord is the type that a cell has in summary.json.
func CellRecord() reflect.Type { return reflect.TypeFor[cellJSON]() }

// MarshalJSON writes the cell of summary.json.
func (c Cell) MarshalJSON() ([]byte, error) {
	out := cellJSON{c.Cell, c.Pairs, c.Blocks, c.Rejected, c.Redone, c.Metrics, nil, c.Flags, c.Rejects, c.Counts, c.Texts,
		c.Tallies, c.Curves, c.Noise, c.Ended}
	if c.Verdict != "" {
		out.Verdict = &verdictJSON{c.Verdict, c.VerdictNote, c.PDifferent, c.PEquivalent, c.BlocksNeeded, c.SDLog, c.Together}
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads the output of MarshalJSON. Metrics without a known value are left out.
func (c *Cell) UnmarshalJSON(data []byte) error {
	none := &verdictJSON{PDifferent: Absent(), PEquivalent: Absent(), SDLog: Absent()}
	in := cellJSON{Verdict: none}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	if in.Verdict == nil { // "verdict": null
		in.Verdict = none
	}
	*c = Cell{
		Cell: in.Dimensions, Pairs: in.Pairs, Blocks: in.Blocks, Rejected: in.Rejected, Redone: in.Redone,
		Metrics: in.Metrics,
		Verdict: in.Verdict.Word, VerdictNote: in.Verdict.Note, PDifferent: in.Verdict.PDifferent,
		PEquivalent:  in.Verdict.PEquivalent,
		BlocksNeeded: in.Verdict.BlocksNeeded, SDLog: in.Verdict.SDLog, Together: in.Verdict.Together,
		Flags: in.Flags, Rejects: in.Rejects, Counts: in.Counts, Texts: in.Texts, Tallies: in.Tallies, Curves: in.Curves,
		Noise: in.Noise, Ended: in.Ended,
	}
	return nil
}

// Device returns a metric of the device by its name. It returns Unknown where the cell lacks it.
func (c Cell) Device(metric string) Estimate { return c.Metrics.Device(metric) }

// Clean returns a metric of the clean router by its name. It returns Unknown where the cell lacks it.
func (c Cell) Clean(metric string) Estimate { return c.Metrics.Clean(metric) }

// Change returns the device's metric compared with the clean router's. It returns Unknown where the cell lacks it.
func (c Cell) Change(metric string) Estimate { return c.Metrics.Change(metric) }

// DUT is the name of the cell's device.
func (c Cell) DUT() string { return c.Text(result.DUT) }

// Flagged reports whether the cell carries a flag.
func (c Cell) Flagged(flag string) bool {
	return slices.ContainsFunc(c.Flags, func(f Tally) bool { return f.Text == flag })
}

// FlagNoRatio marks accepted trials without a ratio, because one side delivered nothing or
// the clean router's CPU was not measured.
const FlagNoRatio = "no-ratio"

// Summarise computes the summary of a run from its measure's input.
func Summarise(input Input, opts Options) Summary {
	opts, env := opts.withDefaults(), input.Run.Environment
	if !opts.AllMetrics {
		input.Metrics = listed(input.Metrics, input.Trials)
	}
	s := Summary{
		Version: Version, Experiment: env.Experiment, Measure: input.Measure, Noun: input.Noun, Unit: input.unit(),
		Mode: env.Mode, Sides: env.Sides, VM: env.VM, Mark: env.VM.Mark(), LoadsDividedBy: env.LoadsDividedBy,
		Confidence: opts.Confidence, Delta: opts.Delta, Dimensions: input.Dimensions, Metrics: input.Metrics, Cells: []Cell{},
		Skipped: append([]result.Skip{}, input.Run.Skipped...), Findings: []Finding{}, Warnings: []string{},
	}
	var unknown []string
	if m := MetricNamed(input.Metrics, input.Primary); m.Against != NotCompared && m.Value != nil {
		input.primary, s.Primary = m, input.Primary
	} else if input.Primary != "" {
		unknown = []string{
			fmt.Sprintf("%q is no metric that compares a device with the clean router: nothing is judged.", input.Primary)}
	}
	var aa []Trial
	cells := map[result.Cell][]Trial{}
	input.Trials, s.Trials.LeftOut = input.kept()
	input.Trials, s.Trials.Aside = quietest(input.Trials)
	for _, t := range input.Trials {
		s.Trials.add(t)
		if t.AA {
			aa = append(aa, t)
		} else {
			cells[t.Cell] = append(cells[t.Cell], t)
		}
	}
	for _, t := range input.Controls {
		s.Trials.add(t)
	}
	s.Slowed, input.noise = slowedOf(env, input.Trials), noiseOf(accepted(input.Trials))
	opts = s.until(env.Until, opts)
	input.fillCells(&s, cells, aa, opts)
	s.Nodes, s.Families = input.nodes(cells, opts), input.byFamily(cells, opts)
	s.Noise = noiseOfRun(s, input.Trials)
	clock := input.clock()
	var unstable []string
	if input.Laws != nil && s.Primary != "" {
		unstable = input.fillLaws(&s, clock.hours, opts)
	}
	s.Rejects = rejectReasons(slices.Concat(input.Trials, input.Controls))
	s.FailedBlocks, s.LeftBlocks, s.Limits = failedBlocks(input), leftBlocks(input.Run.Blocks), limits(input.Run.Blocks)
	s.Warnings = append([]string{}, slices.Concat(unknown, input.warnings(s, cells), s.Nodes.warnings(), unstable,
		clock.warnings())...)
	return s
}

// fillCells computes the cells and, all taken together, their verdicts.
func (input Input) fillCells(s *Summary, cells map[result.Cell][]Trial, aa []Trial, opts Options) {
	var list []contrast
	for _, key := range slices.SortedFunc(maps.Keys(cells), input.inOrder) {
		c, primary := input.cell(key, cells[key], opts)
		s.Cells, list = append(s.Cells, c), append(list, primary)
	}
	if s.Primary != "" {
		s.AA = input.noiseFloor(aa, opts)
		judgeCells(s.Cells, list, s.AA, input.primary, opts)
		s.Multiplicity = Multiplicity{MethodHolm, testable(list)}
	}
	s.end(input.Run.Environment.Until)
}

// kept leaves out rejected trials of cells that the machine cannot measure. It returns the other trials and the number
// of trials left out.
func (input Input) kept() (trials []Trial, leftOut int) {
	type place struct {
		cell  result.Cell
		aa    bool
		block int
	}
	out := map[place]bool{}
	for _, b := range input.Run.Blocks {
		for _, cell := range b.LeftOut {
			out[place{cell, b.AA, b.Block}] = true
		}
	}
	trials = without(input.Trials, func(t Trial) bool { return !t.Accepted && out[place{t.Cell, t.AA, t.Block}] })
	return trials, len(input.Trials) - len(trials)
}

func (c *Counts) add(t Trial) {
	if t.Accepted {
		c.Accepted++
	} else {
		c.Rejected++
	}
	if t.Attempt > 0 {
		c.Redone++
	}
}

func accepted(trials []Trial) []Trial {
	return without(trials, func(t Trial) bool { return !t.Accepted })
}

// cell computes one cell from all its trials, rejected ones included. It also returns the
// contrast of the primary metric, for the verdict.
func (input Input) cell(key result.Cell, trials []Trial, opts Options) (Cell, contrast) {
	var counts Counts
	for _, t := range trials {
		counts.add(t)
	}
	kept := accepted(trials)
	blocks := input.byBlock(kept)
	c := Cell{
		Cell: key, SDLog: Absent(), Metrics: Figures{}, Pairs: len(kept), Blocks: len(blocks), Rejected: counts.Rejected,
		Redone:  counts.Redone,
		Rejects: rejectReasons(trials), Flags: input.flags(kept),
	}
	var samples []Sample
	for _, s := range input.Samples {
		if !s.AA && s.countsFor(key) {
			s.Cell = key
			samples = append(samples, s)
		}
	}
	primary := contrast{Sample: inference.None()}
	for _, m := range input.Metrics {
		if m.Per == PerCell {
			e := Unknown()
			e.Mean = m.From(c.Metrics)
			c.Metrics[m.Name] = Figure{Device: e}
			continue
		}
		units := input.units(m, blocks, samples)
		c.Metrics[m.Name] = m.figure(units, opts)
		if m.Name == input.primary.Name {
			primary = contrast{Sample: inference.SampleOf(m.changes(units)), limit: m.limit(units, opts)}
			c.SDLog = spread(m.changes(units))
		}
	}
	primary.moved = outwards(input.widen(&c, kept), primary.Mean)
	if input.Describe != nil {
		input.Describe(&c)
	}
	return c, primary
}

// pair has the values of both sides of a trial or a sample.
type pair struct{ device, clean MetricInput }

func (input Input) pairOf(t Trial) pair { return input.pair(t.Cell, t.Device, t.Clean) }

func (input Input) pair(cell result.Cell, device, clean result.Values) pair {
	return pair{MetricInput{device, cell, input.Run.Environment.CPUs},
		MetricInput{clean, cell, input.Run.Environment.CPUs}}
}

// units returns the groups that give one value each. A group is the windows of a block, or one sample.
func (input Input) units(m Metric, blocks [][]Trial, samples []Sample) [][]pair {
	var out [][]pair
	if m.Per == PerWindow || m.Per == PerPool {
		for _, windows := range blocks {
			var unit []pair
			for _, t := range windows {
				unit = append(unit, input.pairOf(t))
			}
			out = append(out, unit)
		}
		return out
	}
	for _, s := range samples {
		if s.Per == m.Per {
			out = append(out, []pair{input.pair(s.Cell, s.Device, s.Clean)})
		}
	}
	return out
}

// figure computes the metric of one cell from its groups.
func (m Metric) figure(units [][]pair, opts Options) Figure {
	side := func(input func(pair) MetricInput) Estimate {
		value := func(p pair) float64 { return m.Value(input(p)) }
		centre := mean
		if m.Median {
			centre = Median
		}
		if m.Per == PerPool {
			e := Unknown()
			e.Mean = Number(Median(each(slices.Concat(units...), value)))
			return e
		}
		return m.Range.Estimate(each(units, func(unit []pair) float64 { return centre(each(unit, value)) }), opts.Confidence)
	}
	f := Figure{Device: side(func(p pair) MetricInput { return p.device })}
	if m.Both {
		clean := side(func(p pair) MetricInput { return p.clean })
		f.Clean = &clean
	}
	if m.Against != NotCompared {
		change := m.unscaled(estimateOf(inference.SampleOf(m.changes(units)), opts.Confidence))
		f.Change = &change
	}
	return f
}

// noiseFloor computes the A/A pairs as if the second clean router were a DUT.
// Blocks with different clients, directions or profiles are different blocks.
func (input Input) noiseFloor(trials []Trial, opts Options) AA {
	kept := accepted(trials)
	blocks := input.byBlock(kept)
	changes := input.primary.changes(
		input.units(input.primary, blocks, without(input.Samples, func(s Sample) bool { return !s.AA })))
	return AA{
		Pairs: len(kept), Blocks: len(blocks), Rejected: len(trials) - len(kept), Rejects: rejectReasons(trials),
		Ratio: input.primary.unscaled(Changes.Estimate(changes, opts.Confidence)), SDLog: spread(changes),
	}
}

// byBlock groups trials by block. A block has all loads, so the load is not part of its
// identity. A resume builds new labs, so the trials that it adds to an interrupted block form
// a block of their own.
func (input Input) byBlock(trials []Trial) [][]Trial {
	return grouped(trials, input.blockOf, func(a, b blockID) int {
		return cmp.Or(input.Compare(a.cell, b.cell), cmp.Compare(a.block, b.block), cmp.Compare(a.sitting, b.sitting))
	})
}

// blockID names the labs of a block.
type blockID struct {
	cell    result.Cell // without its load
	aa      bool
	block   int
	sitting int
}

func (input Input) blockOf(t Trial) blockID {
	return blockID{t.Cell.Without(input.Load...), t.AA, t.Block, t.Sitting}
}

// flags counts the remarks on accepted trials.
func (input Input) flags(accepted []Trial) []Tally {
	var count Tallies
	for _, t := range accepted {
		for _, flag := range t.Flags {
			count.Add(flag, 1)
		}
		if input.primary.Per == PerWindow && math.IsNaN(input.primary.compare(input.pairOf(t))) {
			count.Add(FlagNoRatio, 1)
		}
	}
	return count.Sorted()
}
