// Package throughput measures how many frames a second a device forwards. A search (RFC 9971) finds the highest loads
// at which no more than given shares of the frames are lost. Each search has its own lab.
package throughput

import (
	"math"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
)

// Names of a goal's metrics, after its prefix (see metricOf).
const (
	Kpps    = "kpps"
	Mbps    = "mbps"
	CorePct = "core_pct"
	Layer1  = "l1_mbps"
	LinePct = "line_pct"
)

// Names of metrics of a goal that replace CorePct for routers whose CPU is not measured.
const (
	RTTUs     = "rtt_p50_us"
	RTTTailUs = "rtt_p99_us"
)

// NoAgent flags cells of a router without an agent, Unmetered those of one whose kernel cannot tell its CPU time.
const (
	NoAgent   = "no-agent"
	Unmetered = "cpu-unmetered"
)

// AtLeast flags cells in which a search reached the generator's limit, or max_kpps, without too much loss.
const AtLeast = "at-least"

// Summarise computes the summary of a run that measured throughput.
func (Measure) Summarise(run result.Run, opts analysis.Options) analysis.Summary {
	searches := result.RecordsOf[Search](run.MeasureRecords)
	input := analysis.Input{
		Run: run, Measure: Name, Dimensions: Dimensions, Noun: "search", Metrics: metricsOf(searches),
		Trials: trialsOf(searches), Alone: true,
		Compare: analysis.CompareCells(run),
		Warn: func(s analysis.Summary) []string {
			return slices.Concat(s.Remark(noAgent, func(c analysis.Cell) bool { return c.Flagged(NoAgent) }),
				s.Remark(unmetered(searches), func(c analysis.Cell) bool { return c.Flagged(Unmetered) }),
				s.Remark("The generator's limit, or max_kpps, was reached without loss, so these devices carry at least "+
					"what is shown, the most of their searches",
					func(c analysis.Cell) bool { return c.Flagged(AtLeast) }))
		},
	}
	for _, m := range input.Metrics {
		if strings.HasSuffix(m.Name, Kpps) {
			input.ByFamily = append(input.ByFamily, m.Name)
		}
	}
	input.Describe = func(c *analysis.Cell) {
		for _, s := range searches {
			if s.Cell() == c.Cell && s.Accepted && slices.ContainsFunc(s.Goals, func(g Goal) bool { return g.UpperKpps == 0 }) &&
				!c.Flagged(AtLeast) {
				c.Flags = append(c.Flags, analysis.Tally{Text: AtLeast, Count: c.Pairs})
			}
			if s.Cell() == c.Cell && s.Closed && !c.Flagged(NoAgent) {
				c.Flags = append(c.Flags, analysis.Tally{Text: NoAgent, Count: c.Pairs})
			}
			if s.Cell() == c.Cell && s.Unmetered != "" && !c.Flagged(Unmetered) {
				c.Flags = append(c.Flags, analysis.Tally{Text: Unmetered, Count: c.Pairs})
			}
		}
	}
	return analysis.Summarise(input, opts)
}

// noAgent is the remark on routers without an agent.
const noAgent = "The router has no agent: throughput, loss and round-trip times only, and nothing of its CPU, for"

// unmetered is the remark on routers whose CPU cannot be measured.
func unmetered(searches []*Search) string {
	for _, s := range searches {
		if s.Unmetered != "" {
			return "The router's CPU is not measured, because " + s.Unmetered +
				": throughput, loss and round-trip times only, for"
		}
	}
	return ""
}

// trialsOf returns the searches as trials. If a search of a cell found no upper bound, the cell has the highest
// figure of its searches instead of their mean: the device carries at least that, and a mean would be of the
// generator's limits.
func trialsOf(searches []*Search) []analysis.Trial {
	out := make([]analysis.Trial, 0, len(searches))
	for _, s := range searches {
		t := analysis.TrialOf(s.Head, s.Cell(), 0, s)
		for _, g := range s.Goals {
			if best := highestSearch(searches, s, g.LossRatio); best != nil && best != s {
				continue
			}
			prefix := "goal." + metricOf(g.LossRatio)
			t.Device[prefix+Kpps] = g.ThroughputKpps
			if s.withoutCPU() {
				t.Device[prefix+RTTUs], t.Device[prefix+RTTTailUs] = g.RTTUs, g.RTTTailUs
			} else {
				t.Device[prefix+CorePct] = g.RouterCorePct
			}
		}
		t.Device["bytes"], t.Device["wire_bytes"], t.Device["line_mbps"] = bytesOf(s), s.WireBytes, s.LineMbps
		out = append(out, t)
	}
	return out
}

