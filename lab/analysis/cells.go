package analysis

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Summarise computes the summary of a run.
func Summarise(run result.Run, opts Options) Summary {
	opts = opts.withDefaults()
	s := Summary{
		Version:    Version,
		Experiment: run.Environment.Experiment,
		Mode:       run.Environment.Mode,
		Sides:      run.Environment.Sides,
		Confidence: opts.Confidence,
		Delta:      opts.Delta,
		Cells:      []Cell{},
		Skipped:    append([]result.Skip{}, run.Skipped...),
		Findings:   []Finding{},
		Warnings:   []string{},
	}
	if run.Logins() {
		s.Measure = result.MeasureLogins
	}
	var aa []result.Trial
	cells := map[result.Cell][]result.Trial{}
	profiles := map[string]bool{}
	trials := levelDaemons(run.Trials, run.Blocks)
	for _, t := range trials {
		s.Trials.add(t)
		profiles[t.Cell.Text(result.Profile)] = true
		if t.AA {
			aa = append(aa, t)
			continue
		}
		cells[t.Cell] = append(cells[t.Cell], t)
	}
	s.Profile = strings.Join(slices.Sorted(maps.Keys(profiles)), ",")
	s.AA = noiseFloor(aa, opts)
	s.fillCells(cells, run, opts)
	hours, clockBack := elapsed(trials)
	unstable := s.fillSweeps(blockMeans(trials, hours), opts)
	s.Rejects = rejectReasons(run.Trials)
	s.FailedBlocks, s.Limits = failedBlocks(run), limits(run.Blocks)
	if s.Measure == result.MeasureLogins {
		s.summariseStorms(run, opts)
	}
	s.Warnings = append(append(append(s.Warnings, warnings(run, s, cells)...), unstable...), clockWarning(clockBack)...)
	return s
}

// fillSweeps computes what block means tell, and returns what they say of the run's
// stability.
func (s *Summary) fillSweeps(means []blockMean, opts Options) (unstable []string) {
	s.Stability, unstable = stability(means, opts)
	if s.Sides != nil { // the clean router of an A/A block had what the devices have
		means = slices.DeleteFunc(slices.Clone(means), func(b blockMean) bool { return b.id.aa })
	}
	list := routers(means)
	s.Sweeps = sweeps(list, opts)
	if s.Sides != nil {
		list = list[1:] // nor are its clients and traffic those of the cells
	} else {
		s.Quotients = quotients(list[1:], opts)
	}
	s.CostModels = costModels(list, s.Mode, opts)
	s.Ceilings = ceilings(s.Cells, s.Mode)
	return unstable
}

// fillCells computes the cells and, all taken together, their verdicts.
func (s *Summary) fillCells(cells map[result.Cell][]result.Trial, run result.Run, opts Options) {
	times := blockTimes(run.Blocks, opts)
	var logs []inference.Sample
	for _, key := range slices.SortedFunc(maps.Keys(cells), compareCells) {
		c, log := summariseCell(key, cells[key], run.Environment.CPUs, opts)
		c.BlockFigures = unknownTimes()
		if known, ok := times[withoutLoad(key)]; ok {
			c.BlockFigures = known
		}
		c.Streams, c.Churn = streamFigures(key, run.Blocks, opts), churnFigures(key, run.Blocks, opts)
		c.Crowd = crowd(key, run.Blocks, opts)
		s.Cells, logs = append(s.Cells, c), append(logs, log)
	}
	judgeCells(s.Cells, logs, s.AA, opts)
	s.Multiplicity = Multiplicity{MethodHolm, testable(logs)}
}

func (c *Counts) add(t result.Trial) { c.addAttempt(t.Attempt, t.Accepted) }

func (c *Counts) addAttempt(attempt int, accepted bool) {
	if accepted {
		c.Accepted++
	} else {
		c.Rejected++
	}
	if attempt > 0 {
		c.Redone++
	}
}

// compareCells orders cells as a reader looks for them: profile, direction
// (upload first), DUT, then the sweep.
func compareCells(a, b result.Cell) int {
	return cmp.Or(
		cmp.Compare(a.Text(result.Profile), b.Text(result.Profile)),
		-cmp.Compare(a.Text(result.Direction), b.Text(result.Direction)),
		cmp.Compare(a.Text(result.DUT), b.Text(result.DUT)),
		cmp.Compare(a.Int(result.Clients), b.Int(result.Clients)),
		cmp.Compare(a.Number(result.OfferedMbps), b.Number(result.OfferedMbps)),
	)
}

