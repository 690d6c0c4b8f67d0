package logins_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure/logins"
	"github.com/gateweigh/gateweigh/lab/result"
)

// The tests of this file summarise login storms that analysistest.Storms computes for a device that serves one client
// after the other: seed, devices, numbers of clients, blocks.

// loginQueues are two devices. "fast" takes 2 ms for a login. "slow" takes 100 ms, every fourth client gives up at it,
// and its program ends in one storm.
func loginQueues() []analysistest.LoginQueue {
	return []analysistest.LoginQueue{
		{Name: "fast", LoginMs: 2, Limit: logins.LimitGenerator},
		{Name: "slow", LoginMs: 100, Leaves: 4, Dies: true},
	}
}

// isNear reports whether n is within 15 % of want.
func isNear(n analysis.Number, want float64) bool { return math.Abs(float64(n)/want-1) < 0.15 }

// login is the mean of a metric of logging in.
func login(c analysis.Cell, metric string) analysis.Number {
	return c.Device(logins.Login + metric).Mean
}

// TestStormsAreSummarised: order, metrics, counts and tallies of the cells of five blocks of storms.
func TestStormsAreSummarised(t *testing.T) {
	s := (logins.Measure{}).Summarise(analysistest.Storms(1, loginQueues(), []int{100, 40}, 5), analysis.Options{})
	if s.Measure != logins.Name || len(s.Cells) != 4 || s.Trials.Accepted != 20 {
		t.Fatalf("measure %q, %d cells, %d accepted", s.Measure, len(s.Cells), s.Trials.Accepted)
	}
	if s.Cells[0].Int(result.Clients) != 40 || s.Cells[0].DUT() != "fast" || s.Cells[3].DUT() != "slow" {
		t.Errorf("order: %+v", s.Cells)
	}
	fast, slow := s.Cells[2], s.Cells[3]
	if !isNear(login(fast, "per_second"), 500) || !isNear(login(fast, "max_ms"), 200) ||
		!isNear(login(fast, "p50_ms"), 101) ||
		!isNear(login(fast, "router_ms"), 2) {
		t.Errorf("fast: %v a second, p50 %v, max %v ms, CPU %v ms", login(fast, "per_second"), login(fast, "p50_ms"),
			login(fast, "max_ms"), login(fast, "router_ms"))
	}
	if e := fast.Device(logins.Login + logins.PerSecond); e.N != 5 || !e.HasInterval() || !(e.Lo < 500 && e.Hi > 500) {
		t.Errorf("interval over storms: %+v", e)
	}
	if memory := fast.Device("pss_kib_per_client"); !isNear(memory.Mean, 20) || !isNear(login(fast, "radius_ms"), 0.1) ||
		!isNear(login(fast, "client_ms"), 2./3) {
		t.Errorf("memory %v KiB, RADIUS %v ms, clients %v ms", memory, login(fast, "radius_ms"), login(fast, "client_ms"))
	}
	wantCounts := map[string]int{
		logins.Lease + logins.Asked: 500, logins.Lease + logins.Through: 500, logins.Lease + logins.Tries: 500,
		logins.Lease + logins.Retried: 0,
		logins.Login + logins.Asked:   500, logins.Login + logins.Through: 375, logins.Login + logins.Tries: 1375,
		logins.Login + logins.Retried: 125,
		logins.Died:                   1, logins.DeviceLeases: 1,
	}
	if diff := cmp.Diff(wantCounts, slow.Counts); diff != "" {
		t.Errorf("slow (-want +got):\n%s", diff)
	}
	failures, deaths := slow.Tallies[logins.Login+logins.Failures], slow.Tallies[logins.Deaths]
	if len(failures) != 1 || failures[0].Count != 125 || len(deaths) != 1 {
		t.Errorf("failures %+v, deaths %+v", failures, deaths)
	}
	limits := func(c analysis.Cell) []analysis.Tally { return c.Tallies[logins.Login+logins.Limits] }
	if limits(slow)[0].Text != logins.LimitDevice || limits(fast)[0].Text != logins.LimitGenerator {
		t.Errorf("limits %+v and %+v", limits(slow), limits(fast))
	}
}

