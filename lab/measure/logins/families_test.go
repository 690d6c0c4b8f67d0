package logins_test

import (
	"math"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure/logins"
	"github.com/gateweigh/gateweigh/lab/result"
)

// TestStormsByFamily: a storm of clients with both families is compared with the one by IPv4, round by round, by the
// rates of leasing, of logging in, and of both together. The ratios have intervals that hold what is true.
func TestStormsByFamily(t *testing.T) {
	var run result.Run
	// Leasing takes a quarter of a login's time: with both families all takes a quarter more.
	for family, ms := range map[string]float64{"4": 2, "both": 2.5} {
		queue := []analysistest.LoginQueue{{Name: "gate", LoginMs: ms}}
		one := analysistest.Storms(uint64(len(family)), queue, []int{100}, 8)
		for _, e := range one.MeasureRecords {
			s := e.Record.(*logins.Storm)
			s.Dimensions = s.Cell().With(result.Family, family)
			e.Cell = s.Cell()
			run.MeasureRecords = append(run.MeasureRecords, e)
		}
		run.Environment = one.Environment
	}
	s := logins.Measure{}.Summarise(run, analysis.Options{})
	seen := map[string]bool{}
	for _, f := range s.Families {
		seen[f.Metric] = true
		if f.Cell.Text(result.Family) != "both" || f.Ratio.N != 8 || !f.Ratio.HasInterval() {
			t.Errorf("%+v", f)
		}
		want := 0.8
		if f.Metric == logins.Login+logins.RouterMs {
			want = 1.25
		}
		lo, hi := float64(f.Ratio.Lo), float64(f.Ratio.Hi)
		if math.Abs(float64(f.Ratio.Mean)-want) > 0.08*want || lo > want || hi < want {
			t.Errorf("%s: %+v, want %g", f.Metric, f.Ratio, want)
		}
	}
	for _, name := range []string{
		logins.StormPerSecond, logins.Lease + logins.PerSecond, logins.Login + logins.PerSecond} {
		if !seen[name] {
			t.Errorf("%s is not compared: %v", name, s.Families)
		}
	}
	rate := func(metric string) float64 { return float64(s.Cells[0].Device(metric).Mean) }
	lease, login := rate(logins.Lease+logins.PerSecond), rate(logins.Login+logins.PerSecond)
	if got, want := rate(logins.StormPerSecond), 1/(1/lease+1/login); math.Abs(got/want-1) > 0.01 {
		t.Errorf("%g clients a second through both, want %g", got, want)
	}
}

// TestStormsOfOneFamily: there is nothing to compare.
func TestStormsOfOneFamily(t *testing.T) {
	run := analysistest.Storms(7, []analysistest.LoginQueue{{Name: "gate", LoginMs: 2}}, []int{100}, 3)
	if s := (logins.Measure{}).Summarise(run, analysis.Options{}); len(s.Families) != 0 {
		t.Errorf("%+v", s.Families)
	}
}
