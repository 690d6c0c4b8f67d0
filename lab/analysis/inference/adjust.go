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

// HolmLevels are the levels at which Holm's method decides each p-value when all are held against
// alpha together: a p-value is called when it is at most its level. So the interval of that level is
// the one that shows the decision. What is not called has the level of the first that is not.
// NaN stands for what could not be tested.
func HolmLevels(p []float64, alpha float64) []float64 { return levels(p, 1, alpha) }

// AdjustLevels are the levels at which Adjust decides, as HolmLevels.
func AdjustLevels(different, equivalent []float64, alpha float64) (ofDifferent, ofEquivalent []float64) {
	all := levels(slices.Concat(different, equivalent), 2, alpha)
	return all[:len(different)], all[len(different):]
}

// step is one p-value in the order in which Holm's method takes them, with the factor for its rank.
type step struct {
	at     int // in the caller's list
	factor float64
}

// steps puts p-values in order where each quantity has several. NaNs are left out.
func steps(p []float64, perQuantity int) []step {
	var order []step
	for i, v := range p {
		if !math.IsNaN(v) {
			order = append(order, step{at: i})
		}
	}
	slices.SortStableFunc(order, func(a, b step) int { return cmp.Compare(p[a.at], p[b.at]) })
	quantities := (len(order) + perQuantity - 1) / perQuantity
	for rank := range order {
		order[rank].factor = float64(min(quantities, len(order)-rank))
	}
	return order
}

// stepDown is Holm's method where each quantity has several p-values.
func stepDown(p []float64, perQuantity int) []float64 {
	adjusted := slices.Repeat([]float64{math.NaN()}, len(p))
	largest := 0.0
	for _, s := range steps(p, perQuantity) {
		largest = max(largest, min(1, s.factor*p[s.at]))
		adjusted[s.at] = largest
	}
	return adjusted
}

func levels(p []float64, perQuantity int, alpha float64) []float64 {
	out := slices.Repeat([]float64{math.NaN()}, len(p))
	level, stopped := alpha, false
	for _, s := range steps(p, perQuantity) {
		if !stopped {
			level, stopped = alpha/s.factor, p[s.at] > alpha/s.factor
		}
		out[s.at] = level
	}
	return out
}
