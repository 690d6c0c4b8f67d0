package inference_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
)

// near requires a number to be want to four decimals.
func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-4 {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestOneSided compares Welch's test with its formulas worked out by hand, and the p-value with Student's density
// integrated by Simpson's rule.
func TestOneSided(t *testing.T) {
	x, y := inference.SampleOf([]float64{2.1, 2.5, 1.9, 2.8}), inference.SampleOf([]float64{1.2, 1.9, 1.5})
	d := x.Less(y)
	near(t, "mean", d.Mean, 0.791667)
	near(t, "standard error", d.SE, 0.285895)
	near(t, "degrees of freedom", d.Freedom, 4.788439)
	near(t, "above 0", d.PAbove(0), 0.020652)
	near(t, "above and below", d.PAbove(0.5)+d.PBelow(0.5), 1)
	near(t, "two-sided", 2*d.PAbove(0), d.PDifferent())
	near(t, "at its mean", d.PAbove(d.Mean), 0.5)
	if one := inference.SampleOf([]float64{1}); !math.IsNaN(one.PAbove(0)) || !math.IsNaN(x.Less(one).PBelow(0)) {
		t.Error("a single value has a p-value")
	}
	if same := inference.SampleOf([]float64{3, 3, 3}); same.PAbove(2) != 0 || same.PAbove(4) != 1 || same.PBelow(4) != 0 {
		t.Error("values without spread")
	}
}

// TestHolm: the example is worked out by hand.
func TestHolm(t *testing.T) {
	got := inference.Holm([]float64{0.01, 0.04, math.NaN(), 0.03, 0.005})
	want := []float64{0.03, 0.06, 0, 0.06, 0.02}
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-12 }
	if !math.IsNaN(got[2]) || !slices.EqualFunc(slices.Concat(got[:2], got[3:]), slices.Concat(want[:2], want[3:]), near) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := inference.Holm([]float64{0.6, 0.9}); got[0] != 1 || got[1] != 1 {
		t.Errorf("beyond 1: %v", got)
	}
}

// TestHolmLevels: a p-value is at most its level exactly where its adjusted value is at most alpha.
func TestHolmLevels(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 0))
	for range 2000 {
		a, b := make([]float64, 1+rng.IntN(6)), []float64{}
		for i := range a {
			a[i] = rng.Float64() * rng.Float64() / 5
			b = append(b, rng.Float64()/5)
			if rng.IntN(8) == 0 {
				a[i], b[i] = math.NaN(), math.NaN()
			}
		}
		const alpha = 0.05
		check := func(p, adjusted, levels []float64) {
			for i := range p {
				if math.IsNaN(p[i]) != math.IsNaN(levels[i]) || (p[i] <= levels[i]) != (adjusted[i] <= alpha) {
					t.Fatalf("p %v, adjusted %v, levels %v", p, adjusted, levels)
				}
			}
		}
		check(a, inference.Holm(a), inference.HolmLevels(a, alpha))
		different, equivalent := inference.Adjust(a, b)
		ofDifferent, ofEquivalent := inference.AdjustLevels(a, b, alpha)
		check(a, different, ofDifferent)
		check(b, equivalent, ofEquivalent)
	}
}

// TestSpread compares with a table of chi-square.
func TestSpread(t *testing.T) {
	for freedom, quantile := range map[float64]float64{1: 0.0641848, 2: 0.446287, 5: 2.342534, 10: 6.179079} {
		near(t, "spread", inference.Spread(freedom), math.Sqrt(freedom/quantile))
	}
	if !math.IsInf(inference.Spread(0), 1) {
		t.Error("one value has a spread")
	}
}

// TestBounds: Lower and Upper return the ends of the interval.
func TestBounds(t *testing.T) {
	s := inference.SampleOf([]float64{2.1, 2.5, 1.9, 2.8})
	lo, hi := s.Interval(0.95)
	near(t, "lower", s.Lower(0.025), lo)
	near(t, "upper", s.Upper(0.025), hi)
}
