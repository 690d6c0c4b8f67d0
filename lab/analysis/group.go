package analysis

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/gateweigh/gateweigh/lab/result"
)

// each collects one value of every element.
func each[T any](list []T, of func(T) float64) []float64 {
	out := make([]float64, len(list))
	for i, v := range list {
		out[i] = of(v)
	}
	return out
}

// grouped splits a list by a key. Groups are ordered by compare, or by their first
// element's place in the list where compare is nil.
func grouped[T any, K comparable](list []T, key func(T) K, compare func(a, b K) int) [][]T {
	index := map[K]int{}
	var out [][]T
	for _, v := range list {
		i, known := index[key(v)]
		if !known {
			i = len(out)
			index[key(v)], out = i, append(out, nil)
		}
		out[i] = append(out[i], v)
	}
	if compare != nil {
		slices.SortStableFunc(out, func(a, b []T) int { return compare(key(a[0]), key(b[0])) })
	}
	return out
}

// without is a copy of the list without the elements to which drop applies.
func without[T any](list []T, drop func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), drop)
}

// spread is the sample standard deviation of the known values, absent below two.
func spread(values []float64) Number {
	known := without(values, math.IsNaN)
	if len(known) < 2 {
		return Absent()
	}
	return Number(stat.StdDev(known, nil))
}

// mean ignores absent values and is NaN when none is left.
func mean(values []float64) float64 {
	known := without(values, math.IsNaN)
	if len(known) == 0 {
		return math.NaN()
	}
	return stat.Mean(known, nil)
}

// Median ignores absent values; NaN when none is left.
func Median(values []float64) float64 {
	known := without(values, math.IsNaN)
	slices.Sort(known)
	return result.Quantile(known, 0.5)
}

// Over divides; a denominator of nothing gives no figure.
func Over(a, b float64) float64 {
	if !(b > 0) {
		return math.NaN()
	}
	return finite(a / b)
}

// Positive takes zero for "not measured", of figures that cannot be zero.
func Positive(v float64) float64 {
	if !(v > 0) {
		return math.NaN()
	}
	return v
}

func finite(v float64) float64 {
	if math.IsInf(v, 0) {
		return math.NaN()
	}
	return v
}
