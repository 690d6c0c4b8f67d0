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
// It is the step-down method of S. Holm (Scand. J. Statist. 6, 1979) over all
// p-values of both kinds. As a quantity cannot be equal to 0 and outside the
// limits at once, at most one null hypothesis a quantity is true, so factors
// beyond the number of quantities are not needed (J. P. Shaffer, J. Am. Stat.
// Assoc. 81, 1986, procedure S1).
func Adjust(different, equivalent []float64) (adjustedDifferent, adjustedEquivalent []float64) {
	m := len(different)
	all := slices.Concat(different, equivalent)
	order := make([]int, 0, len(all))
	for i, p := range all {
		if !math.IsNaN(p) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(all[a], all[b]) })
	quantities := (len(order) + 1) / 2
	adjusted := slices.Repeat([]float64{math.NaN()}, len(all))
	largest := 0.0
	for rank, i := range order {
		factor := min(quantities, len(order)-rank)
		largest = max(largest, min(1, float64(factor)*all[i]))
		adjusted[i] = largest
	}
	return adjusted[:m], adjusted[m:]
}
