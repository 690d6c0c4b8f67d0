package analysis

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestIntervalsLieWhereFiguresCan(t *testing.T) {
	none := math.NaN()
	for _, tt := range []struct {
		name         string
		scale        Scale
		in           []float64
		mean, lo, hi float64
	}{
		// The half-widths are those of scipy's t-intervals: 9.7179 for these two rates.
		{"rates", Amounts, []float64{7.78517, 9.31483}, 8.55, 2.744, 26.64},
		{"little spread", Amounts, []float64{99.9, 100, 100.1, none}, 100, 99.752, 100.249},
		{"no loss in a block", Shares, []float64{0, 0, 0.003}, 0.001, 0, 0.005303},
		{"shares", Percents, []float64{84.07, 88.33}, 86.2, 39.10, 98.38},
		{"above the whole", Percents, []float64{99, 101.6}, 100.3, 83.78, 100.3},
		{"equal", Shares, []float64{1, 1, 1}, 1, 1, 1},
		{"nothing", Amounts, []float64{0, 0}, 0, 0, 0},
		{"one block", Amounts, []float64{3}, 3, none, none},
		{"changes", Changes, []float64{1, 3}, 2, -10.706, 14.706},
	} {
		e := tt.scale.Estimate(tt.in, 0.95)
		for what, pair := range map[string][2]float64{"mean": {float64(e.Mean), tt.mean}, "lo": {float64(e.Lo), tt.lo}, "hi": {float64(e.Hi), tt.hi}} {
			if math.IsNaN(pair[0]) != math.IsNaN(pair[1]) || math.Abs(pair[0]-pair[1]) > 6e-4*math.Max(0.01, math.Abs(pair[1])) {
				t.Errorf("%s: %s is %.5g, want %.5g", tt.name, what, pair[0], pair[1])
			}
		}
	}
}

// TestCoverageOfAmounts: of blocks whose times are lognormal the interval holds the
// mean at least as often as the plain t-interval does.
func TestCoverageOfAmounts(t *testing.T) {
	const runs = 4000
	for _, blocks := range []int{2, 3, 6} {
		for _, spread := range []float64{0.02, 0.3, 0.8} {
			rng := rand.New(rand.NewPCG(11, uint64(blocks)))
			truth := Number(math.Exp(spread * spread / 2))
			held, plain := 0, 0
			for range runs {
				values := make([]float64, blocks)
				for i := range values {
					values[i] = math.Exp(spread * rng.NormFloat64())
				}
				if e := Amounts.Estimate(values, 0.95); e.Lo <= truth && truth <= e.Hi {
					held++
				}
				if e := Changes.Estimate(values, 0.95); e.Lo <= truth && truth <= e.Hi {
					plain++
				}
			}
			t.Logf("%d blocks, spread %.2f: %.1f %%, plain %.1f %%", blocks, spread, 100*float64(held)/runs, 100*float64(plain)/runs)
			if held < plain-runs/200 {
				t.Errorf("%d blocks, spread %.2f: holds the mean %d times of %d, the plain interval %d", blocks, spread, held, runs, plain)
			}
		}
	}
}
