package analysis

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
)

// Linearity says how a device's CPU follows the bandwidth it carried: fits of
// sampled CPU over sampled Gbit/s, one a block, saturated levels left out.
type Linearity struct {
	Slope     Estimate `json:"slope"`     // % of a core per Gbit/s
	Intercept Estimate `json:"intercept"` // % of a core
	R2        Number   `json:"r2"`        // of the straight line through the level means
	// Exponent is b in CPU = a·bandwidth^b: 1 is proportional.
	Exponent Estimate `json:"exponent"`
	// BendAt is the lowest level whose CPU departs from the line through the
	// levels below it by more than δ and, all levels taken together, by more than
	// its interval; absent: none does.
	BendAt     Number   `json:"bend_at"`
	BendPct    Estimate `json:"bend_pct"`    // how far it departs there, % of what the line says
	LevelsUsed int      `json:"levels_used"` // how many
	LevelsLeft []Number `json:"levels_left"` // out of the fit: saturated
}

// fewestLevels that can tell a straight line from a bent one.
const fewestLevels = 3

// linearity fits the row's usable levels, a line a block.
func (r row) linearity(opts Options) *Linearity {
	l := Linearity{LevelsLeft: []Number{}, BendAt: Absent(), BendPct: Unknown()}
	var levels [][]blockMean
	for _, level := range r.levels {
		if r.saturated(level) {
			l.LevelsLeft = append(l.LevelsLeft, Number(r.at(level)))
		} else {
			levels = append(levels, level)
		}
	}
	if l.LevelsUsed = len(levels); l.LevelsUsed < fewestLevels {
		return nil
	}
	curves := r.curves(levels)
	moves := spansOf(levels, func(level []blockMean) span { return r.moved(level).own })
	estimate := func(of func(curve) float64) Estimate {
		return Changes.Estimate(each(curves, of), opts.Confidence).widened(swingOf(curves, levels, moves, of))
	}
	l.Slope = estimate(func(c curve) float64 { _, slope := c.line(); return slope })
	l.Intercept = estimate(func(c curve) float64 { intercept, _ := c.line(); return intercept })
	l.Exponent = estimate(curve.exponent)
	var means curve
	for _, level := range levels {
		size := r.mean(level, cpu)
		means = append(means, point{r.at(level), r.mean(level, link) / 1000, size, size})
	}
	gbits, used, _ := means.columns()
	l.R2 = Number(finite(stat.RSquared(gbits, used, nil, float64(l.Intercept.Mean), float64(l.Slope.Mean))))
	l.bend(levels, curves, moves, opts)
	return &l
}

// point is the CPU of a router at one level; curve has the points of one block in the
// levels' order. size is the CPU at the level over all blocks: errors are divided by
// it, so that every level counts by its relative error.
type point struct{ level, gbits, cpu, size float64 }

type curve []point

// curves are the curves of the blocks with at least three of the levels.
func (r row) curves(levels [][]blockMean) (out []curve) {
	sizes := map[float64]float64{}
	for _, level := range levels {
		sizes[r.at(level)] = r.mean(level, cpu)
	}
	for _, block := range grouped(slices.Concat(levels...), func(b blockMean) blockID { return b.id }, nil) {
		var c curve
		for _, b := range block {
			if m := r.side(b); m[cpu] > 0 && m[link] > 0 {
				c = append(c, point{b.offered(), m[link] / 1000, m[cpu], sizes[b.offered()]})
			}
		}
		if len(c) >= fewestLevels {
			out = append(out, c)
		}
	}
	return out
}

func (c curve) columns() (gbits, cpu, weights []float64) {
	return each(c, func(p point) float64 { return p.gbits }), each(c, func(p point) float64 { return p.cpu }),
		each(c, func(p point) float64 { return 1 / (p.size * p.size) })
}

// scaled is the curve with the CPU at each level multiplied by a factor; errors are weighed as before.
func (c curve) scaled(factors map[float64]float64) curve {
	out := slices.Clone(c)
	for i := range out {
		out[i].cpu *= factors[out[i].level]
	}
	return out
}

// swingOf is the swing of a figure's mean over curves.
func swingOf(curves []curve, levels [][]blockMean, moves []span, of func(curve) float64) span {
	return swing(moves, func(factors []float64) float64 {
		at := map[float64]float64{}
		for i, level := range levels {
			at[level[0].offered()] = factors[i]
		}
		return mean(each(curves, func(c curve) float64 { return of(c.scaled(at)) }))
	})
}

// line is CPU = intercept + slope · Gbit/s, by least squares of relative errors.
func (c curve) line() (intercept, slope float64) {
	gbits, cpu, weights := c.columns()
	intercept, slope = stat.LinearRegression(gbits, cpu, weights, false)
	return finite(intercept), finite(slope)
}

// exponent is b in CPU = a·bandwidth^b, by a straight line through the logarithms.
func (c curve) exponent() float64 {
	x, y := each(c, func(p point) float64 { return math.Log(p.gbits) }),
		each(c, func(p point) float64 { return math.Log(p.cpu) })
	_, b := stat.LinearRegression(x, y, nil, false)
	return finite(b)
}

// departure is how far the block's CPU at a level lies from the line through the levels
// below, as a share of what the line says; NaN without the level or with fewer than
// two below.
func (c curve) departure(level float64) float64 {
	i := slices.IndexFunc(c, func(p point) bool { return p.level == level })
	if i < fewestLevels-1 {
		return math.NaN()
	}
	intercept, slope := c[:i].line()
	return Over(c[i].cpu, intercept+slope*c[i].gbits) - 1
}

// bend looks for the lowest level that departs from the line through those
// below it by more than δ, with an interval that leaves out 0. Every level from
// the third on is tried, so the p-value is multiplied by their number (Bonferroni).
func (l *Linearity) bend(levels [][]blockMean, curves []curve, moves []span, opts Options) {
	chances := float64(len(levels) - fewestLevels + 1)
	for _, level := range levels[fewestLevels-1:] {
		offered := level[0].offered()
		departure := func(c curve) float64 { return c.departure(offered) }
		s := contrast{Sample: inference.Of(each(curves, departure)), moved: swingOf(curves, levels, moves, departure)}
		if math.Abs(s.Mean) > opts.Delta && chances*s.pDifferent() <= 1-opts.Confidence {
			l.BendAt, l.BendPct = Number(offered), s.estimate(opts.Confidence).scaled(100)
			return
		}
	}
}
