// Package inference holds the tests and fits that verdicts stand on. It knows
// numbers only: what they were measured on is its callers' affair. Every
// sample is of independent values, which in a run are blocks.
package inference

import (
	"math"
	"slices"
	"sync"

	"gonum.org/v1/gonum/mathext"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Sample is an estimated mean and how well it is known.
type Sample struct {
	Mean    float64 // NaN without values
	SE      float64 // standard error of Mean; NaN below two values
	Freedom float64 // degrees of freedom of SE
	N       int     // values
}

// None is the sample of nothing.
func None() Sample { return Sample{Mean: math.NaN(), SE: math.NaN()} }

// Of is the sample of the mean of values. NaNs are left out and not counted.
func Of(values []float64) Sample {
	known := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	n := len(known)
	switch n {
	case 0:
		return None()
	case 1:
		return Sample{Mean: known[0], SE: math.NaN(), N: 1}
	}
	mean, sd := stat.MeanStdDev(known, nil)
	return Sample{Mean: mean, SE: sd / math.Sqrt(float64(n)), Freedom: float64(n - 1), N: n}
}

// Welch is the sample of the mean of b less the mean of a, whose spreads may
// differ (B. L. Welch, Biometrika 34, 1947, with the degrees of freedom of
// F. E. Satterthwaite, 1946). N counts the values of both.
func Welch(a, b []float64) Sample { return Of(b).Less(Of(a)) }

// HasSpread reports whether the sample can be tested.
func (s Sample) HasSpread() bool {
	return finite(s.Mean) && finite(s.SE) && s.Freedom > 0
}

// Interval is the two-sided t-interval of the mean, NaN without a spread.
func (s Sample) Interval(confidence float64) (lo, hi float64) {
	if !s.HasSpread() {
		return math.NaN(), math.NaN()
	}
	half := Quantile(s.Freedom, (1+confidence)/2) * s.SE
	return s.Mean - half, s.Mean + half
}

// PDifferent is the p-value of the two-sided t-test of a mean of 0, NaN
// without a spread.
func (s Sample) PDifferent() float64 {
	if !s.HasSpread() {
		return math.NaN()
	}
	return 2 * upperTail(ratio(math.Abs(s.Mean), s.SE), s.Freedom)
}

// PEquivalent is the p-value of the two one-sided tests of a mean that lies
// outside [-limit, limit] (D. J. Schuirmann, J. Pharmacokinet. Biopharm. 15,
// 1987): the larger of both. NaN without a spread.
func (s Sample) PEquivalent(limit float64) float64 {
	if !s.HasSpread() {
		return math.NaN()
	}
	return upperTail(ratio(limit-math.Abs(s.Mean), s.SE), s.Freedom)
}

// upperTail is the chance of a t-distributed value above t. By the incomplete
// beta function it keeps its digits where 1 - CDF has none left.
func upperTail(t, freedom float64) float64 {
	tail := mathext.RegIncBeta(freedom/2, 0.5, freedom/(freedom+t*t)) / 2
	if t < 0 {
		return 1 - tail
	}
	return tail
}

// ratio of a distance to a standard error. Values without any spread are as
// far from 0 as can be, or on it.
func ratio(distance, se float64) float64 {
	if se == 0 && distance == 0 {
		return 0
	}
	return distance / se
}

// quantiles remembers those of whole degrees of freedom, of which a run needs
// few, each of them thousands of times.
var quantiles sync.Map // of quantileKey to float64

type quantileKey struct{ freedom, p float64 }

// Quantile is that of Student's t-distribution.
func Quantile(freedom, p float64) float64 {
	key := quantileKey{freedom, p}
	if q, known := quantiles.Load(key); known {
		return q.(float64)
	}
	q := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: freedom}.Quantile(p)
	if freedom == math.Trunc(freedom) {
		quantiles.Store(key, q)
	}
	return q
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
