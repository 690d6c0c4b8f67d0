package analysis

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Estimate is a mean over blocks with its confidence interval. Lo and Hi are
// absent with fewer than two blocks: one block says nothing of its own noise.
type Estimate struct {
	Mean Number `json:"mean"`
	Lo   Number `json:"lo"`
	Hi   Number `json:"hi"`
	N    int    `json:"n"` // blocks
}

// Unknown is the estimate of a figure no block has.
func Unknown() Estimate { return Estimate{Mean: Absent(), Lo: Absent(), Hi: Absent()} }

// HasInterval reports whether both bounds are known.
func (e Estimate) HasInterval() bool { return e.Lo.Known() && e.Hi.Known() }

// estimateOf is a sample with its two-sided t-interval.
func estimateOf(s inference.Sample, confidence float64) Estimate {
	lo, hi := s.Interval(confidence)
	return Estimate{Mean: Number(s.Mean), Lo: Number(lo), Hi: Number(hi), N: s.N}
}

// geometric turns an estimate over logarithms into one over ratios: geometric
// mean and the interval around it, which is not symmetric.
func (e Estimate) geometric() Estimate {
	exp := func(n Number) Number { return Number(math.Exp(float64(n))) }
	return Estimate{Mean: exp(e.Mean), Lo: exp(e.Lo), Hi: exp(e.Hi), N: e.N}
}

// scaled multiplies mean and interval by a factor above 0.
func (e Estimate) scaled(factor float64) Estimate {
	f := Number(factor)
	return Estimate{Mean: e.Mean * f, Lo: e.Lo * f, Hi: e.Hi * f, N: e.N}
}

// changePct turns an estimate over logarithms of a ratio into per cent by which
// the ratio is above 1.
func (e Estimate) changePct() Estimate {
	change := func(n Number) Number { return Number(100 * math.Expm1(float64(n))) }
	return Estimate{Mean: change(e.Mean), Lo: change(e.Lo), Hi: change(e.Hi), N: e.N}
}

// spread is the sample standard deviation of the known values, absent below two.
func spread(values []float64) Number {
	known := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	if len(known) < 2 {
		return Absent()
	}
	return Number(stat.StdDev(known, nil))
}

// mean and median ignore absent values and are NaN when nothing is left.
func mean(values []float64) float64 {
	known := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	if len(known) == 0 {
		return math.NaN()
	}
	return stat.Mean(known, nil)
}

// Median ignores absent values; NaN when none is left.
func Median(values []float64) float64 { return median(values) }

func median(values []float64) float64 { return quantile(values, 0.5) }

// quantile ignores absent values too; see result.Quantile.
func quantile(values []float64, p float64) float64 {
	known := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	slices.Sort(known)
	return result.Quantile(known, p)
}
