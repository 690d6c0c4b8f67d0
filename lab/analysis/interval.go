package analysis

import (
	"math"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
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

// RatioOf is the estimate of a ratio from the sample of its logarithm.
func RatioOf(log inference.Sample, confidence float64) Estimate {
	return estimateOf(log, confidence).geometric()
}

// over applies a rising function to mean and bounds.
func (e Estimate) over(f func(float64) float64) Estimate {
	at := func(n Number) Number { return Number(f(float64(n))) }
	return Estimate{Mean: at(e.Mean), Lo: at(e.Lo), Hi: at(e.Hi), N: e.N}
}

// geometric turns an estimate over logarithms into one over ratios: geometric
// mean and the interval around it, which is not symmetric.
func (e Estimate) geometric() Estimate { return e.over(math.Exp) }

// scaled multiplies mean and interval by a factor above 0.
func (e Estimate) scaled(factor float64) Estimate {
	return e.over(func(v float64) float64 { return v * factor })
}

// changePct turns an estimate over logarithms of a ratio into per cent by which
// the ratio is above 1.
func (e Estimate) changePct() Estimate {
	return e.over(func(v float64) float64 { return 100 * math.Expm1(v) })
}
