package analysis_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
)

// lightLoads adds noise to a run: another virtual machine steals a share of the CPU, and routers cost rise cores more
// at offered loads up to below, Mbit/s.
func lightLoads(run result.Run, steal, rise, below float64) result.Run {
	run.Trials = slices.Clone(run.Trials)
	for i := range run.Trials {
		t := &run.Trials[i]
		for _, m := range []*cost.Measurement{&cost.SidesOf(*t).DUT, &cost.SidesOf(*t).Clean} {
			m.Machine.Steal = 100 * steal
			if t.Cell.Number(result.OfferedMbps) <= below && t.Cell.Int(result.Clients) <= 100 {
				m.NAPINs += int64(rise * m.Seconds * 1e9)
			}
		}
	}
	return run
}

// across returns all figures that a summary computes from several loads or numbers of clients, by name.
func across(s analysis.Summary) map[string]analysis.Estimate {
	all := map[string]analysis.Estimate{}
	for _, sweep := range s.Sweeps {
		at := fmt.Sprintf("%s along %s", sweep.Cell, sweep.Along)
		for _, inc := range sweep.Increments {
			step := fmt.Sprintf("%s, %v to %v: ", at, inc.From, inc.To)
			all[step+"net"], all[step+"relative"], all[step+"proportion"], all[step+"ratio"] = inc.NetPct, inc.RelativePct,
				inc.Proportion, inc.RatioPct
		}
		for _, span := range sweep.Spans {
			step := fmt.Sprintf("%s, over %v to %v: ", at, span.From, span.To)
			all[step+"relative"], all[step+"ratio"] = span.RelativePct, span.RatioPct
		}
		if l := sweep.Linearity; l != nil {
			all[at+": slope"], all[at+": intercept"], all[at+": exponent"] = l.Slope, l.Intercept, l.Exponent
		}
		for _, l := range sweep.Trends {
			all[at+": line of "+l.Metric], all[at+": line's begin of "+l.Metric],
				all[at+": line over the clean router's of "+l.Metric] = l.Slope, l.Intercept, l.OverClean
		}
	}
	for _, m := range s.CostModels {
		for _, term := range m.Terms {
			all[fmt.Sprintf("model of %s: %s", m.Cell, term.Name)] = term.Value
		}
		for _, c := range m.Capacity {
			if !c.Saturated {
				all[fmt.Sprintf("model of %s with %d clients: capacity", m.Cell, c.Clients)] = c.Mbps
			}
		}
	}
	for _, q := range s.Quotients {
		for _, l := range q.Levels {
			at := fmt.Sprintf("%s over %s with %d clients: ", q.DUT, q.Over, l.Clients)
			all[at+"ratio"], all[at+"widening"] = l.Ratio, l.Widening
		}
	}
	return all
}

// TestWhatNoiseDoesAcrossLoads: for figures from several loads or numbers of clients, the interval of a noisy run
// contains the figure of the quiet run. Intervals of a quiet run are not widened.
func TestWhatNoiseDoesAcrossLoads(t *testing.T) {
	clients := crowd
	clients.DUTs = append(
		slices.Clone(crowd.DUTs), analysistest.DUT{Name: "other", Cost: analysistest.Cost{PerGbit: 9, PerClient: 0.02}})
	clients.Offered = []float64{100}
	all, unbounded := 0, 0
	out := map[string]int{} // figures that the noise moved out of their intervals
	for _, spec := range []analysistest.Spec{bandwidth, clients} {
		summarise := func(steal, rise float64) analysis.Summary {
			return (cost.Measure{}).Summarise(gateways(lightLoads(analysistest.Run(spec), steal, rise, 200)), analysis.Options{})
		}
		noisy := summarise(0.09, 0.013)
		quiet, is, unaware := across(summarise(0, 0)), across(noisy), across(summarise(0, 0.013))
		for name, q := range quiet {
			n, p := is[name], unaware[name]
			if !q.HasInterval() || !p.HasInterval() {
				continue
			}
			all++
			unbounded += map[bool]int{true: 1}[!n.HasInterval()] // counts figures without an interval
			if q.Mean < n.Lo || q.Mean > n.Hi {                  // false without an interval, as where a slope may be 0
				t.Errorf("%s: %v [%v, %v] does not contain the quiet run's %v", name, n.Mean, n.Lo, n.Hi, q.Mean)
			}
			if n.Lo > p.Lo || n.Hi < p.Hi {
				t.Errorf("%s: [%v, %v] is narrower than [%v, %v]", name, n.Lo, n.Hi, p.Lo, p.Hi)
			}
			if _, what, _ := strings.Cut(name, ": "); q.Mean < p.Lo || q.Mean > p.Hi {
				out[what]++
			}
		}
		for _, sweep := range noisy.Sweeps {
			for _, inc := range sweep.Increments {
				if crossed := inc.RelativePct.Lo <= 0 && inc.RelativePct.Hi >= 0; crossed && inc.Verdict == analysis.Different {
					t.Errorf("%s, to %v: %s over %v", sweep.Cell, inc.To, inc.Verdict, inc.RelativePct)
				}
				if crossed := inc.RatioPct.Lo <= 0 && inc.RatioPct.Hi >= 0; crossed && inc.RatioVerdict == analysis.Different {
					t.Errorf("%s, to %v: ratio %s over %v", sweep.Cell, inc.To, inc.RatioVerdict, inc.RatioPct)
				}
			}
		}
	}
	if unbounded*20 > all {
		t.Errorf("%d of %d figures have no interval for the noise", unbounded, all)
	}
	for _, what := range []string{
		"net", "relative", "proportion", "ratio", "slope", "intercept", "exponent", "constant", "gbit_s", "capacity",
		"widening",
		"line of enter_core_pct", "line's begin of enter_core_pct", "line over the clean router's of enter_core_pct",
	} {
		if out[what] == 0 {
			t.Errorf("%s: the noise moved none out of its interval: the test shows nothing", what)
		}
	}
}

// gateways makes two routers on each side, as a tunnel has. The first one does three quarters of the work.
func gateways(run result.Run) result.Run {
	for i := range run.Trials {
		t := &run.Trials[i]
		for _, m := range []*cost.Measurement{&cost.SidesOf(*t).DUT, &cost.SidesOf(*t).Clean} {
			ns := float64(m.NAPINs + m.ProcessNs)
			m.Metrics = map[string]float64{cost.EnterNs: 0.75 * ns, cost.LeaveNs: 0.25 * ns}
		}
	}
	return run
}
