// Package inference has the statistical tests and fits behind the verdicts. It works with numbers only and does not
// know what they measure. The values of a sample are independent. In a run they are blocks.
package inference

import (
	"math"
	"slices"
	"sort"
	"sync"

	"gonum.org/v1/gonum/mathext"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Sample is an estimated mean with its standard error.
type Sample struct {
	Mean    float64 // NaN without values
	SE      float64 // standard error of Mean; NaN below two values
	Freedom float64 // degrees of freedom of SE
	N       int     // number of values
}

// None returns a sample without values.
func None() Sample { return Sample{Mean: math.NaN(), SE: math.NaN()} }

// SampleOf estimates the mean of values. NaNs are left out and not counted.
func SampleOf(values []float64) Sample {
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

// Welch estimates the mean of b less the mean of a. Their spreads may differ (B. L. Welch, Biometrika 34, 1947, with
// the degrees of freedom of F. E. Satterthwaite, 1946). N counts the values of both.
func Welch(a, b []float64) Sample { return SampleOf(b).Less(SampleOf(a)) }

// Less estimates the mean of s less the mean of from. Their spreads may differ (see Welch). N counts the values of
// both.
func (s Sample) Less(from Sample) Sample {
	d := Sample{Mean: s.Mean - from.Mean, SE: math.NaN(), N: s.N + from.N}
	if !from.HasSpread() || !s.HasSpread() {
		return d
	}
	va, vb := from.SE*from.SE, s.SE*s.SE
	d.SE, d.Freedom = math.Sqrt(va+vb), from.Freedom+s.Freedom
	if divisor := va*va/from.Freedom + vb*vb/s.Freedom; divisor > 0 {
		d.Freedom = (va + vb) * (va + vb) / divisor
	}
	return d
}

// PAbove returns the p-value of the one-sided test against a mean of at most limit. It is NaN without a spread.
func (s Sample) PAbove(limit float64) float64 {
	return s.tail(s.Mean - limit)
}

// PBelow returns the p-value of the one-sided test against a mean of at least limit. It is NaN without a spread.
func (s Sample) PBelow(limit float64) float64 {
	s.Mean = -s.Mean
	return s.PAbove(-limit)
}

// HasSpread reports whether the sample has a standard error, so that it can be tested.
func (s Sample) HasSpread() bool {
	return finite(s.Mean) && finite(s.SE) && s.Freedom > 0
}

// Interval returns the two-sided t-interval of the mean. The bounds are NaN without a spread.
func (s Sample) Interval(confidence float64) (lo, hi float64) {
	if !s.HasSpread() {
		return math.NaN(), math.NaN()
	}
	half := Quantile(s.Freedom, (1+confidence)/2) * s.SE
	return s.Mean - half, s.Mean + half
}

// Lower and Upper return the one-sided bounds of the mean. The probability that the mean is beyond the bound is at most
// level. They return NaN without a spread.
func (s Sample) Lower(level float64) float64 {
	if !s.HasSpread() {
		return math.NaN()
	}
	return s.Mean - Quantile(s.Freedom, 1-level)*s.SE
}

func (s Sample) Upper(level float64) float64 { return 2*s.Mean - s.Lower(level) }

// Lies reports whether the interval is inside [-limit, limit], and whether it excludes 0. Both are false without a
// spread.
func (s Sample) Lies(limit, confidence float64) (inside, outside bool) {
	lo, hi := s.Interval(confidence)
	return lo >= -limit && hi <= limit, lo > 0 || hi < 0
}

// PDifferent returns the p-value of the two-sided t-test against a mean of 0. It is NaN without a spread.
func (s Sample) PDifferent() float64 {
	return 2 * s.tail(math.Abs(s.Mean))
}

// PBeyond returns the p-value of the test against a mean within [-margin, margin]. It is at most 1.
func (s Sample) PBeyond(margin float64) float64 { return min(1, 2*s.tail(math.Abs(s.Mean)-margin)) }

// PEquivalent returns the p-value of the two one-sided tests against a mean outside [-limit, limit] (D. J. Schuirmann,
// J. Pharmacokinet. Biopharm. 15, 1987). It is the larger of their two p-values, and NaN without a spread.
func (s Sample) PEquivalent(limit float64) float64 {
	return s.tail(limit - math.Abs(s.Mean))
}

// tail returns the probability that a sample with mean 0 is estimated at least distance above 0. It is NaN without a
// spread. The incomplete beta function keeps digits where 1 - CDF has none left. If all values are equal, SE is 0. The
// result is then 0 for a positive distance, 1 for a negative one and 1/2 for 0.
func (s Sample) tail(distance float64) float64 {
	if !s.HasSpread() {
		return math.NaN()
	}
	t := 0.0
	if distance != 0 {
		t = distance / s.SE
	}
	tail := mathext.RegIncBeta(s.Freedom/2, 0.5, s.Freedom/(s.Freedom+t*t)) / 2
	if t < 0 {
		return 1 - tail
	}
	return tail
}

// Power is the probability with which the planned number of values gives a verdict, if the spread stays the same. A
// plan for an interval whose half-width equals the distance would give a verdict only half of the time.
const Power = 0.8

// MostFurther is the largest number of further values that is planned. A larger plan would depend on a mean that is not
// known well enough, or on noise that must be found first.
const MostFurther = 500

// FewestForSpread is the smallest number of values from whose spread further values are planned. With two values, the
// true spread may be more than four times as large.
const FewestForSpread = 3

// Spread returns the factor by which the true spread may exceed the observed one. It is the upper confidence bound of a
// standard deviation with the given degrees of freedom, divided by the deviation. Its confidence is Power, so that a
// plan with this spread has that power as often (R. H. Browne, Stat. Med. 14, 1995). It is infinite without a degree of
// freedom.
func Spread(freedom float64) float64 {
	if !(freedom > 0) {
		return math.Inf(1)
	}
	return math.Sqrt(freedom / distuv.ChiSquared{K: freedom}.Quantile(1-Power))
}

// Further returns the smallest number of values beyond n that is enough, with at least two in all. It returns nil
// beyond MostFurther.
func Further(n int, enough func(values int) bool) *int {
	first := max(n+1, 2)
	further := first + sort.Search(MostFurther, func(i int) bool { return enough(first + i) }) - n
	if further > MostFurther {
		return nil
	}
	return &further
}

// quantiles caches the quantiles of whole degrees of freedom. A run needs few of them, each of them thousands of times.
var quantiles sync.Map // of quantileKey to float64

type quantileKey struct{ freedom, p float64 }

// Quantile returns a quantile of Student's t-distribution.
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
