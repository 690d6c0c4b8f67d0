package analysis

import (
	"cmp"
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Clean is the name of the clean router among the devices of a sweep.
const Clean = "clean"

// Sweep is one device over levels of one dimension, with the other dimensions fixed.
type Sweep struct {
	// Cell has the fixed dimensions. For the clean router its device is Clean, and the blocks of all devices are used.
	Cell  result.Cell      `json:"dimensions"`
	Along result.Dimension `json:"along"` // the dimension that it steps: offered_mbps or clients

	Levels     []Level     `json:"levels"`     // ascending
	Increments []Increment `json:"increments"` // one fewer than levels
	Spans      []Span      `json:"spans"`      // between levels that are not neighbours
	// Linearity is nil when the sweep has fewer than three levels below the router's limit.
	Linearity *Linearity `json:"linearity"`
	Trends    []Trend    `json:"lines,omitempty"` // of the metrics that the measure names, along loads
}

// Level has the CPU of a device at one point of a sweep.
type Level struct {
	Level         Number   `json:"level"`              // Mbit/s of payload, or clients
	LinkMbps      Estimate `json:"link_mbps"`          // sampled bandwidth
	CPUSampled    Estimate `json:"cpu_sampled_pct"`    // % of one core
	CPUNormalised Estimate `json:"cpu_normalised_pct"` // equation 5.1, % of one core
	// Shortfall is true if the sampled bandwidth is more than 10 % below the limit. The normalised figure then includes
	// CPU that the router never used.
	Shortfall bool `json:"shortfall"`
}

// Increment is the step in normalised CPU from one level to the next (study 1, tables 5.2-5.4 and 5.6-5.8). Where
// blocks have both levels, each block gives one difference. Levels of different blocks are compared by Welch's
// interval.
type Increment struct {
	From        Number   `json:"from"`         // level
	To          Number   `json:"to"`           // the next one
	NetPct      Estimate `json:"net_pct"`      // percentage points of one core
	RelativePct Estimate `json:"relative_pct"` // 100 (to/from - 1)
	// Proportion is relative CPU divided by relative level, (CPU to/from) / (level to/from). It is 1 if CPU grows in
	// proportion to the level, and above 1 if it grows faster.
	Proportion Estimate `json:"proportion"`
	// Verdict is Different if the interval of RelativePct excludes 0, Equivalent if it is within δ, and Inconclusive
	// otherwise. All increments are judged together.
	Verdict string `json:"verdict"`
	// RatioPct compares the overhead ratio at To with that at From. It is the additional cost of the step for the device
	// beyond that for the clean router. Unlike RelativePct it does not contain the machine's drift. It is absent for the
	// clean router.
	RatioPct Estimate `json:"ratio_pct"`
	// RatioVerdict is the verdict on RatioPct. It is empty for the clean router.
	RatioVerdict string `json:"ratio_verdict"`
	// Together and RatioTogether are RelativePct and RatioPct with the wider intervals for all increments together. They
	// are set where these intervals leave a verdict open although the interval of this increment alone does not. Otherwise
	// they are nil.
	Together      *Estimate `json:"together,omitempty"`
	RatioTogether *Estimate `json:"ratio_together,omitempty"`
}

// Span is an Increment between two levels that are not neighbours. It has no verdict, because the increments within it
// have verdicts.
type Span struct {
	From        Number   `json:"from"`         // level
	To          Number   `json:"to"`           // another one
	RelativePct Estimate `json:"relative_pct"` // change of normalised CPU
	RatioPct    Estimate `json:"ratio_pct"`    // absent for the clean router
}

// sweeps computes two kinds of sweep for each router: over loads for each number of clients, and over clients for each
// load. The clean router comes before the devices.
func (input Input) sweeps(routers []router, opts Options) []Sweep {
	out := []Sweep{}
	var all []step
	for _, r := range routers {
		for _, row := range append(rows(r, result.OfferedMbps), rows(r, result.Clients)...) {
			sweep, steps := row.sweep(opts)
			if row.along == result.OfferedMbps {
				sweep.Trends = row.trends(*input.Laws, opts)
			}
			out, all = append(out, sweep), append(all, steps...)
		}
	}
	judgeSteps(all, opts)
	// Readers find sweeps in the order of the cells, and sweeps over loads before those over clients.
	slices.SortStableFunc(out, func(a, b Sweep) int {
		setting := func(s Sweep) result.Cell { return blockMean{cell: s.Cell}.setting() }
		return cmp.Or(input.Compare(setting(a), setting(b)), -cmp.Compare(a.Along, b.Along))
	})
	return out
}

// step is one increment before it is judged, with its log ratios.
type step struct {
	*Increment
	normalised contrast
	overhead   contrast // no sample for the clean router
}

// judgeSteps judges all increments of the run together, and all changes of the overhead ratio together.
func judgeSteps(steps []step, opts Options) {
	var normalised, overhead []contrast
	for _, s := range steps {
		normalised, overhead = append(normalised, s.normalised), append(overhead, s.overhead)
	}
	onRatio := judgeAll(overhead, opts)
	for i, v := range judgeAll(normalised, opts) {
		steps[i].Verdict, steps[i].Together = v.Word, percentTogether(v)
		if overhead[i].N > 0 {
			steps[i].RatioVerdict, steps[i].RatioTogether = onRatio[i].Word, percentTogether(onRatio[i])
		}
	}
}

// percentTogether returns the interval that left a verdict on a ratio open, as a change in per cent.
func percentTogether(v Verdict) *Estimate {
	if v.Together == nil {
		return nil
	}
	pct := v.Together.changePct()
	return &pct
}

// row has one router's block means along one dimension. levels has one list of block means for each level.
type row struct {
	router
	along  result.Dimension
	levels [][]blockMean
}

// rows returns a router's rows that have at least two levels.
func rows(r router, along result.Dimension) []row {
	fixed := func(b blockMean) result.Cell { return b.cell.Without(result.DUT, along) }
	var out []row
	for _, means := range grouped(r.means, fixed, r.compare) {
		if levels := r.byCell(means); len(levels) > 1 {
			out = append(out, row{r, along, levels})
		}
	}
	return out
}

// valueAt returns the value of a level along the row: Mbit/s or clients.
func (r row) valueAt(level []blockMean) float64 { return level[0].cell.Number(r.along) }

// sweep computes the row's sweep. Its increments have no verdicts yet.
func (r row) sweep(opts Options) (Sweep, []step) {
	s := Sweep{Cell: r.levels[0][0].cell.Without(r.along).With(result.DUT, r.name), Along: r.along, Levels: []Level{}}
	if r.along == result.OfferedMbps {
		s.Linearity = r.linearity(opts)
	}
	s.Increments = make([]Increment, len(r.levels)-1)
	var steps []step
	for i, level := range r.levels {
		s.Levels = append(s.Levels, Level{
			Level:         Number(r.valueAt(level)),
			LinkMbps:      Amounts.Estimate(r.values(level, link), opts.Confidence),
			CPUSampled:    Amounts.Estimate(r.values(level, cpu), opts.Confidence),
			CPUNormalised: Amounts.Estimate(r.values(level, normalised), opts.Confidence),
			Shortfall:     r.shortfall(level),
		})
		if i > 0 {
			next := r.step(r.levels[i-1], level, &s.Increments[i-1], opts)
			steps = append(steps, next)
		}
	}
	s.Spans = r.spans(opts)
	return s, steps
}

// spans returns the spans between all levels that are not neighbours.
func (r row) spans(opts Options) []Span {
	out := []Span{}
	for i := range r.levels {
		for j := i + 2; j < len(r.levels); j++ {
			var inc Increment
			r.step(r.levels[i], r.levels[j], &inc, opts)
			out = append(out, Span{inc.From, inc.To, inc.RelativePct, inc.RatioPct})
		}
	}
	return out
}

// step compares two levels. A block that has both levels gives one difference, because its start shifts both levels
// alike. One such block alone has no spread, so if there are other blocks, all of them are compared as independent
// ones.
func (r row) step(from, to []blockMean, into *Increment, opts Options) step {
	first := map[blockID]blockMean{}
	for _, b := range from {
		first[b.id] = b
	}
	both := without(to, func(b blockMean) bool { _, held := first[b.id]; return !held })
	apart := len(both) == 0 || len(both) == 1 && len(from)+len(to) > 2
	compare := func(figure func(blockMean) float64) inference.Sample {
		if apart {
			return inference.Welch(each(from, figure), each(to, figure))
		}
		return inference.SampleOf(each(both, func(b blockMean) float64 { return figure(b) - figure(first[b.id]) }))
	}
	before, now := r.moved(from), r.moved(to)
	s := step{
		Increment: into,
		normalised: contrast{compare(func(b blockMean) float64 { return finite(math.Log(r.side(b)[normalised])) }),
			opts.limit(), now.cpu.less(before.cpu)},
		overhead: contrast{Sample: inference.None()},
	}
	if r.name != Clean {
		s.overhead = contrast{
			compare(func(b blockMean) float64 { return b.logRatio }), opts.limit(), now.ratio.less(before.ratio)}
	}
	ratio := s.normalised.estimate(opts.Confidence)
	net := contrast{Sample: compare(func(b blockMean) float64 { return r.side(b)[normalised] }), moved: r.points(to,
		now).less(r.points(from, before))}
	*into = Increment{
		From: Number(r.valueAt(from)), To: Number(r.valueAt(to)),
		NetPct:      net.estimate(opts.Confidence),
		RelativePct: ratio.changePct(),
		Proportion:  ratio.geometric().scaled(Over(r.valueAt(from), r.valueAt(to))),
		RatioPct:    s.overhead.estimate(opts.Confidence).changePct(),
	}
	return s
}

// points returns the possible effect of noise on a level's CPU, percentage points of one core.
func (r row) points(level []blockMean, m moved) span {
	pct := r.mean(level, normalised)
	return span{-pct * math.Expm1(-m.cpu.down), pct * math.Expm1(m.cpu.up)}
}
