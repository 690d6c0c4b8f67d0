package inference_test

import (
	"math"
	"slices"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
)

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-4 {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestOneSided holds Welch's test against its formulas worked out by hand, and the
// p-value against Student's density integrated by Simpson's rule.
func TestOneSided(t *testing.T) {
	x, y := inference.Of([]float64{2.1, 2.5, 1.9, 2.8}), inference.Of([]float64{1.2, 1.9, 1.5})
	d := x.Less(y)
	near(t, "mean", d.Mean, 0.791667)
	near(t, "standard error", d.SE, 0.285895)
	near(t, "degrees of freedom", d.Freedom, 4.788439)
	near(t, "above 0", d.PAbove(0), 0.020652)
	near(t, "above and below", d.PAbove(0.5)+d.PBelow(0.5), 1)
	near(t, "two-sided", 2*d.PAbove(0), d.PDifferent())
	near(t, "at its mean", d.PAbove(d.Mean), 0.5)
	if one := inference.Of([]float64{1}); !math.IsNaN(one.PAbove(0)) || !math.IsNaN(x.Less(one).PBelow(0)) {
		t.Error("a single value has a p-value")
	}
	if same := inference.Of([]float64{3, 3, 3}); same.PAbove(2) != 0 || same.PAbove(4) != 1 || same.PBelow(4) != 0 {
		t.Error("values without spread")
	}
}

// TestHolm: the example is worked out by hand.
func TestHolm(t *testing.T) {
	got := inference.Holm([]float64{0.01, 0.04, math.NaN(), 0.03, 0.005})
	if want := []float64{0.03, 0.06, 0, 0.06, 0.02}; !math.IsNaN(got[2]) || !slices.EqualFunc(slices.Concat(got[:2], got[3:]), slices.Concat(want[:2], want[3:]), func(a, b float64) bool { return math.Abs(a-b) < 1e-12 }) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := inference.Holm([]float64{0.6, 0.9}); got[0] != 1 || got[1] != 1 {
		t.Errorf("beyond 1: %v", got)
	}
}
