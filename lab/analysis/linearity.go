package analysis

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
)

// Linearity describes how a router's CPU depends on the bandwidth that it carried. Each block
// has one fit of sampled CPU over sampled Gbit/s. Saturated levels are left out.
type Linearity struct {
	Slope     Estimate `json:"slope"`     // % of a core per Gbit/s
	Intercept Estimate `json:"intercept"` // % of a core
	R2        Number   `json:"r2"`        // of the straight line through the level means
	// Exponent is b in CPU = a·bandwidth^b: 1 is proportional.
	Exponent Estimate `json:"exponent"`
	// BendAt is the lowest level whose CPU differs from the line through the lower levels by more than δ. The
	// difference must also be significant for all levels together. Absent: no level differs so.
	BendAt     Number   `json:"bend_at"`
	BendPct    Estimate `json:"bend_pct"`    // difference at BendAt, % of the CPU on the line
	LevelsUsed int      `json:"levels_used"` // number of levels in the fit
	LevelsLeft []Number `json:"levels_left"` // saturated levels, which are not in the fit
}

// fewestLevels is the least number of levels that can tell a straight line from a bent one.
const fewestLevels = 3

// linearity fits one line a block to the row's levels that are not saturated. It returns nil with fewer than 3 of them.
func (r row) linearity(opts Options) *Linearity {
	l := Linearity{LevelsLeft: []Number{}, BendAt: Absent(), BendPct: Unknown()}
	var levels [][]blockMean
	for _, level := range r.levels {
		if r.saturated(level) {
			l.LevelsLeft = append(l.LevelsLeft, Number(r.valueAt(level)))
		} else {
			levels = append(levels, level)
		}
	}
	if l.LevelsUsed = len(levels); l.LevelsUsed < fewestLevels {
		return nil
	}
	curves := r.curves(levels)
	moves := spansOf(levels, func(level []blockMean) span { return r.moved(level).cpu })
	estimate := func(figure func(curve) float64) Estimate {
		return Changes.Estimate(each(curves, figure), opts.Confidence).widened(swingOf(curves, levels, moves, figure))
	}
	l.Slope = estimate(func(c curve) float64 { _, slope := c.line(); return slope })
	l.Intercept = estimate(func(c curve) float64 { intercept, _ := c.line(); return intercept })
	l.Exponent = estimate(curve.exponent)
	var means curve
	for _, level := range levels {
		size := r.mean(level, cpu)
		means = append(means, point{r.valueAt(level), r.mean(level, link) / 1000, size, size})
	}
	gbits, used, _ := means.columns()
	l.R2 = Number(finite(stat.RSquared(gbits, used, nil, float64(l.Intercept.Mean), float64(l.Slope.Mean))))
	l.bend(levels, curves, moves, opts)
	return &l
}

// point is the CPU of a router at one level. level is Mbit/s offered, gbits is Gbit/s sampled,
// cpu is % of one core. size is the mean CPU at the level over all blocks. Errors are divided
// by size, so that every level counts by its relative error.
type point struct{ level, gbits, cpu, size float64 }

// curve has the points of one block, in the order of the levels.
type curve []point

// curves returns one curve for each block that has at least three of the levels.
func (r row) curves(levels [][]blockMean) (out []curve) {
	sizes := map[float64]float64{}
	for _, level := range levels {
		sizes[r.valueAt(level)] = r.mean(level, cpu)
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

// scaled returns the curve with the CPU at each level multiplied by the level's factor. The weights stay as they are.
func (c curve) scaled(factors map[float64]float64) curve {
	out := slices.Clone(c)
	for i := range out {
		out[i].cpu *= factors[out[i].level]
	}
	return out
}

// swingOf returns the swing of a figure's mean over the curves. moves has the span of each level's CPU.
func swingOf(curves []curve, levels [][]blockMean, moves []span, figure func(curve) float64) span {
	return swing(moves, func(factors []float64) float64 {
		factorOf := map[float64]float64{}
		for i, level := range levels {
			factorOf[level[0].offered()] = factors[i]
		}
		return mean(each(curves, func(c curve) float64 { return figure(c.scaled(factorOf)) }))
	})
}

// line fits CPU = intercept + slope · Gbit/s by least squares of relative errors.
func (c curve) line() (intercept, slope float64) {
	gbits, cpu, weights := c.columns()
	intercept, slope = stat.LinearRegression(gbits, cpu, weights, false)
	return finite(intercept), finite(slope)
}

// exponent fits b in CPU = a·bandwidth^b by a straight line through the logarithms.
func (c curve) exponent() float64 {
	x, y := each(c, func(p point) float64 { return math.Log(p.gbits) }),
		each(c, func(p point) float64 { return math.Log(p.cpu) })
	_, b := stat.LinearRegression(x, y, nil, false)
	return finite(b)
}

// departure returns the difference between the block's CPU at a level and the line through the
// lower levels, as a share of the CPU on the line. It returns NaN where the block lacks the
// level or has fewer than two lower ones.
func (c curve) departure(level float64) float64 {
	i := slices.IndexFunc(c, func(p point) bool { return p.level == level })
	if i < fewestLevels-1 {
		return math.NaN()
	}
	intercept, slope := c[:i].line()
	return Over(c[i].cpu, intercept+slope*c[i].gbits) - 1
}

// bend looks for the lowest level that differs from the line through the lower levels by more
// than δ, with an interval that leaves out 0. It tries every level from the third on, so it
// multiplies the p-value by the number of these levels (Bonferroni).
func (l *Linearity) bend(levels [][]blockMean, curves []curve, moves []span, opts Options) {
	chances := float64(len(levels) - fewestLevels + 1)
	for _, level := range levels[fewestLevels-1:] {
		offered := level[0].offered()
		departure := func(c curve) float64 { return c.departure(offered) }
		s := contrast{Sample: inference.SampleOf(each(curves, departure)), moved: swingOf(curves, levels, moves, departure)}
		if math.Abs(s.Mean) > opts.Delta && chances*s.pDifferent() <= 1-opts.Confidence {
			l.BendAt, l.BendPct = Number(offered), s.estimate(opts.Confidence).scaled(100)
			return
		}
	}
}
