// Package transition measures how long packets take between TCP and Ethernet, at hosts and at gateways with a tunnel
// between them, and through each gateway: study 4's transition time. The probes are package lab/traffic/transition's.
//
// # Busy gateways
//
// Background work is one thread that takes a share of the CPU of both gateways. The scheduler gives the CPU to a thread
// that has slept before it gives it to a program of equal priority that computes. So beside work of ordinary priority,
// polling threads and daemons wait little until they need more than the share that is left. Beside real-time work they
// wait for each of its slices. The gateways' probes are written by a program on the same CPU. If it gets no CPU, it
// writes late, at a moment when the CPU is free: the times of its probes are then too good (FlagLate).
//
// Beside 95 % real-time work the kernel keeps 50 ms of each second for ordinary programs (sched_rt_runtime_us; since
// Linux 6.12 the fair server). Threads that need no more get these 50 ms before any real-time program. They wait less
// than at 90 %, where the kernel keeps nothing. A tunnel that needs more gets its CPU in pieces of tens of ms. Between
// the pieces it forwards nothing.
package transition

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic/transition"
)

// Flags of an accepted trial.
const (
	// FlagShort: less of the background arrived than was offered, so the device was at its limit, and probes waited in
	// its queues.
	FlagShort = "overloaded"
	// FlagUnmatched: many probes were not found for certain at a tap.
	FlagUnmatched = "unmatched"
	// FlagLate: the gateway's program got its CPU late, so its probes left only at moments when the CPU was free.
	FlagLate = "late"
)

// Limits of the flags.
const (
	leastDelivered = 0.95 // least share of the offered background that must arrive
	mostUnmatched  = 0.1  // largest share of unmatched probes
	mostLateUs     = 1000 // longest mean time from a probe's due time until it is written, µs
)

// Summarise computes the summary of a run that measured transition times, from its records alone.
func (Measure) Summarise(run result.Run, opts analysis.Options) analysis.Summary {
	steps := result.RecordsOf[Step](run.MeasureRecords)
	input := analysis.Input{
		Run: run, Measure: Name, Dimensions: Dimensions, Noun: "step", Metrics: Metrics, Trials: trialsOf(steps),
		Load:     []result.Dimension{result.OfferedMbps},
		Compare:  compareCells,
		Describe: func(c *analysis.Cell) { c.Curves = curvesOf(steps, c.Cell) },
		Warn: func(s analysis.Summary) []string {
			return slices.Concat(
				s.Remark("The device carried less than was offered, so these times are those of its full queues",
					func(c analysis.Cell) bool { return c.Flagged(FlagShort) }),
				s.Remark("Probes were not found for certain at the taps inside the tunnel, so these parts are of the others",
					func(c analysis.Cell) bool { return c.Flagged(FlagUnmatched) }),
				s.Remark("The gateways' program got its CPU late, so TCP→Ethernet and Ethernet→TCP are of the moments at which "+
					"the CPU was to be had", func(c analysis.Cell) bool { return c.Flagged(FlagLate) }),
				unknownLengths(steps), leftOut(run))
		},
	}
	return analysis.Summarise(input, opts)
}

// unknownLengths returns a message that lists the devices whose tunnel packets have no known length; nil without any.
func unknownLengths(steps []*Step) []string {
	var list []string
	for _, s := range steps {
		if device := s.Cell.Text(result.DUT); (s.Hosts.Unknown != "" || s.Gateways.Unknown != "") &&
			!slices.Contains(list, device) {
			list = append(list, device)
		}
	}
	if list == nil {
		return nil
	}
	return []string{fmt.Sprintf(
		"Times at the taps inside the tunnel are not known, because its packets with probes have no length of their own: %s.",
		strings.Join(list, ", "))}
}

