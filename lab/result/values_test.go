package result_test

import (
	"math"
	"testing"

	"github.com/gateweigh/gateweigh/lab/result"
)

// TestQuantile: Quantile interpolates linearly between the values of an ascending list.
func TestQuantile(t *testing.T) {
	list := []float64{1, 2, 4}
	for p, want := range map[float64]float64{0: 1, 0.25: 1.5, 0.5: 2, 0.75: 3, 1: 4} {
		if got := result.Quantile(list, p); got != want {
			t.Errorf("quantile %g is %g, want %g", p, got, want)
		}
	}
	if got := result.Quantile([]float64{7}, 0.99); got != 7 {
		t.Errorf("of one value: %g", got)
	}
	if !math.IsNaN(result.Quantile(nil, 0.5)) {
		t.Error("of nothing it is a number")
	}
}
