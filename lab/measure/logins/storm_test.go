package logins_test

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gateweigh/gateweigh/lab/measure/logins"
	"github.com/gateweigh/gateweigh/lab/result"
)

// TestStormsComeBackAsTheyWere: records of login storms are read as they were written, from the run's folder and from a
// bundle. A record that was written twice counts once.
func TestStormsComeBackAsTheyWere(t *testing.T) {
	dir := t.TempDir()
	w, _, err := result.OpenWriter(dir)
	if err != nil {
		t.Fatal(err)
	}
	storm := logins.Storm{
		Head: result.Head{Block: 1, Start: time.Unix(5, 0).UTC(), Seconds: 7, Accepted: true}, DUT: "x", Clients: 3,
		LoginRate: 2.5,
		Login: logins.Phase{
			Asked: 3, Through: 2, Ms: []float64{3, 9.001, 1}, GaveUp: []int{1}, RoleNs: map[string]int64{result.RoleRadius: 4}},
	}
	again := storm
	again.LoginRate = 0 // another storm, although at the same moment
	for _, s := range []logins.Storm{storm, again, storm} {
		if err := w.Append(logins.KindStorm, &s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	run, err := result.ReadRun(dir, logins.Measure{}.Records()...)
	if err != nil {
		t.Fatal(err)
	}
	storm.Version, storm.Kind = result.Version, logins.KindStorm
	storms := result.RecordsOf[logins.Storm](run.MeasureRecords)
	if len(storms) != 2 || run.Repeated != 1 || run.MeasuredFor() != 14*time.Second {
		t.Fatalf("%d storms, %d repeated, measured for %v", len(storms), run.Repeated, run.MeasuredFor())
	}
	if diff := cmp.Diff(storm, *storms[0]); diff != "" {
		t.Errorf("(-written +read):\n%s", diff)
	}
	if got := storms[0].Login.ThroughMs(); !slices.Equal(got, []float64{1, 3}) {
		t.Errorf("times of those that got through: %v", got)
	}
	bundle := filepath.Join(t.TempDir(), "b.tar.gz")
	if _, err := result.WriteBundle(t.Context(), dir, bundle, false); err != nil {
		t.Fatal(err)
	}
	read, forget, err := result.Open(t.Context(), bundle, logins.Measure{}.Records()...)
	defer forget()
	if err != nil || len(result.RecordsOf[logins.Storm](read.MeasureRecords)) != 2 {
		t.Errorf("from a bundle: %v, %d own records", err, len(read.MeasureRecords))
	}
}