// TestCurveCountsThoseLeftOut: a curve of logins over time counts all clients that tried to log in, so it ends at the
// share that succeeded: 100 % at the device "fast", 75 % at "slow".
func TestCurveCountsThoseLeftOut(t *testing.T) {
	s := (logins.Measure{}).Summarise(analysistest.Storms(1, loginQueues(), []int{100}, 3), analysis.Options{})
	for i, ends := range []float64{100, 75} {
		curve := s.Cells[i].Curves[logins.Login+logins.Through]
		last := curve[len(curve)-1]
		if float64(last.SharePct) != ends || len(curve) < 25 {
			t.Errorf("%s: %d points, the last at %v %%, want %g %%", s.Cells[i].DUT(), len(curve), last.SharePct, ends)
		}
		for j := 1; j < len(curve); j++ {
			if curve[j].Ms < curve[j-1].Ms || curve[j].SharePct <= curve[j-1].SharePct {
				t.Errorf("%s: %v after %v", s.Cells[i].DUT(), curve[j], curve[j-1])
			}
		}
	}
	if half := s.Cells[0].Curves[logins.Login+logins.Through][20]; half.SharePct != 50 || !isNear(half.Ms, 100) {
		t.Errorf("half were in after %v ms (%v %%)", half.Ms, half.SharePct)
	}
}

// TestRejectedStormsCountForNothing: metrics are over the accepted storms alone, and a warning counts the rejected
// ones.
func TestRejectedStormsCountForNothing(t *testing.T) {
	run := analysistest.Storms(1, loginQueues()[:1], []int{10}, 3)
	storms := result.RecordsOf[logins.Storm](run.MeasureRecords)
	for i := range storms {
		storms[i].Accepted, storms[i].Rejects = i == 1, []string{"machine: other programs used 4 % of it"}
	}
	storms[1].Rejects = nil
	storms[1].Attempt = 1
	s := (logins.Measure{}).Summarise(run, analysis.Options{})
	c := s.Cells[0]
	rate := c.Device(logins.Login + logins.PerSecond)
	if c.Pairs != 1 || c.Rejected != 2 || c.Redone != 1 || rate.N != 1 || rate.HasInterval() || len(s.Rejects) != 1 ||
		s.Rejects[0].Count != 2 {
		t.Errorf("%+v, rejects %+v", c, s.Rejects)
	}
	text := strings.Join(s.Warnings, " ")
	for _, want := range []string{"2 of 3 storms were rejected", "One storm only", "The client host's CPU was full"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	if strings.Contains(text, "A/A") {
		t.Errorf("storms have no A/A pairs: %s", text)
	}
}

// TestStormWithoutLogins: if no client logs in, times of logins are null, and the summary can still be written.
func TestStormWithoutLogins(t *testing.T) {
	run := analysistest.Storms(1, []analysistest.LoginQueue{{Name: "shut", LoginMs: 5, Leaves: 1}}, []int{4}, 2)
	s := (logins.Measure{}).Summarise(run, analysis.Options{})
	c := s.Cells[0]
	if c.Counts[logins.Login+logins.Through] != 0 || login(c, "per_second") != 0 || login(c, "p99_ms").Known() ||
		login(c, "router_ms").Known() || len(c.Curves[logins.Login+logins.Through]) != 0 {
		t.Errorf("%+v", c)
	}
	if _, err := json.Marshal(s); err != nil {
		t.Error(err)
	}
	empty := (logins.Measure{}).Summarise(
		result.Run{Environment: result.Environment{Measure: logins.Name}}, analysis.Options{})
	if empty.Measure != logins.Name || len(empty.Warnings) != 1 ||
		empty.Warnings[0] != "No storm was accepted: there is nothing to conclude from." {
		t.Errorf("without storms: %q", empty.Warnings)
	}
}

// TestFailedBlockSinceMeasured: a failed block counts as measured if a later sitting has its storm.
func TestFailedBlockSinceMeasured(t *testing.T) {
	run := analysistest.Storms(1, loginQueues()[:1], []int{10}, 2)
	for block := range 2 {
		run.Blocks = append(run.Blocks, result.Block{DUT: "fast", Clients: 10, Block: block, Error: "agent ended"})
	}
	result.RecordsOf[logins.Storm](run.MeasureRecords)[1].Sitting = 1
	failed := (logins.Measure{}).Summarise(run, analysis.Options{}).FailedBlocks
	if len(failed) != 2 || failed[0].Measured || !failed[1].Measured {
		t.Errorf("%+v, want only the second measured since", failed)
	}
}