// leftOut returns a message about the loads that blocks left out, by device; nil without any.
func leftOut(run result.Run) []string {
	least := map[string]float64{} // the lowest load that was left out, Mbit/s, by the label of its cell without load
	for _, b := range run.Blocks {
		for _, c := range b.LeftOut {
			name := Dimensions.Label(c.Without(result.OfferedMbps))
			if mbps, found := least[name]; !found || c.Number(result.OfferedMbps) < mbps {
				least[name] = c.Number(result.OfferedMbps)
			}
		}
	}
	var messages []string
	for _, name := range slices.Sorted(maps.Keys(least)) {
		messages = append(messages, fmt.Sprintf("%s, from %g Mbit/s on", name, least[name]))
	}
	if messages == nil {
		return nil
	}
	return []string{
		"Not measured in some block, because too many probes got lost at a lower load: " + strings.Join(messages, "; ") + "."}
}

// compareCells orders cells for reading: by background work, device and load. The direct path (the clean router) is the
// first device.
func compareCells(a, b result.Cell) int {
	direct := func(c result.Cell) int {
		if c.Text(result.DUT) == experiment.Clean {
			return 0
		}
		return 1
	}
	return cmp.Or(
		result.CompareCells(a, b, result.Clients, result.Profile, BackgroundKind, result.BackgroundPct),
		cmp.Compare(direct(a), direct(b)),
		result.CompareCells(a, b, result.DUT, result.OfferedMbps))
}

// trialsOf returns the records as trials, with the figures and flags that are computed from several values.
func trialsOf(steps []*Step) []analysis.Trial {
	direct, overall := directMedians(steps), overallRatios(steps)
	out := make([]analysis.Trial, 0, len(steps))
	for _, s := range steps {
		a := analysis.TrialOf(s.Head, s.Cell, s.Window, s)
		s.describe(&a, direct)
		if s.Cell.Number(result.OfferedMbps) <= OverallMost {
			for name := range s.Gateways.Parts {
				if r, ok := overall[blockPart{s.Block, s.Sitting, s.Cell.Without(result.OfferedMbps), name}]; ok {
					a.Device["overall."+name] = r
				}
			}
		}
		out = append(out, a)
	}
	return out
}

// describe adds the times of all parts of the path under the names of metrics, their ratios to the direct path's times
// (direct), and flags.
func (s *Step) describe(a *analysis.Trial, direct map[blockPart]float64) {
	for _, e := range []Ends{s.Hosts, s.Gateways} {
		for name, d := range e.Parts {
			key := "part." + name + "."
			a.Device[key+"min"], a.Device[key+"mean"], a.Device[key+"max"] = d.Min, d.Mean, d.Max
			a.Device[key+"p50"], a.Device[key+"p99"] = d.P50, d.P99
			if base := direct[blockPart{s.Block, 0, s.Cell.Without(result.DUT), name}]; base > 0 &&
				s.Cell.Text(result.DUT) != experiment.Clean {
				a.Device["ratio."+name] = d.P50 / base
			}
		}
	}
	n := addCounts(s.Hosts.Counts, s.Gateways.Counts)
	if n.Sent > 0 {
		share := func(n, total int) float64 { return 100 * float64(n) / float64(total) }
		a.Device["kept_pct"], a.Device["resent_pct"], a.Device["unmatched_pct"] = share(n.Sent-n.Resent-n.Lost, n.Sent),
			share(n.Resent, n.Sent), share(n.Unmatched, n.Sent)
		if float64(n.Unmatched) > mostUnmatched*float64(n.Sent) {
			a.Flags = append(a.Flags, FlagUnmatched)
		}
	}
	if s.Gateways.Parts[Late].Mean > mostLateUs {
		a.Flags = append(a.Flags, FlagLate)
	}
	mbps := s.Cell.Number(result.OfferedMbps)
	if mbps == 0 {
		delete(a.Device, "delivered_mbps")
	} else if s.DeliveredMbps < leastDelivered*mbps {
		a.Flags = append(a.Flags, FlagShort)
	}
}

// addCounts returns the sum of the counts of two runs of probes.
func addCounts(a, b transition.Counts) transition.Counts {
	return transition.Counts{
		Sent: a.Sent + b.Sent, Resent: a.Resent + b.Resent, Lost: a.Lost + b.Lost,
		Unstamped: a.Unstamped + b.Unstamped, Unmatched: a.Unmatched + b.Unmatched,
	}
}

// blockPart is the key of a part of the path in one block.
type blockPart struct {
	block   int
	sitting int         // in overallRatios the sitting of a device; 0 for the direct path, and in directMedians
	cell    result.Cell // in directMedians without the device; in the result of overallRatios without the load
	part    string
}

