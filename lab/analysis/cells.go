package analysis

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Trial is one measured window with the figures of both sides. A measure whose
// devices stand alone has no clean side.
type Trial struct {
	result.Trial
	Device, Clean result.Values
}

// Input is what a measure makes of a run's records.
type Input struct {
	Run     result.Run
	Measure string
	Noun    string // what a trial is called: "trial", "login storm"
	// Metrics are in the order of the summary. Primary is the one that is judged
	// against the clean router; empty: none is.
	Metrics []Metric
	Primary string
	Trials  []Trial // in the order they were measured, with rejected ones and A/A pairs
	// Alone: a trial is a whole block, and has no block record beside it.
	Alone   bool
	Samples []Sample // records beside the windows, for metrics that are not of a window
	// Load are the dimensions that change within a block: cells that differ in no
	// other share their labs.
	Load []result.Dimension
	// Compare orders cells as a reader looks for them.
	Compare func(a, b result.Cell) int
	// Laws is how the measure's metrics follow its dimensions; nil: not looked at.
	Laws *Laws
	// Describe adds to a cell what the measure knows beside its metrics; nil: nothing.
	Describe func(*Cell)
	// Warn says what else weakens the result, a sentence each.
	Warn func(Summary) []string
}

// Cell is one point of the sweep: one device at one load.
type Cell struct {
	result.Cell
	Pairs    int // accepted trials
	Blocks   int // with an accepted trial
	Rejected int
	Redone   int

	Metrics Figures

	// Of the primary metric. PDifferent and PEquivalent are adjusted for multiplicity:
	// the chance of such blocks if the ratio were 1, or if it lay outside [1/(1+δ), 1+δ].
	Verdict      string
	VerdictNote  string
	PDifferent   Number
	PEquivalent  Number
	BlocksNeeded *int   // further blocks for a verdict
	SDLog        Number // spread of the blocks' log ratios

	Flags   []Tally
	Rejects []Tally
	// Counts, Texts, Tallies and Curves are what the measure has to say that is no
	// estimate: clients that got in, where addresses are from, why clients gave up.
	Counts  map[string]int
	Texts   map[string]string
	Tallies map[string][]Tally
	Curves  map[string][]CurvePoint
}

// CurvePoint is one point of a distribution.
type CurvePoint struct {
	Ms       Number `json:"ms"`
	SharePct Number `json:"share_pct"` // of the clients that asked
}

// cellJSON is a cell of summary.json, version 2.
type cellJSON struct {
	Dimensions result.Cell             `json:"dimensions"`
	Pairs      int                     `json:"pairs"`
	Blocks     int                     `json:"blocks"`
	Rejected   int                     `json:"rejected"`
	Redone     int                     `json:"redone"`
	Metrics    Figures                 `json:"metrics"`
	Verdict    *verdictJSON            `json:"verdict,omitempty"`
	Flags      []Tally                 `json:"flags"`
	Rejects    []Tally                 `json:"rejects"`
	Counts     map[string]int          `json:"counts,omitempty"`
	Texts      map[string]string       `json:"texts,omitempty"`
	Tallies    map[string][]Tally      `json:"tallies,omitempty"`
	Curves     map[string][]CurvePoint `json:"curves,omitempty"`
}

type verdictJSON struct {
	Word         string `json:"word"`
	Note         string `json:"note"`
	PDifferent   Number `json:"p_different"`
	PEquivalent  Number `json:"p_equivalent"`
	BlocksNeeded *int   `json:"blocks_needed"`
	SDLog        Number `json:"sd_log"`
}

// MarshalJSON writes the cell of summary.json.
func (c Cell) MarshalJSON() ([]byte, error) {
	out := cellJSON{c.Cell, c.Pairs, c.Blocks, c.Rejected, c.Redone, c.Metrics, nil, c.Flags, c.Rejects, c.Counts, c.Texts, c.Tallies, c.Curves}
	if c.Verdict != "" {
		out.Verdict = &verdictJSON{c.Verdict, c.VerdictNote, c.PDifferent, c.PEquivalent, c.BlocksNeeded, c.SDLog}
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON wrote; metrics of which nothing is known are gone.
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
		Cell: in.Dimensions, Pairs: in.Pairs, Blocks: in.Blocks, Rejected: in.Rejected, Redone: in.Redone, Metrics: in.Metrics,
		Verdict: in.Verdict.Word, VerdictNote: in.Verdict.Note, PDifferent: in.Verdict.PDifferent, PEquivalent: in.Verdict.PEquivalent,
		BlocksNeeded: in.Verdict.BlocksNeeded, SDLog: in.Verdict.SDLog,
		Flags: in.Flags, Rejects: in.Rejects, Counts: in.Counts, Texts: in.Texts, Tallies: in.Tallies, Curves: in.Curves,
	}
	return nil
}

// Device, Clean and Change are a metric of the cell by its name, absent where the
// cell lacks it.
func (c Cell) Device(metric string) Estimate { return c.Metrics.Device(metric) }
func (c Cell) Clean(metric string) Estimate  { return c.Metrics.Clean(metric) }
func (c Cell) Change(metric string) Estimate { return c.Metrics.Change(metric) }

