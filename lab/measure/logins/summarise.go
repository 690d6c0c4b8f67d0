// Package logins measures login storms. All clients lease an address, and then all log in through the device's own
// pages, at once or at a rate. Each storm has its own lab. It is not compared with a clean router, which has no login.
//
// # What limits a storm
//
// An attempt lasts at most 20 s; with more than 2,000 clients, 10 ms for each of them and at most 90 s. No browser
// waits longer. A client that gets no answer tries again up to eight times, after 50 ms to 1 s. On a machine with two
// cores, one CPU carries all clients and the RADIUS server: if they need 10 ms of CPU for a login, the highest rate
// that can be measured is 100 a second. A storm is rejected if other programs used more than 30 % of the machine,
// plus four ticks of 10 ms.
package logins

import (
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Names of a cell's counts, tallies and curves. Those of a phase have its prefix.
const (
	Asked   = "asked"   // clients of all storms
	Through = "through" // clients that got through
	Tries   = "tries"
	Retried = "retried"

	Failures = "failures" // a tally: why clients gave up
	Refusals = "refusals" // a tally: why first attempts failed
	Limits   = "limits"   // a tally: what limited the storms' speed

	Died   = "died"   // accepted storms in which a program of the device ended by itself
	Deaths = "deaths" // a tally: how these programs ended
	// 1: the device leased the addresses; otherwise the lab did, and figures of leasing are not the device's
	DeviceLeases = "device_leases"
)

// Summarise computes the summary of a run that measured login storms.
func (Measure) Summarise(run result.Run, opts analysis.Options) analysis.Summary {
	storms := result.RecordsOf[Storm](run.MeasureRecords)
	in := analysis.Input{
		Run: run, Measure: Name, Dimensions: Dimensions, Noun: "storm", Metrics: Metrics, Trials: trialsOf(storms),
		Alone: true, ByFamily: []string{StormPerSecond, Lease + PerSecond, Login + PerSecond, Login + RouterMs},
		Compare: func(a, b result.Cell) int {
			return result.CompareCells(a, b, result.Clients, LoginRate, result.Family, result.DUT)
		},
		Warn: func(s analysis.Summary) []string {
			limitedBy := func(limit string) func(analysis.Cell) bool {
				return func(c analysis.Cell) bool {
					return slices.ContainsFunc(c.Tallies[Login+Limits], func(t analysis.Tally) bool { return t.Text == limit })
				}
			}
			return append(s.Remark(
				"The client host's CPU was full, so these devices may let clients in faster than shown", limitedBy(LimitGenerator)),
				s.Remark("The RADIUS server's CPU was full, so these devices may let clients in faster than shown",
					limitedBy(LimitRadius))...)
		},
	}
	in.Describe = func(c *analysis.Cell) { describe(c, storms) }
	return analysis.Summarise(in, opts)
}

// trialsOf returns the storms as trials, with the quantiles of the times of clients that got through.
func trialsOf(storms []*Storm) []analysis.Trial {
	out := make([]analysis.Trial, 0, len(storms))
	for _, s := range storms {
		t := analysis.TrialOf(s.Head, s.Cell(), 0, s)
		for name, p := range map[string]Phase{"lease": s.Lease, "login": s.Login} {
			ms := p.ThroughMs()
			for quantile, q := range map[string]float64{"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1} {
				t.Device[name+".through."+quantile] = result.Quantile(ms, q)
			}
		}
		out = append(out, t)
	}
	return out
}

// describe adds counts, tallies and curves to a cell.
func describe(c *analysis.Cell, storms []*Storm) {
	c.Counts, c.Tallies, c.Curves = map[string]int{}, map[string][]analysis.Tally{}, map[string][]analysis.CurvePoint{}
	var deaths analysis.Tallies
	var accepted []*Storm
	for _, s := range storms {
		if !s.Accepted || s.Cell() != c.Cell {
			continue
		}
		accepted = append(accepted, s)
		if s.DeviceLeases {
			c.Counts[DeviceLeases] = 1
		}
		if len(s.Died) > 0 {
			c.Counts[Died]++
		}
		for _, text := range s.Died {
			deaths.Add(text, 1)
		}
	}
	c.Tallies[Deaths] = deaths.Sorted()
	describePhase(c, Lease, accepted, func(s *Storm) Phase { return s.Lease })
	describePhase(c, Login, accepted, func(s *Storm) Phase { return s.Login })
}

// describePhase adds the counts, tallies and curve of one phase, over all given storms.
func describePhase(c *analysis.Cell, prefix string, storms []*Storm, phaseFrom func(*Storm) Phase) {
	var failures, refusals, limits analysis.Tallies
	var through []float64
	for _, s := range storms {
		p := phaseFrom(s)
		c.Counts[prefix+Asked] += p.Asked
		c.Counts[prefix+Through] += p.Through
		c.Counts[prefix+Tries] += p.Tries
		c.Counts[prefix+Retried] += p.Retried
		limits.Add(p.Limit, 1)
		failures.AddReasons(p.Failures)
		refusals.AddReasons(p.Refusals)
		through = append(through, p.ThroughMs()...)
	}
	c.Tallies[prefix+Failures], c.Tallies[prefix+Refusals], c.Tallies[prefix+Limits] = failures.Sorted(),
		refusals.Sorted(), limits.Sorted()
	c.Curves[prefix+Through] = throughCurve(through, c.Counts[prefix+Asked])
}

// curveSteps is the number of steps of a curve: each is 2.5 % of the clients.
const curveSteps = 40

// throughCurve returns the time, ms, in which each share of all clients got through, in steps of 2.5 %. It ends at the
// last client that got through.
func throughCurve(through []float64, total int) []analysis.CurvePoint {
	slices.Sort(through)
	out := []analysis.CurvePoint{}
	for step := range curveSteps + 1 {
		nth := (total*step + curveSteps - 1) / curveSteps // rounded up
		if nth = max(nth, 1); nth > len(through) {
			break
		}
		share := analysis.Over(100*float64(nth), float64(total))
		if n := len(out); n == 0 || out[n-1].SharePct < analysis.Number(share) {
			out = append(out, analysis.CurvePoint{Ms: analysis.Number(through[nth-1]), SharePct: analysis.Number(share)})
		}
	}
	return out
}