// summariseCell computes one cell from all its trials, rejected ones included.
// The sample is of its log ratio, for the verdict.
func summariseCell(key result.Cell, trials []result.Trial, cpus int, opts Options) (Cell, inference.Sample) {
	c := Cell{
		DUT: key.Text(result.DUT), Clients: key.Int(result.Clients), OfferedMbps: Number(key.Number(result.OfferedMbps)),
		Direction: key.Text(result.Direction), Profile: key.Text(result.Profile),
	}
	var accepted []result.Trial
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
	blocks := byBlock(accepted)
	c.Pairs, c.Blocks = len(accepted), len(blocks)
	c.Rejects, c.Flags = rejectReasons(trials), flags(accepted)

	logs := perBlock(blocks, logRatio, mean)
	log := inference.Of(logs)
	c.SDLog, c.OverheadRatio = spread(logs), estimateOf(log, opts.Confidence).geometric()

	c.CPUCorePct = amounts.estimate(perBlock(blocks, func(t result.Trial) float64 { return t.DUT.CPUCorePct() }, mean), opts.Confidence)
	c.CleanCPUCorePct = amounts.estimate(perBlock(blocks, func(t result.Trial) float64 { return t.Clean.CPUCorePct() }, mean), opts.Confidence)
	c.Intervals = cellFigures(blocks, cpus, opts)
	c.fillHeadlines(accepted)
	return c, log
}

// cellFigures fills the table of figures of a cell.
func cellFigures(blocks [][]result.Trial, cpus int, opts Options) Figures {
	var f Figures
	for _, fig := range figureTable {
		centre := fig.centre
		if centre == nil {
			centre = mean
		}
		of := func(t result.Trial) float64 { return fig.of(t, cpus) }
		*fig.field(&f) = fig.within.estimate(perBlock(blocks, of, centre), opts.Confidence)
	}
	return f
}

// fillHeadlines repeats the means under the names of summary.json, version 1.
func (c *Cell) fillHeadlines(accepted []result.Trial) {
	f := c.Intervals
	c.DeliveredMbps, c.NsPerPacket, c.PSSMiB = f.DeliveredMbps.Mean, f.NsPerPacket.Mean, f.PSSMiB.Mean
	c.LossRatio, c.RetransmitRatio, c.SegmentsPerBurst = f.LossRatio.Mean, f.RetransmitRatio.Mean, f.SegmentsPerBurst.Mean
	c.CPUNormalisedPct = f.CPUNormalisedPct.Mean
	c.IncreasePct = Number(100 * (over(float64(c.CPUNormalisedPct), float64(f.CleanCPUNormalisedPct.Mean)) - 1))
	if over(float64(f.LinkMbps.Mean), float64(c.OfferedMbps)) < enoughBandwidth {
		c.Flags = append(c.Flags, Tally{FlagShortfall, c.Pairs})
	}
	c.RTT = medianRTT(accepted, func(t result.Trial) result.RTT { return t.DUT.RTT })
	c.CleanRTT = medianRTT(accepted, func(t result.Trial) result.RTT { return t.Clean.RTT })
}

func medianRTT(trials []result.Trial, of func(result.Trial) result.RTT) RTT {
	var p50, p99 []float64
	for _, t := range trials {
		p50 = append(p50, positive(of(t).P50))
		p99 = append(p99, positive(of(t).P99))
	}
	return RTT{P50: Number(median(p50)), P99: Number(median(p99))}
}

// noiseFloor treats the A/A pairs as if the second clean router were a DUT.
// Blocks of different numbers of clients, directions or profiles count apart.
func noiseFloor(trials []result.Trial, opts Options) AA {
	var accepted []result.Trial
	aa := AA{}
	for _, t := range trials {
		if t.Accepted {
			accepted = append(accepted, t)
		} else {
			aa.Rejected++
		}
	}
	blocks := byBlock(accepted)
	logs := perBlock(blocks, logRatio, mean)
	aa.Pairs, aa.Blocks = len(accepted), len(blocks)
	aa.Rejects = rejectReasons(trials)
	aa.Ratio, aa.SDLog = changes.estimate(logs, opts.Confidence).geometric(), spread(logs)
	return aa
}

