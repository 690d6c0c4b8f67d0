// Package logins measures login storms: clients that all lease an address and then all log in
// through a device's own pages, at once or at a rate. A storm has a lab of its own and no clean
// router, since a clean router has no login.
//
// # What limits a storm
//
// An attempt lasts at most 20 s, with more than 2,000 clients 10 ms for each of them and at most 90 s: no browser
// waits longer. A client that gets no answer tries again up to eight times, after 50 ms to 1 s. On two cores one
// CPU carries all clients and the RADIUS server, so 1 s over their CPU a login is the highest rate that can be
// measured. A storm is rejected where other programs had more than 30 % of the machine, plus four ticks of 10 ms.
package logins

import (
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Counts, tallies and curves of a cell. Those of a phase carry its prefix.
const (
	Asked   = "asked"   // clients of all storms
	Through = "through" // those of them that got through
	Tries   = "tries"
	Retried = "retried"

	Failures = "failures" // a tally: why clients gave up
	Refusals = "refusals" // a tally: why first attempts failed
	Limits   = "limits"   // a tally: what limited the storms' speed

	Died   = "died"   // accepted storms in which a program of the device ended by itself
	Deaths = "deaths" // a tally of them
	// 1: the device leased the addresses; otherwise the lab did, and leasing says nothing of the device
	DeviceLeases = "device_leases"
)

// Summarise computes the summary of a run that measured login storms.
func (Measure) Summarise(run result.Run, opts analysis.Options) analysis.Summary {
	storms := result.RecordsOf[Storm](run.Own)
	in := analysis.Input{
		Run: run, Measure: Name, Dimensions: Dimensions, Noun: "storm", Metrics: Metrics, Trials: trialsOf(storms),
		Alone: true,
		Compare: func(a, b result.Cell) int {
			return result.CompareCells(a, b, result.Clients, LoginRate, result.DUT)
		},
		Warn: func(s analysis.Summary) []string {
			held := func(limit string) func(analysis.Cell) bool {
				return func(c analysis.Cell) bool {
					return slices.ContainsFunc(c.Tallies[Login+Limits], func(t analysis.Tally) bool { return t.Text == limit })
				}
			}
			return append(s.Remark(
				"The client host's CPU was full, so these devices may let clients in faster than shown", held(LimitGenerator)),
				s.Remark("The RADIUS server's CPU was full, so these devices may let clients in faster than shown",
					held(LimitRadius))...)
		},
	}
	in.Describe = func(c *analysis.Cell) { describe(c, storms) }
	return analysis.Summarise(in, opts)
}

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
	var of []*Storm
	for _, s := range storms {
		if !s.Accepted || s.Cell() != c.Cell {
			continue
		}
		of = append(of, s)
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
	describePhase(c, Lease, of, func(s *Storm) Phase { return s.Lease })
	describePhase(c, Login, of, func(s *Storm) Phase { return s.Login })
}

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

// curveSteps parts the clients of a distribution, 2.5 % each.
const curveSteps = 40

// throughCurve is how long it took until each fortieth of all that asked was through;
// it ends where no further client got through.
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
