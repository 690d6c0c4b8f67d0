package inference

import (
	"cmp"
	"math"
	"slices"
)

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
	if !s.HasSpread() {
		return math.NaN()
	}
	return upperTail(ratio(s.Mean-limit, s.SE), s.Freedom)
}

// PBelow is that of a mean of at least limit.
func (s Sample) PBelow(limit float64) float64 {
	s.Mean = -s.Mean
	return s.PAbove(-limit)
}

// Holm corrects p-values of one kind taken together (S. Holm, Scand. J.
// Statist. 6, 1979): held against a level α, the chance that even one of all
// calls is wrong stays below α. NaN stands for what could not be tested.
func Holm(p []float64) []float64 {
	order := make([]int, 0, len(p))
	for i, v := range p {
		if !math.IsNaN(v) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p[a], p[b]) })
	adjusted := slices.Repeat([]float64{math.NaN()}, len(p))
	largest := 0.0
	for rank, i := range order {
		largest = max(largest, min(1, float64(len(order)-rank)*p[i]))
		adjusted[i] = largest
	}
	return adjusted
}
