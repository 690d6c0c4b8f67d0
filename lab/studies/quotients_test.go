package studies

import (
	"math"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
)

func interval(mean, lo, hi float64) analysis.Estimate {
	return analysis.Estimate{Mean: analysis.Number(mean), Lo: analysis.Number(lo), Hi: analysis.Number(hi), N: 6}
}

// TestQuotients: bounds are the furthest the figures' own bounds allow.
func TestQuotients(t *testing.T) {
	hundreds, twoHundreds := levelStep{100, 200}, levelStep{200, 400}
	unknown := interval(math.NaN(), math.NaN(), math.NaN())
	for _, tt := range []struct {
		name      string
		got, want analysis.Estimate
	}{
		{"marginal of a straight line", furtherUnitCost(interval(2, 2, 2), interval(2, 2, 2), hundreds, twoHundreds),
			interval(1, 1, 1)},
		{"marginal of a line with a constant share",
			furtherUnitCost(interval(1.5, 1.5, 1.5), interval(5./3, 5./3, 5./3), hundreds, twoHundreds), interval(1, 1, 1)},
		// 2(1.8-1)/(2-1)/2 = 0.8; lowest with 2.5 and 1.6, highest with 1.5 and 2.
		{"marginal of a bent line", furtherUnitCost(interval(2, 1.5, 2.5), interval(1.8, 1.6, 2), hundreds, twoHundreds),
			interval(0.8, 0.5, 1.5)},
		{"marginal where CPU may not rise", furtherUnitCost(interval(1, 0.9, 1.1), interval(2, 2, 2), hundreds, twoHundreds),
			interval(math.NaN(), 5.5, math.NaN())},
		{"marginal of what is not known", furtherUnitCost(unknown, interval(2, 2, 2), hundreds, twoHundreds), unknown},
	} {
		for what, pair := range map[string][2]analysis.Number{
			"mean": {tt.got.Mean, tt.want.Mean}, "lower bound": {tt.got.Lo, tt.want.Lo}, "upper bound": {tt.got.Hi, tt.want.Hi},
		} {
			got, want := float64(pair[0]), float64(pair[1])
			if math.IsNaN(got) != math.IsNaN(want) || math.Abs(got-want) > 1e-9 {
				t.Errorf("%s: %s is %g, want %g", tt.name, what, got, want)
			}
		}
	}
}
