package inference

import (
	"cmp"
	"math"
	"slices"
)

// Adjust corrects the p-values of many verdicts that are taken together. With the corrected values compared with a
// level α, the probability of even one wrong verdict of either kind is at most α, however the verdicts depend on each
// other. different[i] and equivalent[i] test the same quantity. NaN means that it could not be tested.
//
// Adjust uses Holm's method over all p-values of both kinds. A quantity cannot be both equal to 0 and outside the
// limits, so at most one of its two null hypotheses is true. Factors above the number of quantities are therefore not
// needed (J. P. Shaffer, J. Am. Stat. Assoc. 81, 1986, procedure S1).
func Adjust(different, equivalent []float64) (adjustedDifferent, adjustedEquivalent []float64) {
	adjusted := stepDown(slices.Concat(different, equivalent), 2)
	return adjusted[:len(different)], adjusted[len(different):]
}

// Holm corrects p-values of one kind that are taken together (S. Holm, Scand. J. Statist. 6, 1979). With the corrected
// values compared with a level α, the probability of even one wrong verdict is at most α. NaN means that a quantity
// could not be tested.
func Holm(p []float64) []float64 { return stepDown(p, 1) }

// HolmLevels returns the level for each p-value at which Holm's method decides, when all are tested together at level
// alpha. A null hypothesis is rejected if its p-value is at most its level, so the interval of this level shows the
// decision. All that are not rejected have the level of the first one that is not. NaN means that a quantity could not
// be tested.
func HolmLevels(p []float64, alpha float64) []float64 { return levels(p, 1, alpha) }

// AdjustLevels returns the levels at which Adjust decides, as HolmLevels does for Holm.
func AdjustLevels(different, equivalent []float64, alpha float64) (ofDifferent, ofEquivalent []float64) {
	all := levels(slices.Concat(different, equivalent), 2, alpha)
	return all[:len(different)], all[len(different):]
}

// step is one p-value with its factor, which depends on its rank in Holm's order.
type step struct {
	index  int // position in the caller's list
	factor float64
}

// steps sorts the p-values and sets their factors. Each quantity has perQuantity of them. NaNs are left out.
func steps(p []float64, perQuantity int) []step {
	var order []step
	for i, v := range p {
		if !math.IsNaN(v) {
			order = append(order, step{index: i})
		}
	}
	slices.SortStableFunc(order, func(a, b step) int { return cmp.Compare(p[a.index], p[b.index]) })
	quantities := (len(order) + perQuantity - 1) / perQuantity
	for rank := range order {
		order[rank].factor = float64(min(quantities, len(order)-rank))
	}
	return order
}

// stepDown applies Holm's method to p-values of which each quantity has perQuantity.
func stepDown(p []float64, perQuantity int) []float64 {
	adjusted := slices.Repeat([]float64{math.NaN()}, len(p))
	largest := 0.0
	for _, s := range steps(p, perQuantity) {
		largest = max(largest, min(1, s.factor*p[s.index]))
		adjusted[s.index] = largest
	}
	return adjusted
}

func levels(p []float64, perQuantity int, alpha float64) []float64 {
	out := slices.Repeat([]float64{math.NaN()}, len(p))
	level, stopped := alpha, false
	for _, s := range steps(p, perQuantity) {
		if !stopped {
			level, stopped = alpha/s.factor, p[s.index] > alpha/s.factor
		}
		out[s.index] = level
	}
	return out
}
