package analysis

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
	"github.com/gateweigh/gateweigh/lab/result"
)

// near requires a number to be want but for rounding errors. NaN stands for an absent number.
func near(t *testing.T, what string, got Number, want float64) {
	t.Helper()
	if math.IsNaN(want) {
		if got.Known() {
			t.Errorf("%s: got %v, want none", what, got)
		}
		return
	}
	if !(math.Abs(float64(got)-want) <= 1e-9*math.Max(1, math.Abs(want))) {
		t.Errorf("%s: got %.15g, want %.15g", what, float64(got), want)
	}
}

// TestEstimate compares with values computed by scipy 1.17 (stats.t.ppf, ddof=1).
func TestEstimate(t *testing.T) {
	none := math.NaN()
	tests := []struct {
		name         string
		in           []float64
		confidence   float64
		mean, lo, hi float64
		n            int
	}{
		{"six", []float64{0.71, 0.82, 0.79, 0.75, 0.80, 0.77}, 0.95, 0.7733333333333334, 0.7320614609382131,
			0.8146052057284537, 6},
		{"six at 99 %", []float64{0.71, 0.82, 0.79, 0.75, 0.80, 0.77}, 0.99, 0.7733333333333334, 0.7085954252110747,
			0.8380712414555922, 6},
		{"two", []float64{1, 3}, 0.95, 2, -10.706204736174694, 14.706204736174694, 2},
		{"four with one absent", []float64{10, 12, none, 9, 11}, 0.95, 10.5, 8.445739743239479, 12.554260256760521, 4},
		{"one", []float64{4}, 0.95, 4, none, none, 1},
		{"none", nil, 0.95, none, none, none, 0},
		{"all absent", []float64{none, none}, 0.95, none, none, none, 0},
		{"equal", []float64{5, 5, 5}, 0.95, 5, 5, 5, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Changes.Estimate(tt.in, tt.confidence)
			near(t, "mean", got.Mean, tt.mean)
			near(t, "lo", got.Lo, tt.lo)
			near(t, "hi", got.Hi, tt.hi)
			if got.N != tt.n {
				t.Errorf("n: got %d, want %d", got.N, tt.n)
			}
		})
	}
}

// TestGeometric: geometric turns an estimate of logarithms into one of ratios.
func TestGeometric(t *testing.T) {
	got := Changes.Estimate([]float64{0.71, 0.82, 0.79, 0.75, 0.80, 0.77}, 0.95).geometric()
	for what, pair := range map[string][2]float64{
		"mean": {float64(got.Mean), 2.16697749}, "lo": {float64(got.Lo), 2.07936272}, "hi": {float64(got.Hi), 2.25828394},
	} {
		if math.Abs(pair[0]-pair[1]) > 1e-8 {
			t.Errorf("%s: got %v, want %v", what, pair[0], pair[1])
		}
	}
}

// TestMedian: median, quantile and spread leave out NaN.
func TestMedian(t *testing.T) {
	in := []float64{3, 1, 4, 1, 5, 9, 2, 6, math.NaN()}
	near(t, "median", Number(Median(in)), 3.5)                                             // numpy.percentile
	near(t, "p99", Number(result.Quantile([]float64{1, 1, 2, 3, 4, 5, 6, 9}, 0.99)), 8.79) // numpy.percentile
	near(t, "of one", Number(Median(in[:1])), 3)                                           //
	near(t, "of none", Number(Median(nil)), math.NaN())                                    //
	near(t, "spread of one", spread(in[:1]), math.NaN())                                   //
	near(t, "spread", spread([]float64{1, 3}), math.Sqrt2)                                 //
}

// TestFurtherBlocks compares with a plain search over scipy's quantiles. m is the mean log ratio of n blocks. sd is the
// largest spread that nine observed blocks allow.
func TestFurtherBlocks(t *testing.T) {
	tests := []struct {
		m, sd float64
		n     int
		want  int // 0: more than can be asked for
	}{
		{0.02, 0.05, 6, 20},
		{0, 0.04, 4, 4},
		{0.04, 0.1, 3, 49},
		{0.06, 0.2, 3, 87},
		{0, 0.03, 1, 5},
		{0.3, 0.9, 2, 71},
		{-0.3, 0.9, 2, 71},
		{0.024, 5, 6, 0},
	}
	for _, tt := range tests {
		opts := Options{}.withDefaults()
		got := contrast{Sample: inference.Sample{Mean: tt.m, N: tt.n}, limit: opts.limit()}.furtherBlocks(
			tt.sd/inference.Spread(8), 9, 1, opts)
		switch {
		case tt.want == 0 && got != nil:
			t.Errorf("%+v: got %d", tt, *got)
		case tt.want != 0 && (got == nil || *got != tt.want):
			t.Errorf("%+v: got %v", tt, got)
		}
	}
}

// TestNumberJSON: numbers have seven significant digits in JSON, and absent ones are null.
func TestNumberJSON(t *testing.T) {
	in := []Number{1, 1234567.89, 0.1 + 0.2, Absent(), Number(math.Inf(1)), Number(math.Inf(-1)),
		Number(math.Copysign(0, -1)), 1e-12, -1e-17, 1e-13, -2.5}
	data, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if want := `[1,1234568,0.3,null,null,null,0,1e-12,0,0,-2.5]`; string(data) != want {
		t.Errorf("got %s, want %s", data, want)
	}
	var back []Number
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if back[1] != 1234568 || back[3].Known() {
		t.Errorf("read back %v", back)
	}
}

// TestIntervalsLieWhereFiguresCan: no bound of an interval is outside the range of its figure (its scale).
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
		for what, pair := range map[string][2]float64{
			"mean": {float64(e.Mean), tt.mean}, "lo": {float64(e.Lo), tt.lo}, "hi": {float64(e.Hi), tt.hi}} {
			if math.IsNaN(pair[0]) != math.IsNaN(pair[1]) || math.Abs(pair[0]-pair[1]) > 6e-4*math.Max(0.01, math.Abs(pair[1])) {
				t.Errorf("%s: %s is %.5g, want %.5g", tt.name, what, pair[0], pair[1])
			}
		}
	}
}

// TestCoverageOfAmounts: for lognormal values, such as times, the interval on the scale Amounts contains the true mean
// at least as often as the plain t-interval (the scale Changes).
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
			t.Logf("%d blocks, spread %.2f: %.1f %%, plain %.1f %%", blocks, spread, 100*float64(held)/runs,
				100*float64(plain)/runs)
			if held < plain-runs/200 {
				t.Errorf("%d blocks, spread %.2f: holds the mean %d times of %d, the plain interval %d", blocks, spread, held, runs,
					plain)
			}
		}
	}
}
