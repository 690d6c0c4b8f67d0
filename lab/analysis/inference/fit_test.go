package inference

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/stat"
)

// coefficient returns a function that picks one coefficient of a fit.
func coefficient(i int) func([]float64) float64 {
	return func(beta []float64) float64 { return beta[i] }
}

// TestJackknifeIsTheIntervalOverBlocks: with the same X in every cluster, the fit over all clusters is the mean of the
// fits to single clusters, and its interval is the t-interval of this mean.
func TestJackknifeIsTheIntervalOverBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 0))
	var rows []Row
	var slopes, intercepts []float64
	for cluster := range 6 {
		var x, y []float64
		for _, level := range []float64{0.1, 0.2, 0.4, 0.8, 1} {
			x, y = append(x, level), append(y, 3+8*level+rng.NormFloat64())
			rows = append(rows, Row{X: []float64{1, level}, Y: y[len(y)-1], Cluster: cluster})
		}
		a, b := stat.LinearRegression(x, y, nil, false)
		intercepts, slopes = append(intercepts, a), append(slopes, b)
	}
	fit, ok := LeastSquares(rows, 1)
	if !ok {
		t.Fatal("no fit")
	}
	for i, want := range []Sample{SampleOf(intercepts), SampleOf(slopes)} {
		got := fit.Sample(coefficient(i))
		near(t, "mean", got.Mean, want.Mean, 1e-9)
		near(t, "standard error", got.SE, want.SE, 1e-9)
		near(t, "freedom", got.Freedom, want.Freedom, 0)
		if got.N != 6 {
			t.Errorf("%d clusters", got.N)
		}
	}
}

// TestFitCoverage: the load changes within clusters, the number of clients only between clusters, and each cluster has
// a random shift. About 1900 of 2000 intervals must contain the true coefficient. A fit that took the rows for
// independent would have far fewer for the clients.
func TestFitCoverage(t *testing.T) {
	const simulations = 2000
	truth := []float64{2, 8, 0.05}
	rng := rand.New(rand.NewPCG(2, 0))
	covered := make([]int, len(truth))
	for range simulations {
		var rows []Row
		for cluster := range 12 {
			clients := []float64{1, 10, 50, 100}[cluster%4]
			shift := 0.5 * rng.NormFloat64()
			for _, load := range []float64{0.2, 0.5, 1} {
				y := truth[0] + truth[1]*load + truth[2]*clients + shift + 0.2*rng.NormFloat64()
				rows = append(rows, Row{X: []float64{1, load, clients}, Y: y, Cluster: cluster})
			}
		}
		fit, ok := LeastSquares(rows, 2)
		if !ok {
			t.Fatal("no fit")
		}
		for i := range truth {
			if lo, hi := fit.Sample(coefficient(i)).Interval(0.95); lo <= truth[i] && truth[i] <= hi {
				covered[i]++
			}
		}
	}
	t.Logf("%v of %d intervals hold the truth", covered, simulations)
	for i, n := range covered {
		if n < 1861 || n > 1990 { // the jackknife is conservative
			t.Errorf("coefficient %d: %d of %d intervals hold the truth", i, n, simulations)
		}
	}
}

// TestFitsThatCannotBe: rows that do not determine the coefficients give no fit, or a fit without an interval.
func TestFitsThatCannotBe(t *testing.T) {
	twice := []Row{{[]float64{1, 2}, 3, 0}, {[]float64{2, 4}, 6, 1}, {[]float64{3, 6}, 9, 2}}
	if _, ok := LeastSquares(twice, 0); ok {
		t.Error("fitted one column twice over")
	}
	if c := Condition(twice); !(c > 1e6) {
		t.Errorf("condition %g of a singular matrix", c)
	}
	if _, ok := LeastSquares(nil, 0); ok {
		t.Error("fitted nothing")
	}
	zero := []Row{{[]float64{0}, 1, 0}, {[]float64{0}, 2, 1}}
	if _, ok := LeastSquares(zero, 0); ok || !math.IsInf(Condition(zero), 1) || !math.IsInf(Condition(nil), 1) {
		t.Error("a column of zeros was fitted")
	}
	// Without the second cluster nothing tells the columns apart: a fit, but no interval.
	lone := []Row{{[]float64{1, 1}, 3, 0}, {[]float64{1, 2}, 5, 1}, {[]float64{1, 1}, 3, 2}}
	fit, ok := LeastSquares(lone, 1)
	if !ok {
		t.Fatal("no fit")
	}
	if s := fit.Sample(coefficient(1)); math.Abs(s.Mean-2) > 1e-9 || s.HasSpread() || s.N != 3 {
		t.Errorf("slope %+v", s)
	}
}

// TestCondition: two columns of unit length at an angle φ have a condition
// number of cot(φ/2); cos φ = 0.8 gives 3.
func TestCondition(t *testing.T) {
	got := Condition([]Row{{[]float64{5, 8}, 0, 0}, {[]float64{0, 6}, 0, 1}})
	near(t, "condition", got, 3, 1e-9)
}

// TestTrends compares with scipy.stats.linregress. Trends expects columns without their means, so the test subtracts
// them first. six is a sample in sample_test.go; near(t, what, got, want, tolerance) compares with a relative
// tolerance.
func TestTrends(t *testing.T) {
	x := []float64{0, 1, 2, 3, 4, 5}
	y := append([]float64{}, six...)
	lab := []float64{1, 1, 1, 1, 1, 1}
	for _, column := range [][]float64{x, y, lab} {
		m := stat.Mean(column, nil)
		for i := range column {
			column[i] -= m
		}
	}
	got, residuals := Trends(y, [][]float64{x, lab}, 1)
	near(t, "slope", got[0].Mean, 0.005714285714285729, 1e-9)
	near(t, "standard error", got[0].SE, 0.01011498517893467, 1e-9)
	near(t, "freedom", got[0].Freedom, 4, 0)
	if got[1].HasSpread() || !math.IsNaN(got[1].Mean) {
		t.Errorf("an effect of what never changes: %+v", got[1])
	}
	if sum := stat.Mean(residuals, nil); len(residuals) != 6 || math.Abs(sum) > 1e-12 {
		t.Errorf("residuals %v", residuals)
	}
	if s, _ := Trends(y[:2], [][]float64{{-1, 1}}, 1); s[0].HasSpread() || math.IsNaN(s[0].Mean) {
		t.Errorf("two values, two parameters: %+v", s)
	}
	if s, _ := Trends(nil, [][]float64{nil}, 0); s[0].HasSpread() {
		t.Errorf("a trend of nothing: %+v", s)
	}
}

// TestSerial: the residuals 1 1 1 -1 -1 -1 have a correlation of 3/6 between neighbours, so a third of the values
// counts as independent. Residuals that alternate do not reduce the number.
func TestSerial(t *testing.T) {
	s := Sample{Mean: 1, SE: 2, Freedom: 9, N: 11}
	alike := s.Serial([]float64{1, 1, 1, -1, -1, -1})
	near(t, "freedom", alike.Freedom, 3, 1e-12)
	near(t, "standard error", alike.SE, 2*math.Sqrt(3), 1e-12)
	if got := s.Serial([]float64{1, -1, 1, -1}); got != s {
		t.Errorf("alternating: %+v", got)
	}
	if got := s.Serial(nil); got != s {
		t.Errorf("without residuals: %+v", got)
	}
}