// DUT is the name of the cell's device.
func (c Cell) DUT() string { return c.Text(result.DUT) }

// Flagged reports whether the cell carries a flag.
func (c Cell) Flagged(flag string) bool {
	return slices.ContainsFunc(c.Flags, func(f Tally) bool { return f.Text == flag })
}

// FlagNoRatio marks accepted trials without a ratio: one side delivered
// nothing, or the clean router's CPU was not seen.
const FlagNoRatio = "no-ratio"

// Summarise computes the summary of a run from what its measure made of it.
func Summarise(in Input, opts Options) Summary {
	opts = opts.withDefaults()
	env := in.Run.Environment
	s := Summary{
		Version: Version, Experiment: env.Experiment, Measure: in.Measure, Noun: in.Noun, Mode: env.Mode, Sides: env.Sides,
		Confidence: opts.Confidence, Delta: opts.Delta, Primary: in.Primary, Metrics: in.Metrics, Cells: []Cell{},
		Skipped: append([]result.Skip{}, in.Run.Skipped...), Findings: []Finding{}, Warnings: []string{},
	}
	var aa []Trial
	cells := map[result.Cell][]Trial{}
	for _, t := range in.Trials {
		s.Trials.add(t)
		if t.AA {
			aa = append(aa, t)
			continue
		}
		cells[t.Cell] = append(cells[t.Cell], t)
	}
	in.fillCells(&s, cells, in.noiseFloor(&s, aa, opts), opts)
	hours, clockBack := elapsed(in.Trials)
	var unstable []string
	if in.Laws != nil {
		unstable = in.fillLaws(&s, hours, opts)
	}
	s.Rejects = rejectReasons(in.Trials)
	s.FailedBlocks, s.Limits = failedBlocks(in), limits(in.Run.Blocks)
	s.Warnings = append([]string{}, slices.Concat(in.warnings(s, cells), unstable, clockWarning(clockBack))...)
	return s
}