// byBlock groups trials by the labs they were measured in. A block spans the
// loads of a cell's sweep, so the load is not part of its identity; labs end with
// a sitting, so what a resume adds to an interrupted block is a block of its own.
func byBlock(trials []result.Trial) [][]result.Trial {
	type identity struct {
		cell    result.Cell
		block   int
		sitting int
	}
	groups := map[identity][]result.Trial{}
	for _, t := range trials {
		id := identity{withoutLoad(t.Cell), t.Block, t.Sitting}
		groups[id] = append(groups[id], t)
	}
	ids := slices.SortedFunc(maps.Keys(groups), func(a, b identity) int {
		return cmp.Or(compareCells(a.cell, b.cell), cmp.Compare(a.block, b.block), cmp.Compare(a.sitting, b.sitting))
	})
	out := make([][]result.Trial, 0, len(ids))
	for _, id := range ids {
		out = append(out, groups[id])
	}
	return out
}

// perBlock makes one value a block from its windows.
func perBlock(blocks [][]result.Trial, of func(result.Trial) float64, centre func([]float64) float64) []float64 {
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

// withoutLoad is what the cells measured in one block have in common.
func withoutLoad(cell result.Cell) result.Cell {
	cell = cell.Without(result.OfferedMbps)
	return cell
}

// blockTimes estimates what is known once a block, from blocks that came to
// their end, by cell without its load.
func blockTimes(blocks []result.Block, opts Options) map[result.Cell]BlockTimes {
	ended := map[result.Cell][]result.Block{}
	for _, b := range blocks {
		if b.Error == "" && b.Broke == "" && !b.AA {
			key := result.NewCell(result.DUT, b.DUT, result.Clients, b.Clients, result.Direction, b.Direction, result.Profile, b.Profile)
			ended[key] = append(ended[key], b)
		}
	}
	out := map[result.Cell]BlockTimes{}
	for key, list := range ended {
		out[key] = timesOf(list, opts)
	}
	return out
}

// unknownTimes are those of a cell none of whose blocks came to its end.
func unknownTimes() BlockTimes { return timesOf(nil, Options{}.withDefaults()) }

func timesOf(blocks []result.Block, opts Options) BlockTimes {
	var f BlockTimes
	for _, fig := range blockFigureTable {
		values := make([]float64, 0, len(blocks))
		for _, b := range blocks {
			values = append(values, fig.of(b))
		}
		*fig.field(&f) = amounts.estimate(values, opts.Confidence)
	}
	return f
}

// rejectReasons counts the reasons of rejected trials, most frequent first.
// "generator at 83 %" and "generator at 91 %" are one reason.
func rejectReasons(trials []result.Trial) []Tally {
	count := tally{}
	for _, t := range trials {
		count.addRejects(t.Accepted, t.Rejects)
	}
	return count.sorted()
}

// addRejects counts the reasons of a rejected trial.
func (t tally) addRejects(accepted bool, rejects []string) {
	if accepted {
		return
	}
	if len(rejects) == 0 {
		t.add("no reason recorded", "no reason recorded")
	}
	for _, reason := range rejects {
		t.add(result.WithoutFigures(reason), reason)
	}
}

// flags counts the remarks on accepted trials.
func flags(accepted []result.Trial) []Tally {
	count := tally{}
	for _, t := range accepted {
		for _, flag := range t.Flags {
			count.add(flag, flag)
		}
		if math.IsNaN(logRatio(t)) {
			count.add(FlagNoRatio, FlagNoRatio)
		}
	}
	return count.sorted()
}

// tally counts texts that share a key, and keeps the first of each.
type tally map[string]*Tally

func (t tally) add(key, text string) {
	if t[key] == nil {
		t[key] = &Tally{Text: text}
	}
	t[key].Count++
}

func (t tally) sorted() []Tally {
	out := make([]Tally, 0, len(t))
	for _, entry := range t {
		out = append(out, *entry)
	}
	slices.SortFunc(out, func(a, b Tally) int {
		return cmp.Or(-cmp.Compare(a.Count, b.Count), cmp.Compare(a.Text, b.Text))
	})
	return out
}

// label names a cell in warnings.
func (c Cell) label() string {
	return fmt.Sprintf("%s at %s Mbit/s %s with %s", c.DUT, c.OfferedMbps, c.Direction, plural(c.Clients, "client"))
}
