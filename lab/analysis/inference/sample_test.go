package inference

import (
	"math"
	"math/rand/v2"
	"testing"
)

// near requires a number to be want, with a relative tolerance.
func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance*math.Max(1e-300, math.Abs(want))) && got != want {
		t.Errorf("%s: got %.15g, want %.15g", what, got, want)
	}
}

var (
	six   = []float64{0.71, 0.82, 0.79, 0.75, 0.80, 0.77}
	other = []float64{0.60, 0.95, 0.70, 1.10}
)

// TestTests compares with scipy: ttest_1samp, ttest_ind(equal_var=False) and
// t.sf for the one-sided tests.
func TestTests(t *testing.T) {
	s := SampleOf(append([]float64{math.NaN()}, six...))
	near(t, "p of a mean of 0", s.PDifferent(), 7.287529384194985e-08, 1e-9)
	near(t, "p of |mean| >= 0.8", s.PEquivalent(0.8), 0.07881167837008289, 1e-9)
	near(t, "p of |mean| >= 0.5", s.PEquivalent(0.5), 0.9999936026185546, 1e-9)
	w := Welch(six, other)
	near(t, "Welch's freedom", w.Freedom, 3.1187496349739163, 1e-9)
	near(t, "Welch's p", w.PDifferent(), 0.6157689009040129, 1e-9)
	lo, hi := w.Interval(0.95)
	near(t, "Welch's lo", lo, -0.2954847954227613, 1e-9)
	near(t, "Welch's hi", hi, 0.4238181287560945, 1e-9)
	// Far in the tail 1 - CDF would be 0.
	near(t, "far tail", Sample{Mean: 1, SE: 1e-4, Freedom: 9, N: 10}.PDifferent(), 5.091792199508464e-33, 1e-9)
}

// TestWithoutSpread: equal values have certain p-values, 0 or 1. A single value cannot be tested.
func TestWithoutSpread(t *testing.T) {
	same := SampleOf([]float64{0.3, 0.3, 0.3})
	if same.PDifferent() != 0 || same.PEquivalent(0.4) != 0 || same.PEquivalent(0.2) != 1 {
		t.Errorf("equal values: p %g, %g, %g", same.PDifferent(), same.PEquivalent(0.4), same.PEquivalent(0.2))
	}
	if p := SampleOf([]float64{0, 0}).PDifferent(); p != 1 {
		t.Errorf("zeros: p %g", p)
	}
	for what, s := range map[string]Sample{
		"one": SampleOf(six[:1]), "none": SampleOf(nil), "Welch of one": Welch(six, other[:1])} {
		if s.HasSpread() || !math.IsNaN(s.PDifferent()) || !math.IsNaN(s.PEquivalent(1)) {
			t.Errorf("%s: %+v can be tested", what, s)
		}
	}
	if s := Welch([]float64{1, 1}, []float64{3, 3}); s.Mean != 2 || s.PDifferent() != 0 {
		t.Errorf("Welch of equal values: %+v", s)
	}
}

// TestAdjust compares Adjust with steps worked out by hand: three quantities, six tests, at most three null hypotheses
// true at once.
func TestAdjust(t *testing.T) {
	none := math.NaN()
	different := []float64{0.001, 0.9, none, 0.02}
	equivalent := []float64{0.5, 0.01, none, 0.04}
	d, e := Adjust(different, equivalent)
	want := map[string][2]float64{
		"smallest, times 3":                      {d[0], 0.003},
		"second, times 3":                        {e[1], 0.03},
		"third, times 3":                         {d[3], 0.06},
		"fourth, times 3":                        {e[3], 0.12},
		"fifth, times 2 and at most 1":           {e[0], 1},
		"largest, not below those before it":     {d[1], 1},
		"not tested (as a number for the table)": {b2f(math.IsNaN(d[2]) && math.IsNaN(e[2])), 1},
	}
	for what, pair := range want {
		near(t, what, pair[0], pair[1], 1e-12)
	}
	if d, e := Adjust(nil, nil); len(d) != 0 || len(e) != 0 {
		t.Error("adjusted nothing to something")
	}
}

// b2f is 1 for true.
func b2f(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// TestFamilyWiseError simulates runs with ten quantities. Those with an even index have the mean 0, so "different" is a
// wrong verdict. Those with an odd index have a mean at the limit, so "equivalent" is a wrong verdict. At most 5 % of
// the runs may have a wrong verdict: 200 of 4000, give or take 4 standard deviations (55).
func TestFamilyWiseError(t *testing.T) {
	const runs, limit = 4000, 0.05
	rng := rand.New(rand.NewPCG(3, 0))
	wrong, unadjusted := 0, 0
	for range runs {
		var samples []Sample
		for i := range 10 {
			values := make([]float64, 6)
			for j := range values {
				values[j] = limit*float64(i%2) + 0.03*rng.NormFloat64()
			}
			samples = append(samples, SampleOf(values))
		}
		var different, equivalent []float64
		for _, s := range samples {
			different, equivalent = append(different, s.PDifferent()), append(equivalent, s.PEquivalent(limit))
		}
		wrong += anyWrong(Adjust(different, equivalent))
		unadjusted += anyWrong(different, equivalent)
	}
	t.Logf("%d of %d runs with a wrong call, %d without the correction", wrong, runs, unadjusted)
	if wrong > 255 || unadjusted < 1000 {
		t.Errorf("%d of %d runs with a wrong call, %d without the correction", wrong, runs, unadjusted)
	}
}

// anyWrong returns 1 if a run of TestFamilyWiseError has a wrong verdict at the level of 5 %.
func anyWrong(different, equivalent []float64) int {
	for i := range different {
		if i%2 == 0 && different[i] <= 0.05 || i%2 == 1 && equivalent[i] <= 0.05 {
			return 1
		}
	}
	return 0
}
