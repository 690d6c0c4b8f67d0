// Package inference holds the tests and fits that verdicts stand on. It knows
// numbers only: what they were measured on is its callers' affair. Every
// sample is of independent values, which in a run are blocks.
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

// Less is the sample of the mean of s less that of from, whose spreads may
// differ (see Welch). N counts the values of both.
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

// PAbove is the p-value of the one-sided test of a mean of at most limit, NaN
// without a spread.
func (s Sample) PAbove(limit float64) float64 {
	return s.tail(s.Mean - limit)
}

// PBelow is the p-value of a mean of at least limit.
func (s Sample) PBelow(limit float64) float64 {
	s.Mean = -s.Mean
	return s.PAbove(-limit)
}

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

// Lower and Upper are the one-sided bounds of the mean at a level: the chance that the mean is beyond
// is at most the level. NaN without a spread.
func (s Sample) Lower(level float64) float64 {
	if !s.HasSpread() {
		return math.NaN()
	}
	return s.Mean - Quantile(s.Freedom, 1-level)*s.SE
}

func (s Sample) Upper(level float64) float64 { return 2*s.Mean - s.Lower(level) }

// Lies reports whether the interval lies inside [-limit, limit], and whether it leaves
// out 0; neither without a spread.
func (s Sample) Lies(limit, confidence float64) (inside, outside bool) {
	lo, hi := s.Interval(confidence)
	return lo >= -limit && hi <= limit, lo > 0 || hi < 0
}

// PDifferent is the p-value of the two-sided t-test of a mean of 0, NaN
// without a spread.
func (s Sample) PDifferent() float64 {
	return 2 * s.tail(math.Abs(s.Mean))
}

// PBeyond is PDifferent of a mean that may be off by margin: the p-value of a mean within [-margin, margin]. At most 1.
func (s Sample) PBeyond(margin float64) float64 { return min(1, 2*s.tail(math.Abs(s.Mean)-margin)) }

// PEquivalent is the p-value of the two one-sided tests of a mean that lies
// outside [-limit, limit] (D. J. Schuirmann, J. Pharmacokinet. Biopharm. 15,
// 1987): the larger of both. NaN without a spread.
func (s Sample) PEquivalent(limit float64) float64 {
	return s.tail(limit - math.Abs(s.Mean))
}

// tail is the chance of a mean of 0 to be estimated this far above 0 or further, NaN
// without a spread. By the incomplete beta function it keeps its digits where 1 - CDF
// has none left. Values without any spread are as far from 0 as can be, or on it.
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

// Power is the chance that the values asked for bring a verdict, if the spread stays
// as seen. Asking only for a half-width as small as the distance would make it an
// even chance.
const Power = 0.8

// MostFurther bounds what is asked for. A larger number would stand on a mean that lies closer to a bound than
// it is known, or on noise that must be found first.
const MostFurther = 500

// FewestForSpread is the least number of values whose spread says how many more are needed. Of two, the
// true spread may be four times as large and more.
const FewestForSpread = 3

// Spread is by how much the true spread may exceed the one seen: the upper confidence bound of a
// standard deviation with so many degrees of freedom, over the deviation itself. Its confidence is
// Power, so that a number of values planned with it has that power as often (R. H. Browne, Stat. Med. 14,
// 1995). Infinite without a degree of freedom.
func Spread(freedom float64) float64 {
	if !(freedom > 0) {
		return math.Inf(1)
	}
	return math.Sqrt(freedom / distuv.ChiSquared{K: freedom}.Quantile(1-Power))
}

// Further is the least number of values beyond n that are enough, at least two in all;
// nil beyond MostFurther.
func Further(n int, enough func(values int) bool) *int {
	first := max(n+1, 2)
	further := first + sort.Search(MostFurther, func(i int) bool { return enough(first + i) }) - n
	if further > MostFurther {
		return nil
	}
	return &further
}

// quantiles remembers those of whole degrees of freedom, of which a run needs
// few, each of them thousands of times.
var quantiles sync.Map // of quantileKey to float64

type quantileKey struct{ freedom, p float64 }

// Quantile is a quantile of Student's t-distribution.
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