// fillCells computes the cells and, all taken together, their verdicts.
func (in Input) fillCells(s *Summary, cells map[result.Cell][]Trial, aa AA, opts Options) {
	var logs []inference.Sample
	for _, key := range slices.SortedFunc(maps.Keys(cells), in.Compare) {
		c, log := in.cell(key, cells[key], opts)
		s.Cells, logs = append(s.Cells, c), append(logs, log)
	}
	if in.Primary == "" {
		return
	}
	s.AA = aa
	judgeCells(s.Cells, logs, aa, opts)
	s.Multiplicity = Multiplicity{MethodHolm, testable(logs)}
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

// cell computes one cell from all its trials, rejected ones included. The sample
// is of the logarithm of its primary ratio, for the verdict.
func (in Input) cell(key result.Cell, trials []Trial, opts Options) (Cell, inference.Sample) {
	c := Cell{Cell: key, SDLog: Absent(), Metrics: Figures{}}
	var accepted []Trial
	for _, t := range trials {
		if t.Attempt > 0 {
			c.Redone++
		}
		if t.Accepted {
			accepted = append(accepted, t)
		} else {
			c.Rejected++
		}
	}
	blocks := in.byBlock(accepted)
	c.Pairs, c.Blocks, c.Rejects = len(accepted), len(blocks), rejectReasons(trials)
	log := inference.None()
	for _, m := range in.Metrics {
		if m.Per == PerCell {
			e := Unknown()
			e.Mean = m.From(c.Metrics)
			c.Metrics[m.Name] = Figure{Device: e}
			continue
		}
		f, sample := in.figure(m, key, blocks, opts)
		c.Metrics[m.Name] = f
		if m.Name == in.Primary {
			log, c.SDLog = sample, spread(perBlock(blocks, in.ratioOf(m), mean))
		}
	}
	c.Flags = in.flags(accepted)
	if in.Describe != nil {
		in.Describe(&c)
	}
	return c, log
}

// figure computes one metric of a cell; the sample is of what compares the sides.
func (in Input) figure(m Metric, key result.Cell, blocks [][]Trial, opts Options) (Figure, inference.Sample) {
	side := func(of func(Trial) result.Values, beside func(Sample) result.Values) Estimate {
		switch m.Per {
		case PerWindow, PerPool:
			centre := mean
			if m.Median {
				centre = median
			}
			value := func(t Trial) float64 { return m.Of(in.reading(t.Cell, of(t))) }
			if m.Per == PerPool {
				e := Unknown()
				e.Mean = Number(median(perBlock(apart(blocks), value, mean)))
				return e
			}
			return m.Range.Estimate(perBlock(blocks, value, centre), opts.Confidence)
		}
		var values []float64
		for _, s := range in.Samples {
			if s.Per == m.Per && s.of(key) {
				values = append(values, m.Of(in.reading(key, beside(s))))
			}
		}
		return m.Range.Estimate(values, opts.Confidence)
	}
	f := Figure{Device: side(func(t Trial) result.Values { return t.Device }, func(s Sample) result.Values { return s.Device })}
	if m.Both {
		clean := side(func(t Trial) result.Values { return t.Clean }, func(s Sample) result.Values { return s.Clean })
		f.Clean = &clean
	}
	if m.Against == NotCompared {
		return f, inference.None()
	}
	sample := inference.Of(perBlock(blocks, in.ratioOf(m), mean))
	change := estimateOf(sample, opts.Confidence)
	if m.Against == AsRatio {
		change = change.geometric()
	}
	f.Change = &change
	return f, sample
}

// ratioOf compares the two sides of a trial by a metric.
func (in Input) ratioOf(m Metric) func(Trial) float64 {
	return func(t Trial) float64 { return m.compare(in.reading(t.Cell, t.Device), in.reading(t.Cell, t.Clean)) }
}

func (in Input) reading(cell result.Cell, v result.Values) Reading {
	return Reading{Values: v, Cell: cell, CPUs: in.Run.Environment.CPUs}
}

// apart makes each window a block of its own.
func apart(blocks [][]Trial) [][]Trial {
	var out [][]Trial
	for _, windows := range blocks {
		for i := range windows {
			out = append(out, windows[i:i+1])
		}
	}
	return out
}

// noiseFloor treats the A/A pairs as if the second clean router were a DUT.
// Blocks of different numbers of clients, directions or profiles count apart.
func (in Input) noiseFloor(s *Summary, trials []Trial, opts Options) AA {
	var accepted []Trial
	aa := AA{Ratio: Unknown(), SDLog: Absent()}
	for _, t := range trials {
		if t.Accepted {
			accepted = append(accepted, t)
		} else {
			aa.Rejected++
		}
	}
	blocks := in.byBlock(accepted)
	aa.Pairs, aa.Blocks = len(accepted), len(blocks)
	aa.Rejects = rejectReasons(trials)
	if in.Primary != "" {
		logs := perBlock(blocks, in.ratioOf(metricNamed(in.Metrics, in.Primary)), mean)
		aa.Ratio, aa.SDLog = Changes.Estimate(logs, opts.Confidence).geometric(), spread(logs)
	}
	return aa
}

// byBlock groups trials by the labs they were measured in. A block spans the
// loads of a cell's sweep, so the load is not part of its identity; labs end with
// a sitting, so what a resume adds to an interrupted block is a block of its own.
func (in Input) byBlock(trials []Trial) [][]Trial {
	groups := map[blockID][]Trial{}
	for _, t := range trials {
		id := in.blockOf(t)
		groups[id] = append(groups[id], t)
	}
	ids := slices.SortedFunc(maps.Keys(groups), func(a, b blockID) int {
		return cmp.Or(in.Compare(a.cell, b.cell), cmp.Compare(a.block, b.block), cmp.Compare(a.sitting, b.sitting))
	})
	out := make([][]Trial, 0, len(ids))
	for _, id := range ids {
		out = append(out, groups[id])
	}
	return out
}

// blockID names the labs of a block.
type blockID struct {
	cell    result.Cell // without its load
	aa      bool
	block   int
	sitting int
}

func (in Input) blockOf(t Trial) blockID {
	return blockID{t.Cell.Without(in.Load...), t.AA, t.Block, t.Sitting}
}

// perBlock makes one value a block from its windows.
func perBlock(blocks [][]Trial, of func(Trial) float64, centre func([]float64) float64) []float64 {
	out := make([]float64, 0, len(blocks))
	for _, windows := range blocks {
		values := make([]float64, 0, len(windows))
		for _, t := range windows {
			values = append(values, of(t))
		}
		out = append(out, centre(values))
	}
	return out
}

// flags counts the remarks on accepted trials.
func (in Input) flags(accepted []Trial) []Tally {
	var count Tallies
	for _, t := range accepted {
		for _, flag := range t.Flags {
			count.Add(flag, 1)
		}
		if in.Primary != "" && math.IsNaN(in.ratioOf(metricNamed(in.Metrics, in.Primary))(t)) {
			count.Add(FlagNoRatio, 1)
		}
	}
	return count.Sorted()
}

// label names a cell in warnings: "opennds, 100 clients, 400 Mbit/s, up".
func (c Cell) label() string {
	parts := []string{c.DUT()}
	for _, v := range c.Without(result.DUT, result.Profile).Values() {
		parts = append(parts, WordsOf(v))
	}
	return strings.Join(parts, ", ")
}

// WordsOf says a dimension and its value in words: "100 clients".
func WordsOf(v result.Value) string {
	switch v.Dimension {
	case result.Clients:
		return words.Counted(int(v.Number), "client")
	case result.OfferedMbps:
		return v.Text + " Mbit/s"
	case result.LoginRate:
		if v.Number == 0 {
			return "all at once"
		}
		return v.Text + " clients a second"
	case result.Direction, result.Profile, result.DUT:
		return v.Text
	}
	return fmt.Sprintf("%s %s", strings.ReplaceAll(string(v.Dimension), "_", " "), v.Text)
}
