package cost

import (
	"slices"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// TestGuestsAreSummedOverBlocks: a cell's counts of guests, who come, log in and leave while other clients send, are
// the sums over its blocks; times, memory and connections are means.
func TestGuestsAreSummedOverBlocks(t *testing.T) {
	// visits gives a block ten guests. in of them logged in, and gone of them left again. The device knew 3 sessions
	// before the guests, and after sessions when they had left.
	visits := func(in, gone, after int) func(*result.Block) {
		return func(b *result.Block) {
			StayOf(*b).Churn = &Churn{
				PerSecond: 5, Came: 10, In: in, Gone: gone, LoginP99Ms: 40,
				Failures: []result.Reason{{First: "no 7", Count: 10 - in}},
				Before:   DeviceState{PSSMiB: 10, Flows: 7, Counts: map[string]int{"sessions": 3}},
				After:    DeviceState{PSSMiB: 12, RuleLines: 4, Flows: 30, Counts: map[string]int{"sessions": after}},
			}
			if after != 3 {
				StayOf(*b).Churn.After.Counts["idle"] = 2
			}
		}
	}
	blocks := []result.Block{blockWith("a", 3, visits(10, 10, 3)), blockWith("a", 3, visits(8, 7, 4)), blockWith("b", 3,
		visits(1, 1, 9)), blockWith("a", 3, func(*result.Block) {})}
	c := cellWith(blocks, "a", 3, 50)
	if c.Counts[GuestBlocks] != 2 || c.Counts[GuestsSettled] != 1 || c.Counts[GuestsCame] != 20 ||
		c.Counts[GuestsIn] != 18 || c.Counts[GuestsGone] != 17 || c.Device("guests_per_second").Mean != 5 {
		t.Errorf("%+v, %v a second", c.Counts, c.Device("guests_per_second"))
	}
	if before, after := c.Device("pss_before_mib").Mean, c.Device("pss_after_mib").Mean; before != 10 || after != 12 {
		t.Errorf("memory %v to %v MiB", before, after)
	}
	if p50, p99 := c.Device("guest_login_p50_ms").Mean, c.Device("guest_login_p99_ms").Mean; p99 != 40 || p50.Known() {
		t.Errorf("p99 %v, p50 %v", p99, p50)
	}
	if before, after := c.Device("flows_before").Mean, c.Device("flows_after").Mean; c.Counts[GuestsCounted] != 2 ||
		before != 7 || after != 30 {
		t.Errorf("counted in %d blocks, %v to %v connections", c.Counts[GuestsCounted], before, after)
	}
	if names := CountNames(c); !slices.Equal(names, []string{"idle", "sessions"}) {
		t.Errorf("the device's own numbers: %q", names)
	}
	for name, want := range map[string][2]analysis.Number{"idle": {0, 1}, "sessions": {3, 3.5}} {
		if before, after := c.Device(CountBefore+name), c.Device(CountAfter+name); before.Mean != want[0] ||
			after.Mean != want[1] || after.Lo < 0 {
			t.Errorf("%s: %+v to %+v, want %v", name, before, after, want)
		}
	}
	if got := c.Tallies[GuestFailures]; len(got) != 1 || got[0] != (analysis.Tally{Text: "no 7", Count: 2}) {
		t.Errorf("failures %+v", got)
	}
}

// TestSettledNeedsCounts: a device has settled if it counts as many sessions after its guests as before them. A device
// that reports no counts has not.
func TestSettledNeedsCounts(t *testing.T) {
	some := DeviceState{Counts: map[string]int{"sessions": 3}}
	for name, c := range map[string]struct {
		churn Churn
		want  bool
	}{
		"as before": {Churn{Before: some, After: some}, true},
		"one more": {
			Churn{Before: some, After: DeviceState{Counts: map[string]int{"sessions": 4}}}, false},
		"tells nothing":   {Churn{}, false},
		"tells no longer": {Churn{Before: some}, false},
	} {
		if got := c.churn.Settled(); got != c.want {
			t.Errorf("%s: settled %v", name, got)
		}
	}
}
