package analysis

import (
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
)

// Scale is what a figure can be, and so how its interval is taken: no bound lies
// where the figure cannot be, however far the blocks spread.
type Scale struct{ least, most float64 }

// Scales of metrics.
var (
	Amounts  = Scale{0, math.Inf(1)} // times, rates, sizes
	Shares   = Scale{0, 1}
	Percents = Scale{0, 100} // of something that can be full
	Changes  = Scale{math.Inf(-1), math.Inf(1)}
)

// Estimate takes one value a block and returns their arithmetic mean with its
// two-sided interval. Absent values (NaN) are left out and not counted. Of amounts
// the t-interval is taken on the logarithm of the mean, of shares on its logit, both
// by the delta method. Where a block's value lies on a bound (no loss at all) there is
// no such scale: the plain interval is cut off at what can be.
func (sc Scale) Estimate(values []float64, confidence float64) Estimate {
	s := inference.Of(values)
	e := estimateOf(s, confidence)
	if !e.HasInterval() || s.SE == 0 {
		return e
	}
	half := float64(e.Hi) - s.Mean
	switch {
	case slices.ContainsFunc(values, sc.bounds):
		// A share that was measured a little above the whole stays in its own interval.
		e.Lo = Number(min(max(float64(e.Lo), sc.least), s.Mean))
		e.Hi = Number(max(min(float64(e.Hi), sc.most), s.Mean))
	case !math.IsInf(sc.most, 1):
		at, whole := (s.Mean-sc.least)/(sc.most-sc.least), sc.most-sc.least
		centre, reach := math.Log(at/(1-at)), half/(whole*at*(1-at))
		share := func(logit float64) Number { return Number(sc.least + whole/(1+math.Exp(-logit))) }
		e.Lo, e.Hi = share(centre-reach), share(centre+reach)
	case !math.IsInf(sc.least, -1):
		reach := half / (s.Mean - sc.least)
		e.Lo, e.Hi = Number(sc.least+(s.Mean-sc.least)*math.Exp(-reach)), Number(sc.least+(s.Mean-sc.least)*math.Exp(reach))
	}
	return e
}

// bounds reports whether a value lies on a bound of the scale, or beyond.
func (sc Scale) bounds(v float64) bool { return v <= sc.least || v >= sc.most }

// EstimateOf is the estimate of an amount from one value a block.
func EstimateOf(values []float64, opts Options) Estimate {
	return Amounts.Estimate(values, opts.withDefaults().Confidence)
}