// highestSearch returns the search with the highest throughput among the accepted searches of like's cell, for one
// goal. It returns nil if all these searches found an upper bound.
func highestSearch(searches []*Search, like *Search, loss float64) (best *Search) {
	open, most := false, -1.0
	for _, s := range searches {
		if s.Cell() != like.Cell() || !s.Accepted {
			continue
		}
		for _, g := range s.Goals {
			if g.LossRatio != loss {
				continue
			}
			open = open || g.UpperKpps == 0
			if g.ThroughputKpps > most {
				best, most = s, g.ThroughputKpps
			}
		}
	}
	if !open {
		return nil
	}
	return best
}

// metricsOf returns the metrics of all goals of all searches.
func metricsOf(searches []*Search) (list []analysis.Metric) {
	var seen []float64
	for _, s := range searches {
		for _, g := range s.Goals {
			if !slices.Contains(seen, g.LossRatio) {
				seen = append(seen, g.LossRatio)
			}
		}
	}
	slices.Sort(seen)
	for _, loss := range seen {
		name, text := metricOf(loss), GoalName(loss)
		of := func(figure string) func(analysis.MetricInput) float64 {
			return func(r analysis.MetricInput) float64 {
				if v, found := r.Values["goal."+name+figure]; found {
					return v
				}
				return math.NaN()
			}
		}
		list = append(list,
			analysis.Metric{Name: name + Kpps, Short: text, Unit: "kframes/s", Text: text +
				": what is forwarded at the highest load that loses no more", Better: analysis.More, Per: analysis.PerWindow,
				Range: analysis.Amounts, Value: of(Kpps)},
			analysis.Metric{Name: name + Mbps, Unit: "Mbit/s", Text: text + ", frames without FCS", Better: analysis.More,
				Per: analysis.PerWindow, Range: analysis.Amounts,
				Value: func(r analysis.MetricInput) float64 { return of(Kpps)(r) * r.Get("bytes") * 8 / 1000 }},
			analysis.Metric{Name: name + Layer1, Short: "layer 1", Unit: "Mbit/s",
				Text: text + ", with FCS, preamble and gap as they take the wire", Better: analysis.More,
				With: "wire_bytes", Per: analysis.PerWindow, Range: analysis.Amounts,
				Value: func(r analysis.MetricInput) float64 { return layer1(r, of(Kpps)(r)) }},
			analysis.Metric{Name: name + LinePct, Short: "of the line", Unit: "%",
				Text: text + ": layer 1, of the rate of the routers' slowest line", Better: analysis.More,
				With: "line_mbps", Per: analysis.PerWindow, Range: analysis.Percents,
				Value: func(r analysis.MetricInput) float64 {
					return 100 * analysis.Over(layer1(r, of(Kpps)(r)), analysis.Positive(r.Get("line_mbps")))
				}})
		list = append(list, metricsAtLoad(name, searches, of)...)
	}
	if slices.ContainsFunc(searches, func(s *Search) bool { return s.RouterShare > 0 }) {
		list = append(list, analysis.SlowedMetric("router", result.RouterShare))
	}
	return list
}

// metricsAtLoad returns the other metrics at a goal's load: the router's CPU or, if that is not measured, round-trip
// times.
func metricsAtLoad(
	name string, searches []*Search, of func(string) func(analysis.MetricInput) float64) []analysis.Metric {
	if slices.ContainsFunc(searches, func(s *Search) bool { return s.withoutCPU() }) {
		rtt := func(figure, short, text string) analysis.Metric {
			return analysis.Metric{Name: name + figure, Short: short, Unit: "µs", Text: text + " of probes at that load",
				Better: analysis.Less, Per: analysis.PerWindow, Range: analysis.Amounts, Value: of(figure)}
		}
		return []analysis.Metric{rtt(RTTUs, "RTT", "median round-trip time"),
			rtt(RTTTailUs, "RTT p99", "99th percentile of the round-trip times")}
	}
	return []analysis.Metric{{Name: name + CorePct, Short: "CPU", Unit: "% of a core", Text: "router CPU at that load",
		Better: analysis.Less, Host: "router", Per: analysis.PerWindow, Range: analysis.Amounts, Value: of(CorePct)}}
}

// layer1 returns the rate on the wire of kpps thousand frames a second, Mbit/s. It is NaN for old records, which lack
// WireBytes.
func layer1(r analysis.MetricInput, kpps float64) float64 {
	wire := analysis.Positive(r.Get("wire_bytes"))
	return kpps * (r.Get("bytes") + wire) * 8 / 1000
}

// bytesOf returns the mean size of a search's frames, bytes without FCS; 0 for an unknown mix.
func bytesOf(s *Search) float64 {
	if s.FrameBytes > 0 {
		return s.FrameBytes
	}
	sizes, err := frames.Named(s.FrameSize)
	if err != nil {
		return 0
	}
	return sizes.MeanBytes()
}
