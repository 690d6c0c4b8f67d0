package analysis

import (
	"math"

	"gonum.org/v1/gonum/stat"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
	"github.com/gateweigh/gateweigh/lab/result"
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
	BendPct    Estimate `json:"bend_pct"` // how far it departs there, % of what the line says
	LevelsUsed int      `json:"levels_used"`
	LevelsLeft []Number `json:"levels_left"` // out of the fit: saturated
}

// fewestLevels of a straight line that could also be bent.
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
	var slopes, intercepts, exponents []float64
	for _, c := range curves {
		line := c.line()
		slopes, intercepts = append(slopes, line.slope), append(intercepts, line.intercept)
		exponents = append(exponents, c.exponent())
	}
	l.Slope, l.Intercept = Changes.Estimate(slopes, opts.Confidence), Changes.Estimate(intercepts, opts.Confidence)
	l.Exponent = Changes.Estimate(exponents, opts.Confidence)
	l.R2 = Number(r.meanCurve(levels).rSquared(line{float64(l.Slope.Mean), float64(l.Intercept.Mean)}))
	l.bend(levels, curves, opts)
	return &l
}

// curve is CPU (% of a core) over bandwidth (Gbit/s on the link), by level.
// weights divide the errors: the size of CPU at each level, over all blocks, so
// that every level counts by its relative error.
type curve struct {
	level, gbits, cpu, weights []float64
}

// line is CPU = intercept + slope · Gbit/s.
type line struct{ slope, intercept float64 }

// curves are those of the blocks that hold at least three of the levels.
func (r row) curves(levels [][]blockMean) []curve {
	byBlock := map[blockID]*curve{}
	var order []blockID
	for _, level := range levels {
		size := mean(r.values(level, routerMean.cpu))
		for _, b := range level {
			if byBlock[b.id] == nil {
				byBlock[b.id] = &curve{}
				order = append(order, b.id)
			}
			if m := r.side(b); m.cpuPct > 0 && m.linkMbps > 0 {
				byBlock[b.id].add(r.at(level), m.linkMbps/1000, m.cpuPct, size)
			}
		}
	}
	var out []curve
	for _, id := range order {
		if c := byBlock[id]; len(c.cpu) >= fewestLevels {
			out = append(out, *c)
		}
	}
	return out
}

// meanCurve goes through the means of the levels.
func (r row) meanCurve(levels [][]blockMean) curve {
	var c curve
	for _, level := range levels {
		cpu := mean(r.values(level, routerMean.cpu))
		c.add(r.at(level), mean(r.values(level, routerMean.link))/1000, cpu, cpu)
	}
	return c
}

func (c *curve) add(level, gbits, cpu, size float64) {
	c.level, c.gbits = append(c.level, level), append(c.gbits, gbits)
	c.cpu, c.weights = append(c.cpu, cpu), append(c.weights, 1/(size*size))
}

// line is the least-squares line by relative errors.
func (c curve) line() line {
	intercept, slope := stat.LinearRegression(c.gbits, c.cpu, c.weights, false)
	return line{finite(slope), finite(intercept)}
}

// exponent is b in CPU = a·bandwidth^b, by a straight line through the logarithms.
func (c curve) exponent() float64 {
	var x, y []float64
	for i := range c.cpu {
		x, y = append(x, math.Log(c.gbits[i])), append(y, math.Log(c.cpu[i]))
	}
	_, b := stat.LinearRegression(x, y, nil, false)
	return finite(b)
}

// rSquared is the share of the variance of CPU that the line explains.
func (c curve) rSquared(l line) float64 {
	fitted := make([]float64, len(c.gbits))
	for i, x := range c.gbits {
		fitted[i] = l.intercept + l.slope*x
	}
	return finite(stat.RSquaredFrom(fitted, c.cpu, nil))
}

// below is the part of the curve before a level, and the point at it; ok is
// false when the block does not hold the level or fewer than two below it.
func (c curve) below(level float64) (part curve, gbits, cpu float64, ok bool) {
	for i, at := range c.level {
		if at == level {
			return curve{c.level[:i], c.gbits[:i], c.cpu[:i], c.weights[:i]}, c.gbits[i], c.cpu[i], i >= 2
		}
	}
	return curve{}, 0, 0, false
}

// bend looks for the lowest level that departs from the line through those
// below it by more than δ, with an interval that leaves out 0. Every level from
// the third on gets its chance, so the p-value is multiplied by their number
// (Bonferroni).
func (l *Linearity) bend(levels [][]blockMean, curves []curve, opts Options) {
	chances := float64(len(levels) - fewestLevels + 1)
	for _, level := range levels[fewestLevels-1:] {
		at := level[0].cell.Number(result.OfferedMbps)
		var departures []float64
		for _, c := range curves {
			if part, gbits, cpu, ok := c.below(at); ok {
				fit := part.line()
				departures = append(departures, over(cpu, fit.intercept+fit.slope*gbits)-1)
			}
		}
		s := inference.Of(departures)
		if math.Abs(s.Mean) > opts.Delta && chances*s.PDifferent() <= 1-opts.Confidence {
			l.BendAt, l.BendPct = Number(at), estimateOf(s, opts.Confidence).scaled(100)
			return
		}
	}
}
