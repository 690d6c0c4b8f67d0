package result_test

import (
	"math"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gateweigh/gateweigh/lab/result"
)

func TestStormsComeBackAsTheyWere(t *testing.T) {
	dir := t.TempDir()
	w, _, err := result.OpenWriter(dir)
	if err != nil {
		t.Fatal(err)
	}
	storm := result.Storm{
		DUT: "x", Clients: 3, LoginRate: 2.5, Block: 1, Start: time.Unix(5, 0).UTC(), Seconds: 7, Accepted: true,
		Login: result.Phase{Asked: 3, Through: 2, Ms: []float64{3, 9.001, 1}, GaveUp: []int{1}, RoleNs: map[string]int64{result.RoleRadius: 4}},
	}
	again := storm
	again.LoginRate = 0 // another storm, although at the same moment
	for _, s := range []result.Storm{storm, again, storm} {
		if err := w.AppendStorm(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	run, err := result.ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	storm.Version, storm.Kind = result.Version, result.KindStorm
	if len(run.Storms) != 2 || run.Repeated != 1 || run.Measure() != result.MeasureLogins || run.MeasuredFor() != 14*time.Second {
		t.Fatalf("%d storms, %d repeated, measure %s, measured for %v", len(run.Storms), run.Repeated, run.Measure(), run.MeasuredFor())
	}
	if diff := cmp.Diff(storm, run.Storms[0]); diff != "" {
		t.Errorf("(-written +read):\n%s", diff)
	}
	if got := run.Storms[0].Login.ThroughMs(); !slices.Equal(got, []float64{1, 3}) {
		t.Errorf("times of those that got through: %v", got)
	}
	bundle := filepath.Join(t.TempDir(), "b.tar.gz")
	if _, err := result.WriteBundle(t.Context(), dir, bundle, false); err != nil {
		t.Fatal(err)
	}
	read, forget, err := result.Open(t.Context(), bundle)
	defer forget()
	if err != nil || len(read.Storms) != 2 {
		t.Errorf("from a bundle: %v, %d storms", err, len(read.Storms))
	}
}

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

// TestSettledIsKnown: a device that tells no numbers is not said to have forgotten its
// guests.
func TestSettledIsKnown(t *testing.T) {
	some := result.DeviceState{Counts: map[string]int{"sessions": 3}}
	for name, c := range map[string]struct {
		churn result.Churn
		want  bool
	}{
		"as before":       {result.Churn{Before: some, After: some}, true},
		"one more":        {result.Churn{Before: some, After: result.DeviceState{Counts: map[string]int{"sessions": 4}}}, false},
		"tells nothing":   {result.Churn{}, false},
		"tells no longer": {result.Churn{Before: some}, false},
	} {
		if got := c.churn.Settled(); got != c.want {
			t.Errorf("%s: settled %v", name, got)
		}
	}
}
