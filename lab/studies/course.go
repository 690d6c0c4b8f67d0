package studies

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// measuredCourse has the figures of one router along a dimension, from a run or from the study.
type measuredCourse struct {
	cell    result.Cell // all dimensions except the one it varies
	levels  []float64   // ascending
	figures map[point]analysis.Estimate
	flags   map[float64][]string // weaknesses of a level's figures; see Value
	// rises are increases of normalised CPU, computed block by block. nil: increases are computed from the figures, as for
	// other metrics.
	rises  map[levelStep]increase
	curves map[float64][]analysis.CurvePoint // Sweep.Course, by level
	fits   string                            // results of fits over all levels, as the end of a sentence
	lines  map[string]analysis.Trend         // by metric
}

// point is a metric at a level.
type point struct {
	metric string
	at     float64
}

// levelStep is a step from one level to another.
type levelStep struct{ from, to float64 }

func (s levelStep) levels() []float64 { return []float64{s.from, s.to} }

// increase is the change of a metric from one level to another.
type increase struct {
	Net      analysis.Estimate
	Relative analysis.Estimate // per cent
	// Beside is the increase of the overhead ratio, per cent. The clean router runs on the same machine at the same time,
	// so the machine's drift between blocks does not affect the ratio. It is absent for the clean router.
	Beside analysis.Estimate
}

func newCourse(cell result.Cell) *measuredCourse {
	return &measuredCourse{cell: cell, figures: map[point]analysis.Estimate{}, flags: map[float64][]string{},
		curves: map[float64][]analysis.CurvePoint{}}
}

func (c measuredCourse) profile() string { return c.cell.Text(result.Profile) }

func (c measuredCourse) hasLevel(level float64) bool { return slices.Contains(c.levels, level) }

// setMetric sets a metric at a level. It does nothing if the estimate is unknown or the metric is already set.
func (c *measuredCourse) setMetric(metric string, level float64, e analysis.Estimate) {
	if !e.Mean.Known() {
		return
	}
	if !c.hasLevel(level) {
		c.levels = slices.Sorted(slices.Values(append(c.levels, level)))
	}
	if _, found := c.figures[point{metric, level}]; !found {
		c.figures[point{metric, level}] = e
	}
}

func (c *measuredCourse) flag(level float64, text string) {
	c.flags[level] = slices.Compact(slices.Sorted(slices.Values(append(c.flags[level], text))))
}

// estimate returns a metric at a level.
func (c measuredCourse) estimate(m Metric, level float64) analysis.Estimate {
	if e, ok := c.figures[point{m.Name, level}]; ok {
		return e
	}
	return analysis.Unknown()
}

// increaseOn returns the increase between two levels. There may be levels in between. If the increase is not computed
// block by block, its bounds are the widest that the bounds at the two levels allow.
func (c measuredCourse) increaseOn(m Metric, st levelStep) (increase, bool) {
	if c.rises != nil && m.Name == cost.Normalised {
		inc, ok := c.rises[st]
		return inc, ok
	}
	a, b := c.estimate(m, st.from), c.estimate(m, st.to)
	net := analysis.Estimate{Mean: b.Mean - a.Mean, Lo: b.Lo - a.Hi, Hi: b.Hi - a.Lo, N: min(a.N, b.N)}
	return increase{net, percentOf(quotient(b, a)), analysis.Unknown()}, net.Mean.Known()
}

// stepRise returns the increase on a step without measured levels in between. ok is false if the device did not carry
// the load at both ends.
func (c measuredCourse) stepRise(m Metric, st levelStep) (increase, bool) {
	inc, ok := c.increaseOn(m, st)
	return inc, ok && !c.hasLevelsWithin(st) && c.carries(st.from) && c.carries(st.to)
}

// hasLevelsWithin reports whether the course has levels within a step.
func (c measuredCourse) hasLevelsWithin(st levelStep) bool {
	return slices.ContainsFunc(c.levels, func(level float64) bool { return st.from < level && level < st.to })
}

