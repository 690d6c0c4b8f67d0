package experiment_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	. "github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
)

func TestBalancedOrder(t *testing.T) {
	for n := 1; n <= 9; n++ {
		rows := n
		if n%2 == 1 {
			rows = 2 * n
		}
		places := map[[2]int]int{}
		follows := map[[2]int]int{}
		for i := range rows {
			order := BalancedOrder(n, i)
			for place, load := range order {
				places[[2]int{place, load}]++
				if place > 0 {
					follows[[2]int{order[place-1], load}]++
				}
			}
		}
		for place := range n {
			for load := range n {
				if got := places[[2]int{place, load}]; got != rows/n {
					t.Errorf("n=%d: load %d stands %d times in place %d, want %d", n, load, got, place, rows/n)
				}
				if got := follows[[2]int{place, load}]; place != load && got != rows/n {
					t.Errorf("n=%d: load %d follows %d %d times, want %d", n, load, place, got, rows/n)
				}
			}
		}
	}
}

// quickOfThree is quick with three devices, whatever it ships with.
func quickOfThree(t *testing.T) *Experiment {
	t.Helper()
	e, err := known.Builtin("quick")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(e.Set("duts", "opennds,allowlist,coovachilli"), longWindows(e), e.Set("blocks", "4"), e.Set(
		"aa_blocks", "2")); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestPlanOfQuick(t *testing.T) {
	e := quickOfThree(t)
	var got []string
	for _, b := range e.Plan() {
		got = append(got, fmt.Sprintf("%s %d %s %g,%g", b.DUT(), b.Index, b.DUTLab, b.Cells[0].Number(result.OfferedMbps),
			b.Cells[1].Number(result.OfferedMbps)))
	}
	want := []string{
		"opennds 0 a 100,1000", "allowlist 0 b 100,1000", "coovachilli 0 a 100,1000",
		"clean 0 a 100,1000",
		"coovachilli 1 b 1000,100", "opennds 1 b 1000,100", "allowlist 1 a 1000,100",
		"allowlist 2 b 100,1000", "coovachilli 2 a 100,1000", "opennds 2 a 100,1000",
		"clean 1 b 1000,100",
		"opennds 3 b 1000,100", "allowlist 3 a 1000,100", "coovachilli 3 b 1000,100",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

func TestPlanIsCompleteAndBalanced(t *testing.T) {
	e, err := known.Parse("x.toml", []byte(`
duts = ["opennds", "clean", "coovachilli"]
clients = [1, 20, 100]
offered_mbps = [100, 200, 400]
directions = ["up", "down"]
profiles = ["bulk", "per-packet"]
blocks = 6
aa_blocks = 4
`))
	if err != nil {
		t.Fatal(err)
	}
	plan := e.Plan()
	if diff := cmp.Diff(plan, e.Plan()); diff != "" {
		t.Errorf("plan differs from call to call:\n%s", diff)
	}
	settings := 3 * 2 * 2
	if want := settings * (2*6 + 4); len(plan) != want {
		t.Fatalf("%d blocks, want %d", len(plan), want)
	}
	type group struct {
		dut                string
		clients            int
		direction, profile string
	}
	indices := map[group][]int{}
	labs := map[group]int{}
	for _, b := range plan {
		g := group{b.DUT(), b.Clients(), b.Cell.Text(result.Direction), b.Cell.Text(result.Profile)}
		indices[g] = append(indices[g], b.Index)
		labs[g] += map[string]int{"a": 1, "b": -1}[b.DUTLab]
		if b.AA != (b.DUT() == Clean) {
			t.Errorf("AA = %v for %s", b.AA, b.DUT())
		}
		var loads []float64
		for _, c := range b.Cells {
			if c.Text(result.DUT) != b.DUT() || c.Int(result.Clients) != b.Clients() ||
				c.Text(result.Direction) != b.Cell.Text(result.Direction) || c.Text(result.Profile) != b.Cell.Text(result.Profile) {
				t.Errorf("cell %+v in block of %+v", c, g)
			}
			loads = append(loads, c.Number(result.OfferedMbps))
		}
		slices.Sort(loads)
		if !slices.Equal(loads, []float64{100, 200, 400}) {
			t.Errorf("loads %v in a block", loads)
		}
	}
	if len(indices) != settings*3 {
		t.Errorf("%d groups, want %d", len(indices), settings*3)
	}
	for g, got := range indices {
		want := []int{0, 1, 2, 3, 4, 5}
		if g.dut == Clean {
			want = want[:4]
		}
		if !slices.Equal(got, want) || labs[g] != 0 {
			t.Errorf("%+v: blocks %v, labs off balance by %d", g, got, labs[g])
		}
	}
	// Drift hits all alike: every group's blocks have about the same mean place.
	sum := map[string]float64{}
	count := map[string]float64{}
	for i, b := range plan {
		sum[b.DUT()] += float64(i)
		count[b.DUT()]++
	}
	middle := float64(len(plan)-1) / 2
	for d := range sum {
		if mean := sum[d] / count[d]; mean < middle*0.97 || mean > middle*1.03 {
			t.Errorf("%s lies around block %.1f of %d", d, mean, len(plan))
		}
	}
}

func TestPlanOfCleanAlone(t *testing.T) {
	e, err := known.Parse("x.toml", []byte("duts = [\"clean\"]\nclients = [1]\noffered_mbps = [1]\naa_blocks = 3\n"))
	if err != nil {
		t.Fatal(err)
	}
	plan := e.Plan()
	if len(plan) != 3 || !plan[0].AA || !plan[2].AA {
		t.Errorf("plan %+v", plan)
	}
}

// TestEstimatedDuration compares the estimate with the time that real runs took.
func TestEstimatedDuration(t *testing.T) {
	for _, run := range []struct {
		name, duts, aaBlocks string
		took                 time.Duration // sum of its block records
	}{
		{"quick", "opennds,allowlist,coovachilli", "2", 135 * time.Second},
		{"portal-bandwidth", "opennds,coovachilli", "6", 831 * time.Second},
		{"portal-clients", "opennds,coovachilli", "4", 862 * time.Second},
	} {
		e, err := known.Builtin(run.name)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(e.Set("duts", run.duts), e.Set("aa_blocks", run.aaBlocks), longWindows(e)); err != nil {
			t.Fatal(err)
		}
		if share := float64(e.EstimatedDuration()) / float64(run.took); share < 5./6 || share > 6./5 {
			t.Errorf("%s is estimated at %v and took %v", run.name, e.EstimatedDuration(), run.took)
		}
	}
}

// longWindows gives an experiment three windows of a second, as those runs had.
func longWindows(e *Experiment) error {
	errs := []error{e.Set("windows", "3")}
	if e.Name == "quick" {
		errs = append(errs, e.Set("window", "1s"), e.Set("warmup", "500ms"), e.Set("blocks", "3"))
	}
	return errors.Join(errs...)
}

func TestSoloTakesTheWindowsTwice(t *testing.T) {
	e := quickOfThree(t)
	duet := e.EstimatedDuration()
	if err := e.Set("mode", "solo"); err != nil {
		t.Fatal(err)
	}
	// Fourteen blocks of two cells with 3 × 1 s, 12 % of them again, and 0.5 s more each.
	if more := e.EstimatedDuration() - duet; (more - 108*time.Second).Abs() > time.Second {
		t.Errorf("solo takes %v longer", more)
	}
}

func TestPossibleLeavesTheExperimentAsItIs(t *testing.T) {
	e := quickOfThree(t)
	all := len(e.Plan())
	one := e.WithDevices(func(dut string) bool { return dut == "opennds" })
	if !slices.Equal(one.DUTs, []string{"opennds"}) || len(e.DUTs) != 3 || len(e.Plan()) != all {
		t.Errorf("possible %v of %v", one.DUTs, e.DUTs)
	}
	if one.EstimatedDuration() >= e.EstimatedDuration() {
		t.Errorf("one device takes %v, three take %v", one.EstimatedDuration(), e.EstimatedDuration())
	}
}
