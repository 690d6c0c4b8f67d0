package inference

import (
	"cmp"
	"math"
	"slices"
)

// Adjust corrects the p-values of many verdicts taken together: with the
// results held against a level α, the chance that even one of all calls, of
// either kind, is wrong stays below α, however the verdicts depend on each
// other. different[i] and equivalent[i] are about the same quantity; NaN where
// it could not be tested.
//
// It is Holm's method over all p-values of both kinds. As a quantity cannot be equal
// to 0 and outside the limits at once, at most one null hypothesis a quantity is true,
// so factors beyond the number of quantities are not needed (J. P. Shaffer, J. Am.
// Stat. Assoc. 81, 1986, procedure S1).
func Adjust(different, equivalent []float64) (adjustedDifferent, adjustedEquivalent []float64) {
	adjusted := stepDown(slices.Concat(different, equivalent), 2)
	return adjusted[:len(different)], adjusted[len(different):]
}

// Holm corrects p-values of one kind taken together (S. Holm, Scand. J.
// Statist. 6, 1979): held against a level α, the chance that even one of all
// calls is wrong stays below α. NaN stands for what could not be tested.
func Holm(p []float64) []float64 { return stepDown(p, 1) }

// stepDown is Holm's method where each quantity has several p-values.
func stepDown(p []float64, perQuantity int) []float64 {
	var order []int
	for i, v := range p {
		if !math.IsNaN(v) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p[a], p[b]) })
	quantities := (len(order) + perQuantity - 1) / perQuantity
	adjusted := slices.Repeat([]float64{math.NaN()}, len(p))
	largest := 0.0
	for rank, i := range order {
		largest = max(largest, min(1, float64(min(quantities, len(order)-rank))*p[i]))
		adjusted[i] = largest
	}
	return adjusted
}