// factor returns the metric at the second level of a step divided by the metric at the first.
func (c measuredCourse) factor(m Metric, st levelStep) analysis.Estimate {
	if inc, ok := c.increaseOn(m, st); ok {
		return ratioOf(inc.Relative)
	}
	return analysis.Unknown()
}

// atLimit reports whether the device could not carry the load of a level. Its cost there is not the cost of the whole
// load.
func (c measuredCourse) atLimit(level float64) bool {
	return c.flagged(result.FlagSaturated)(level) || c.flagged(cost.FlagShortfall)(level)
}

func (c measuredCourse) flagged(flag string) func(level float64) bool {
	return func(level float64) bool { return slices.Contains(c.flags[level], flag) }
}

func (c measuredCourse) carries(level float64) bool { return c.hasLevel(level) && !c.atLimit(level) }

// run is a summary with its name in sentences.
type run struct {
	analysis.Summary
	Label string
	held  []measuredCourse // the run's courses along one sweep
}

// labelled names runs by their experiments. Runs of the same experiment are numbered.
func labelled(summaries []analysis.Summary) []run {
	count := map[string]int{}
	for _, s := range summaries {
		count[s.Experiment]++
	}
	var out []run
	for i, s := range summaries {
		place := words.When(count[s.Experiment] > 1, fmt.Sprintf(" (run %d)", i+1))
		out = append(out,
			run{s, s.Experiment + place + words.When(s.Mode == result.ModeSolo && s.Primary != "", ", solo"), nil})
	}
	return out
}

// courses returns the courses of the run's routers along a sweep's dimension, at any value of Held, each with two or
// more levels. Courses in the preferred profile come first. The summary's sweeps have precedence over its cells,
// because in sweeps the clean router has the blocks of all devices.
func (r run) courses(s Sweep) []measuredCourse {
	byCell := map[result.Cell]*measuredCourse{}
	courseOf := func(cell result.Cell, dut string) *measuredCourse {
		cell = besideStudy(cell.Without(s.Along).With(result.DUT, dut))
		if byCell[cell] == nil {
			byCell[cell] = newCourse(cell)
		}
		return byCell[cell]
	}
	for _, sweep := range r.Sweeps {
		if sweep.Along == s.Along {
			courseOf(sweep.Cell, sweep.Cell.Text(result.DUT)).addSweep(sweep)
		}
	}
	for _, cell := range r.Cells {
		if cell.HasDimension(s.Along) && (s.Along != result.LinkMbps || cell.Number(s.Along) > 0) {
			// a link without a limit is not a level
			s.addCell(cell, courseOf(cell.Cell, cell.DUT()), courseOf(cell.Cell, analysis.Clean))
		}
	}
	var out []measuredCourse
	for cell, c := range byCell {
		if (len(c.levels) > 1 || s.Free && len(c.levels) > 0) && s.holds(cell, s.Held) {
			out = append(out, *c)
		}
	}
	// The preferred profile sorts first, because its name is removed for the comparison.
	slices.SortFunc(out, func(a, b measuredCourse) int {
		return cmp.Compare(strings.TrimPrefix(a.profile(), s.Prefer), strings.TrimPrefix(b.profile(), s.Prefer))
	})
	return out
}

// besideStudy returns a cell as a study has it, without a family: the studies are of IPv4. Of another family its device
// is a further one, "allowlist, IPv6", which tables show beside the study's.
func besideStudy(cell result.Cell) result.Cell {
	v, ok := cell.Value(result.Family)
	if !ok {
		return cell
	}
	if v.Text != studyFamily {
		cell = cell.With(result.DUT, cell.Text(result.DUT)+beforeFamily+analysis.Family.Say(v))
	}
	return cell.Without(result.Family)
}

// studyFamily is the family of the studies' clients.
const studyFamily = "4"

// beforeFamily stands between a device and its family (besideStudy). No device has it in its name.
const beforeFamily = ", "