// overallRatios returns the values of OverallOf's metric, by block and device: the geometric mean of the ratios of all
// loads. A block, or the part of a block that a resume added, has no value if it lacks a load that another block has.
func overallRatios(steps []*Step) map[blockPart]float64 {
	sums, counts := map[blockPart]float64{}, map[blockPart]float64{} // of windows
	var devices []blockPart
	loads := map[blockPart]map[float64]bool{} // the loads that any block of a device has
	for _, s := range steps {
		load := s.Cell.Number(result.OfferedMbps)
		if !s.Accepted || load > OverallMost {
			continue
		}
		clean := s.Cell.Text(result.DUT) == experiment.Clean
		for name, d := range s.Gateways.Parts {
			key := blockPart{s.Block, s.Sitting, s.Cell, name}
			if clean {
				key.sitting = 0
			} else if all := (blockPart{cell: s.Cell.Without(result.OfferedMbps), part: name}); loads[all] == nil {
				loads[all] = map[float64]bool{load: true}
			} else {
				loads[all][load] = true
			}
			if counts[key] == 0 && !clean {
				devices = append(devices, key)
			}
			sums[key], counts[key] = sums[key]+d.Mean, counts[key]+1
		}
	}
	logs := map[blockPart][]float64{}
	for _, key := range devices {
		direct := blockPart{key.block, 0, key.cell.With(result.DUT, experiment.Clean), key.part}
		if ratio := sums[key] / counts[key] / (sums[direct] / counts[direct]); ratio > 0 && !math.IsInf(ratio, 0) {
			key.cell = key.cell.Without(result.OfferedMbps)
			logs[key] = append(logs[key], math.Log(ratio))
		}
	}
	out := map[blockPart]float64{}
	for key, list := range logs {
		if len(list) == len(loads[blockPart{cell: key.cell, part: key.part}]) {
			sum := 0.
			for _, l := range list {
				sum += l
			}
			out[key] = math.Exp(sum / float64(len(list)))
		}
	}
	return out
}

// directMedians returns the direct path's medians, µs, by block and part: the means over its accepted windows.
func directMedians(steps []*Step) map[blockPart]float64 {
	sum, n := map[blockPart]float64{}, map[blockPart]float64{}
	for _, s := range steps {
		if s.Cell.Text(result.DUT) != experiment.Clean || !s.Accepted {
			continue
		}
		for _, e := range []Ends{s.Hosts, s.Gateways} {
			for name, d := range e.Parts {
				key := blockPart{s.Block, 0, s.Cell.Without(result.DUT), name}
				sum[key], n[key] = sum[key]+d.P50, n[key]+1
			}
		}
	}
	for key := range sum {
		sum[key] /= n[key]
	}
	return sum
}

// curvesOf returns the distributions of the judged parts over all accepted steps of a cell: for each time, the share of
// the probes that took no longer. Times are the upper ends of the histogram's buckets.
func curvesOf(steps []*Step, cell result.Cell) map[string][]analysis.CurvePoint {
	buckets, total := map[string]map[int64]int64{}, map[string]int64{}
	for _, s := range steps {
		if s.Cell != cell || !s.Accepted {
			continue
		}
		for _, p := range Parts {
			for _, e := range []Ends{s.Hosts, s.Gateways} {
				for _, b := range e.Parts[p.Name].Histogram {
					if p.Judged && buckets[p.Name] == nil {
						buckets[p.Name] = map[int64]int64{}
					}
					if p.Judged {
						buckets[p.Name][b[0]] += b[1]
						total[p.Name] += b[1]
					}
				}
			}
		}
	}
	curves := map[string][]analysis.CurvePoint{}
	for name, counts := range buckets {
		var passed int64
		for _, from := range slices.Sorted(maps.Keys(counts)) {
			passed += counts[from]
			_, to := transition.Buckets.Range(transition.Buckets.Place(uint64(from)))
			curves[name] = append(curves[name], analysis.CurvePoint{Ms: analysis.Number(float64(to) / 1e6),
				SharePct: analysis.Number(100 * float64(passed) / float64(total[name]))})
		}
	}
	return curves
}
