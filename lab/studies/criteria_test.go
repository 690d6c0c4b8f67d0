// A test that a study's printed figures, taken for a run that was measured without noise, give the findings that the
// study states. A measuredCourse has what the study prints of a router, by level (course.go).

package studies

import (
	"math"
	"slices"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
)

// TestCriteriaOnPublishedValues gives the study's own figures, as if they had
// been measured without any noise, to the criteria its claims are judged by.
// They must find what the study finds, but for the one sentence that its own
// table 5.8 contradicts.
func TestCriteriaOnPublishedValues(t *testing.T) {
	var runs []analysis.Summary
	for _, s := range study1.Sweeps {
		runs = append(runs, asMeasured(s))
	}
	// The text calls the whole rise beyond 10 clients negligible. The tables say so only of each step.
	contradicted := []string{
		"largest-step-1-to-10-clients/gateway-nfqueue", "negligible-beyond-10-clients/clean",
		"negligible-beyond-10-clients/coovachilli", "negligible-beyond-10-clients/gateway-nfqueue",
	}
	judged := 0
	for _, f := range Beside(runs...)[0].Findings {
		if f.Holds == nil {
			t.Errorf("%s is not tested: %s %s", f.ID, f.Here, f.Expect)
			continue
		}
		judged++
		if want := !slices.Contains(contradicted, f.ID); *f.Holds != want {
			t.Errorf("%s: holds %v, want %v: %s", f.ID, *f.Holds, want, f.Here)
		}
	}
	// Two claims on portals and six on all routers, and two on the pair that is compared.
	if want := 2*2 + 6*3 + 2; judged != want {
		t.Errorf("%d findings, want %d", judged, want)
	}
}

// asMeasured is the summary of a run that measured just what the study prints.
func asMeasured(sw *Sweep) analysis.Summary {
	s := analysis.Summary{Experiment: sw.Run, Mode: result.ModeDuet, Delta: 0.05}
	courses := map[string]measuredCourse{}
	for _, r := range sw.published(study1.Scenarios).Routers {
		courses[r.Published] = r.published
	}
	cpu := func(sc Scenario, level float64) float64 {
		return float64(courses[sc.Published].estimate(normalised, level).Mean)
	}
	for _, sc := range study1.Scenarios {
		c := courses[sc.Published]
		setting := sw.Fixed.With(result.Direction, result.Up).With(result.Profile, result.PerPacket)
		sweep := analysis.Sweep{Cell: setting.With(result.DUT, sc.DUT), Along: sw.Along}
		for i, level := range c.levels {
			value := func(m Metric) analysis.Estimate { return withoutNoise(float64(c.estimate(m, level).Mean)) }
			sweep.Levels = append(sweep.Levels, analysis.Level{
				Level: analysis.Number(level), LinkMbps: value(link), CPUSampled: value(sampled), CPUNormalised: value(normalised),
			})
			for j, from := range c.levels[:i] {
				rise := withoutNoise(100 * (cpu(sc, level)/cpu(sc, from) - 1))
				if j == i-1 {
					sweep.Increments = append(sweep.Increments, analysis.Increment{
						From: analysis.Number(from), To: analysis.Number(level), NetPct: withoutNoise(cpu(sc, level) - cpu(sc, from)),
						RelativePct: rise,
					})
				} else {
					sweep.Spans = append(
						sweep.Spans, analysis.Span{From: analysis.Number(from), To: analysis.Number(level), RelativePct: rise})
				}
			}
			if sc.DUT != analysis.Clean {
				ratio := withoutNoise(cpu(sc, level) / cpu(study1.Scenarios[0], level))
				s.Cells = append(s.Cells, analysis.Cell{
					Cell:    sweep.Cell.With(sw.Along, level),
					Metrics: analysis.Figures{cost.PerBit: {Change: &ratio}},
				})
			}
		}
		s.Sweeps = append(s.Sweeps, sweep)
	}
	if sw.Along == result.Clients {
		a, b := study1.Scenarios[1], study1.Scenarios[2]
		q := analysis.Quotient{
			DUT: a.DUT, Over: b.DUT, Cell: sw.Fixed.With(result.Direction, result.Up).With(result.Profile, result.PerPacket)}
		apart := func(level float64) float64 { return math.Abs(math.Log(cpu(a, level) / cpu(b, level))) }
		levels := courses[a.Published].levels
		for _, level := range levels {
			q.Levels = append(q.Levels, analysis.QuotientLevel{
				Clients: int(level), Ratio: withoutNoise(cpu(a, level) / cpu(b, level)),
				Widening: withoutNoise(math.Exp(apart(level) - apart(levels[0]))),
			})
		}
		s.Quotients = append(s.Quotients, q)
	}
	return s
}

// withoutNoise is an estimate without noise.
func withoutNoise(v float64) analysis.Estimate {
	n := analysis.Number(v)
	return analysis.Estimate{Mean: n, Lo: n, Hi: n, N: 6}
}