// isRouter reports whether a device of besideStudy is the router of that name, with clients of any family.
func isRouter(dut, name string) bool { return dut == name || strings.HasPrefix(dut, name+beforeFamily) }

// holds reports whether a course has the sweep's fixed dimensions, without some of them. In a free sweep the course may
// lack any of them except Held, because devices have no dimension for what does not concern them.
func (s Sweep) holds(cell result.Cell, less ...result.Dimension) bool {
	ownCell := cell.Without(result.DUT, result.Profile)
	if !s.Free {
		return ownCell.Without(less...) == s.Fixed.Without(less...)
	}
	var dimensions []result.Dimension
	for _, v := range ownCell.Values() {
		dimensions = append(dimensions, v.Dimension)
	}
	return ownCell == s.Fixed.Only(dimensions...) &&
		ownCell.HasDimension(result.FrameSize) == s.Fixed.HasDimension(result.FrameSize) &&
		(s.Needs == "" || ownCell.HasDimension(s.Needs)) && (s.Held == "" || ownCell.HasDimension(s.Held))
}

// addCell adds the sweep's metrics of a cell to the courses of its device and of the clean router.
func (s Sweep) addCell(cell analysis.Cell, device, clean *measuredCourse) {
	level := cell.Number(s.Along)
	for _, m := range s.Metrics {
		if m.Change != "" {
			device.setMetric(m.Name, level, cell.Change(m.Change))
		} else {
			device.setMetric(m.Name, level, cell.Device(m.Name))
			clean.setMetric(m.Name, level, cell.Clean(m.Name))
		}
	}
	if s.Course != "" {
		device.curves[level] = cell.Curves[s.Course]
	}
	for _, flag := range cell.Flags {
		if flag.Text == result.FlagSaturated && cost.AtLimit(cell) || flag.Text == cost.FlagShortfall ||
			flag.Text == result.FlagLossy && 2*flag.Count >= cell.Pairs {
			device.flag(level, flag.Text)
		}
	}
}

// addSweep adds a router's figures at all levels, the increases between levels, and fits.
func (c *measuredCourse) addSweep(sweep analysis.Sweep) {
	for _, l := range sweep.Levels {
		level := float64(l.Level)
		c.setMetric("cpu_sampled_pct", level, l.CPUSampled)
		c.setMetric(cost.Normalised, level, l.CPUNormalised)
		c.setMetric(cost.Link, level, l.LinkMbps)
		if l.Shortfall {
			c.flag(level, cost.FlagShortfall)
		}
	}
	c.rises = map[levelStep]increase{}
	for _, inc := range sweep.Increments {
		c.rises[levelStep{float64(inc.From), float64(inc.To)}] = increase{inc.NetPct, inc.RelativePct, inc.RatioPct}
	}
	for _, s := range sweep.Spans {
		c.rises[levelStep{float64(s.From), float64(s.To)}] = increase{analysis.Unknown(), s.RelativePct, s.RatioPct}
	}
	c.lines = map[string]analysis.Trend{}
	for _, l := range sweep.Trends {
		c.lines[l.Metric] = l
	}
	if l := sweep.Linearity; l != nil {
		bend := fmt.Sprintf("; at %g Mbit/s it departs from the line below by %s %%",
			float64(l.BendAt), meanWithInterval(l.BendPct))
		c.fits = fmt.Sprintf("; over %d levels, R² of the straight line is %.4f and the exponent of bandwidth %s",
			l.LevelsUsed, float64(l.R2), meanWithInterval(l.Exponent)) + words.When(l.BendAt.Known(), bend)
	}
}

// cpus returns the number of CPUs of the run's machine. It divides router CPU in per cent of a core by router CPU in
// per cent of the machine. 0: not known.
func (r run) cpus() int {
	for _, c := range r.Cells {
		if n := float64(c.Device(cost.CPU).Mean / c.Device(cost.CPUMachinePct).Mean); n >= 0.5 && !math.IsInf(n, 0) {
			return int(math.Round(n))
		}
	}
	return 0
}
