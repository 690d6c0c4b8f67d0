package analysis

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/gateweigh/gateweigh/lab/result"
)

// each returns one value for every element.
func each[T any](list []T, value func(T) float64) []float64 {
	out := make([]float64, len(list))
	for i, v := range list {
		out[i] = value(v)
	}
	return out
}

// grouped splits a list by a key. The groups are sorted by compare. Where compare is nil, they are in the order of
// their first elements.
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

// without returns a copy of the list without the elements for which drop is true.
func without[T any](list []T, drop func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), drop)
}

// spread returns the sample standard deviation of the known values. It is absent for fewer than two.
func spread(values []float64) Number {
	known := without(values, math.IsNaN)
	if len(known) < 2 {
		return Absent()
	}
	return Number(stat.StdDev(known, nil))
}

// mean averages the known values. It is NaN when there is none.
func mean(values []float64) float64 {
	known := without(values, math.IsNaN)
	if len(known) == 0 {
		return math.NaN()
	}
	return stat.Mean(known, nil)
}

// Median returns the median of the known values. It is NaN when there is none.
func Median(values []float64) float64 {
	known := without(values, math.IsNaN)
	slices.Sort(known)
	return result.Quantile(known, 0.5)
}

// Over returns a/b. It is NaN when b is not above 0.
func Over(a, b float64) float64 {
	if !(b > 0) {
		return math.NaN()
	}
	return finite(a / b)
}

// Positive returns v, or NaN when v is not above 0. Zero means "not measured" in figures that cannot be zero.
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
