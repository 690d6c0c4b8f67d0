package analysis

import (
	"cmp"
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Clean is the name the clean router carries among the devices of a sweep.
const Clean = "clean"

// Sweep is one device over levels of one dimension, with the other dimensions fixed.
type Sweep struct {
	// Cell has the dimensions that are fixed; its device is Clean for the clean
	// router, over the blocks of all devices.
	Cell  result.Cell      `json:"dimensions"`
	Along result.Dimension `json:"along"` // the dimension that it steps: offered_mbps or clients

	Levels     []Level     `json:"levels"`     // ascending
	Increments []Increment `json:"increments"` // one fewer than levels
	Spans      []Span      `json:"spans"`      // between levels that are not neighbours
	// Linearity is nil when the sweep has fewer than three usable levels.
	Linearity *Linearity `json:"linearity"`
	Trends    []Trend    `json:"lines,omitempty"` // of the metrics that the measure names, along loads
}

// Level is what a device cost at one point of a sweep.
type Level struct {
	Level         Number   `json:"level"`              // Mbit/s of payload, or clients
	LinkMbps      Estimate `json:"link_mbps"`          // sampled bandwidth
	CPUSampled    Estimate `json:"cpu_sampled_pct"`    // % of one core
	CPUNormalised Estimate `json:"cpu_normalised_pct"` // equation 5.1, % of one core
	// Shortfall marks a sampled bandwidth more than 10 % below the limit: the
	// normalised figure then includes CPU that the router never used.
	Shortfall bool `json:"shortfall"`
}

// Increment is the step from one level to the next (study 1, tables 5.2-5.4
// and 5.6-5.8), of normalised CPU. Blocks that hold both levels are paired;
// levels of different blocks are compared by Welch's interval.
type Increment struct {
	From        Number   `json:"from"`         // level
	To          Number   `json:"to"`           // the next one
	NetPct      Estimate `json:"net_pct"`      // percentage points of one core
	RelativePct Estimate `json:"relative_pct"` // 100 (to/from - 1)
	// Proportion is relative CPU over relative level, (CPU to/from) / (level
	// to/from): 1 is proportional, above 1 more than proportional.
	Proportion Estimate `json:"proportion"`
	// Verdict is Different when RelativePct leaves out 0, Equivalent when it
	// lies within δ, else Inconclusive; over all increments taken together.
	Verdict string `json:"verdict"`
	// RatioPct is the overhead ratio at To over that at From: the cost of the step for the
	// device beyond its cost for the clean router. The machine's drift, which RelativePct
	// contains, cancels. Absent for the clean router.
	RatioPct Estimate `json:"ratio_pct"`
	// RatioVerdict is the verdict on RatioPct; empty for the clean router.
	RatioVerdict string `json:"ratio_verdict"`
	// Together and RatioTogether are RelativePct and RatioPct with the intervals that left the verdicts open, of all
	// increments together, where the intervals of this one would have given one; nil elsewhere.
	Together      *Estimate `json:"together,omitempty"`
	RatioTogether *Estimate `json:"ratio_together,omitempty"`
}

// Span is an Increment from one level to a level beyond the next. It has no verdict: the
// increments within it have theirs.
type Span struct {
	From        Number   `json:"from"`         // level
	To          Number   `json:"to"`           // another one
	RelativePct Estimate `json:"relative_pct"` // change of normalised CPU
	RatioPct    Estimate `json:"ratio_pct"`    // absent for the clean router
}

// sweeps steps through the loads of each number of clients and the clients of
// each load, the clean router before the devices.
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
	// As readers look for them: like the cells, loads before clients.
	slices.SortStableFunc(out, func(a, b Sweep) int {
		setting := func(s Sweep) result.Cell { return blockMean{cell: s.Cell}.setting() }
		return cmp.Or(input.Compare(setting(a), setting(b)), -cmp.Compare(a.Along, b.Along))
	})
	return out
}

// step is one increment before it is judged: its log ratios.
type step struct {
	*Increment
	normalised contrast
	overhead   contrast // none for the clean router
}

// judgeSteps takes all increments of the run together, and all changes of the
// overhead ratio.
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

// percentTogether is the interval that left a verdict on a ratio open, as a change in per cent.
func percentTogether(v Verdict) *Estimate {
	if v.Together == nil {
		return nil
	}
	pct := v.Together.changePct()
	return &pct
}

// row is one router's block means along one quantity, a list a level.
type row struct {
	router
	along  result.Dimension
	levels [][]blockMean
}

// rows are a router's rows with at least two levels.
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

// at is the value of a level along the row.
func (r row) at(level []blockMean) float64 { return level[0].cell.Number(r.along) }

// sweep computes the row; its increments are still to be judged.
func (r row) sweep(opts Options) (Sweep, []step) {
	s := Sweep{Cell: r.levels[0][0].cell.Without(r.along).With(result.DUT, r.name), Along: r.along, Levels: []Level{}}
	if r.along == result.OfferedMbps {
		s.Linearity = r.linearity(opts)
	}
	s.Increments = make([]Increment, len(r.levels)-1)
	var steps []step
	for i, level := range r.levels {
		s.Levels = append(s.Levels, Level{
			Level:         Number(r.at(level)),
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

// spans are the spans between all levels that are not neighbours.
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

// step compares two levels. Blocks that hold both have their own start, which
// shifts both alike, so each gives one difference. A single such block among
// others has no spread: then all blocks are compared as if none held both.
func (r row) step(from, to []blockMean, into *Increment, opts Options) step {
	first := map[blockID]blockMean{}
	for _, b := range from {
		first[b.id] = b
	}
	both := without(to, func(b blockMean) bool { _, held := first[b.id]; return !held })
	apart := len(both) == 0 || len(both) == 1 && len(from)+len(to) > 2
	compare := func(of func(blockMean) float64) inference.Sample {
		if apart {
			return inference.Welch(each(from, of), each(to, of))
		}
		return inference.Of(each(both, func(b blockMean) float64 { return of(b) - of(first[b.id]) }))
	}
	before, now := r.moved(from), r.moved(to)
	s := step{
		Increment: into,
		normalised: contrast{compare(func(b blockMean) float64 { return finite(math.Log(r.side(b)[normalised])) }),
			opts.limit(), now.own.less(before.own)},
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
		From: Number(r.at(from)), To: Number(r.at(to)),
		NetPct:      net.estimate(opts.Confidence),
		RelativePct: ratio.changePct(),
		Proportion:  ratio.geometric().scaled(Over(r.at(from), r.at(to))),
		RatioPct:    s.overhead.estimate(opts.Confidence).changePct(),
	}
	return s
}

// points is what noise may have done to a level's CPU, percentage points of one core.
func (r row) points(level []blockMean, m moved) span {
	pct := r.mean(level, normalised)
	return span{-pct * math.Expm1(-m.own.down), pct * math.Expm1(m.own.up)}
}
