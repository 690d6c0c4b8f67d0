package analysis_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/result"
)

func doors() []analysistest.Door {
	return []analysistest.Door{
		{Name: "fast", LoginMs: 2, Limit: result.LimitGenerator},
		{Name: "slow", LoginMs: 100, Leaves: 4, Dies: true},
	}
}

func near(n analysis.Number, want float64) bool { return math.Abs(float64(n)/want-1) < 0.15 }

func TestStormsAreSummarised(t *testing.T) {
	s := analysis.Summarise(analysistest.Storms(1, doors(), []int{100, 40}, 5), analysis.Options{})
	if s.Measure != result.MeasureLogins || len(s.Cells) != 0 || len(s.Storms) != 4 || s.Trials.Accepted != 20 {
		t.Fatalf("measure %q, %d cells, %d of storms, %d accepted", s.Measure, len(s.Cells), len(s.Storms), s.Trials.Accepted)
	}
	if s.Storms[0].Clients != 40 || s.Storms[0].DUT != "fast" || s.Storms[3].DUT != "slow" {
		t.Errorf("order: %+v", s.Storms)
	}
	fast, slow := s.Storms[2], s.Storms[3]
	if !near(fast.Login.PerSecond.Mean, 500) || !near(fast.Login.MaxMs.Mean, 200) || !near(fast.Login.P50Ms.Mean, 101) || !near(fast.Login.RouterMs.Mean, 2) {
		t.Errorf("fast: %v a second, p50 %v, max %v ms, CPU %v ms", fast.Login.PerSecond, fast.Login.P50Ms, fast.Login.MaxMs, fast.Login.RouterMs)
	}
	if e := fast.Login.PerSecond; e.N != 5 || !e.HasInterval() || !(e.Lo < 500 && e.Hi > 500) {
		t.Errorf("interval over storms: %+v", e)
	}
	if !near(fast.PSSKiBPerClient.Mean, 20) || !near(fast.Login.RadiusMs.Mean, 0.1) || !near(fast.Login.ClientMs.Mean, 2./3) {
		t.Errorf("memory %v KiB, RADIUS %v ms, clients %v ms", fast.PSSKiBPerClient, fast.Login.RadiusMs, fast.Login.ClientMs)
	}
	if slow.Login.Asked != 500 || slow.Login.Failed() != 125 || slow.Login.Retried != 125 || slow.Died != 1 || slow.Lease.Failed() != 0 {
		t.Errorf("slow: %d asked, %d failed, %d retried, died %d times", slow.Login.Asked, slow.Login.Failed(), slow.Login.Retried, slow.Died)
	}
	if len(slow.Login.Failures) != 1 || slow.Login.Failures[0].Count != 125 || len(slow.Deaths) != 1 {
		t.Errorf("failures %+v, deaths %+v", slow.Login.Failures, slow.Deaths)
	}
	if slow.Login.Limit() != result.LimitDevice || fast.Login.Limit() != result.LimitGenerator {
		t.Errorf("limits %q and %q", slow.Login.Limit(), fast.Login.Limit())
	}
}

// TestCurveCountsThoseLeftOut: a curve is of all that asked, so it ends at the
// share that got through.
func TestCurveCountsThoseLeftOut(t *testing.T) {
	s := analysis.Summarise(analysistest.Storms(1, doors(), []int{100}, 3), analysis.Options{})
	for i, ends := range []float64{100, 75} {
		curve := s.Storms[i].Login.Curve
		last := curve[len(curve)-1]
		if float64(last.SharePct) != ends || len(curve) < 25 {
			t.Errorf("%s: %d points, the last at %v %%, want %g %%", s.Storms[i].DUT, len(curve), last.SharePct, ends)
		}
		for j := 1; j < len(curve); j++ {
			if curve[j].Ms < curve[j-1].Ms || curve[j].SharePct <= curve[j-1].SharePct {
				t.Errorf("%s: %v after %v", s.Storms[i].DUT, curve[j], curve[j-1])
			}
		}
	}
	if half := s.Storms[0].Login.Curve[20]; half.SharePct != 50 || !near(half.Ms, 100) {
		t.Errorf("half were in after %v ms (%v %%)", half.Ms, half.SharePct)
	}
}

func TestRejectedStormsCountForNothing(t *testing.T) {
	run := analysistest.Storms(1, doors()[:1], []int{10}, 3)
	for i := range run.Storms {
		run.Storms[i].Accepted, run.Storms[i].Rejects = i == 1, []string{"machine: other programs used 4 % of it"}
	}
	run.Storms[1].Rejects = nil
	run.Storms[1].Attempt = 1
	s := analysis.Summarise(run, analysis.Options{})
	c := s.Storms[0]
	if c.Storms != 1 || c.Rejected != 2 || c.Redone != 1 || c.Login.PerSecond.N != 1 || c.Login.PerSecond.HasInterval() || len(s.Rejects) != 1 || s.Rejects[0].Count != 2 {
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

// TestNobodyGetsIn: what no client shows is null, and the summary can be written.
func TestNobodyGetsIn(t *testing.T) {
	run := analysistest.Storms(1, []analysistest.Door{{Name: "shut", LoginMs: 5, Leaves: 1}}, []int{4}, 2)
	s := analysis.Summarise(run, analysis.Options{})
	c := s.Storms[0]
	if c.Login.Through != 0 || c.Login.PerSecond.Mean != 0 || c.Login.P99Ms.Mean.Known() || c.Login.RouterMs.Mean.Known() || len(c.Login.Curve) != 0 {
		t.Errorf("%+v", c.Login)
	}
	if _, err := json.Marshal(s); err != nil {
		t.Error(err)
	}
	empty := analysis.Summarise(result.Run{Environment: result.Environment{Measure: result.MeasureLogins}}, analysis.Options{})
	if empty.Measure != result.MeasureLogins || len(empty.Warnings) != 1 || empty.Warnings[0] != "No storm was accepted: there is nothing to conclude from." {
		t.Errorf("without storms: %q", empty.Warnings)
	}
}
