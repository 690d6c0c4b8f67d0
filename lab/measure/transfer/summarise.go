// Package transfer repeats the measurement of study 3. One, two and more clients at once fetch a file from a real FTP
// server over a link of a set rate. Meanwhile the router's bytes and CPU are sampled. Each device has its own lab.
package transfer

import (
	"cmp"
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Names of metrics that other packages read.
const (
	MaxRate = "max_rate_kb_s"
	Busy    = "busy_pct"
)

// Summarise computes the summary of a run that measured transfers.
func (Measure) Summarise(run result.Run, opts analysis.Options) analysis.Summary {
	list := result.RecordsOf[Transfer](run.MeasureRecords)
	in := analysis.Input{
		Run: run, Measure: Name, Dimensions: Dimensions, Noun: "transfer", Metrics: Metrics, Trials: trialsOf(list),
		Alone: true,
		Compare: func(a, b result.Cell) int { // the fastest router first
			return cmp.Or(result.CompareCells(b, a, RouterSpeed), result.CompareCells(a, b, result.Clients, result.DUT))
		},
	}
	in.Describe = func(c *analysis.Cell) { describe(c, list) }
	return analysis.Summarise(in, opts)
}

// input has a transfer's figures by their names in records.
type input = analysis.MetricInput

// Names of the other metrics.
const (
	MeanRateKBS      = "mean_rate_kb_s"
	DTRKBCPUS        = "dtr_kb_cpu_s"
	CPUCorePct       = "cpu_core_pct"
	NsPerByte        = "ns_per_byte"
	MachineBusyPct   = "machine_busy_pct"
	MaxSeconds       = "max_seconds"
	FileP50Seconds   = "file_p50_seconds"
	WakeupsPerSecond = "wakeups_per_second"
	RouterSharePct   = "router_share_pct"
)

// Metrics are all metrics of a cell. CPU figures are those of the maximum-load interval.
var Metrics = []analysis.Metric{
	{Name: MaxRate, Short: "max rate", Unit: "kByte/s",
		Text: "maximum transfer rate: mean of the rates above 90 % of the highest", Better: analysis.More,
		Per: analysis.PerWindow, Range: analysis.Amounts, Value: analysis.PositiveField("max_kb_s")},
	{Name: MeanRateKBS, Unit: "kByte/s", Text: "from the first transfer's begin to the last one's end",
		Better: analysis.More, Per: analysis.PerWindow, Range: analysis.Amounts, Value: analysis.PositiveField("mean_kb_s")},
	{Name: DTRKBCPUS, Unit: "kByte/s of CPU", Text: "the study's printed formula: bytes over the router's CPU time",
		Better: analysis.More, Host: "router", Per: analysis.PerWindow, Range: analysis.Amounts,
		Value: analysis.PositiveField("dtr_kb_s")},
	{Name: Busy, Short: "CPU", Unit: "% of its CPU", Text: "router CPU at the maximum, of what the router has",
		Better: analysis.Less, Host: "router", Per: analysis.PerWindow, Range: analysis.Percents, Value: busy},
	{Name: CPUCorePct, Unit: "% of a core", Text: "router CPU at the maximum", Better: analysis.Less, Host: "router",
		Per: analysis.PerWindow, Range: analysis.Amounts,
		Value: func(r input) float64 { return analysis.Positive(100 * r.Get("max_core")) }},
	{Name: NsPerByte, Unit: "ns", Text: "router CPU at the maximum for a byte of IP", Better: analysis.Less,
		Host: "router", Per: analysis.PerWindow, Range: analysis.Amounts, Value: func(r input) float64 {
			return analysis.Positive(analysis.Over(1e6*r.Get("max_core"), r.Get("max_kb_s")))
		}},
	{Name: MachineBusyPct, Unit: "% of the machine",
		Text: "/proc/stat at the maximum, as study 3 took it, clients and server among it", Host: "machine",
		Per: analysis.PerWindow, Range: analysis.Percents,
		Value: func(r input) float64 { return analysis.Positive(100 * r.Get("max_stat")) }},
	{Name: MaxSeconds, Unit: "s", Text: "length of the maximum-load interval", Per: analysis.PerWindow,
		Range: analysis.Amounts, Value: analysis.PositiveField("max_seconds")},
	{Name: "seconds", Unit: "s", Text: "until all clients had their files", Better: analysis.Less, Per: analysis.PerWindow,
		Range: analysis.Amounts, Value: analysis.PositiveField("all_seconds")},
	{Name: FileP50Seconds, Unit: "s", Text: "transfer of one file, median", Better: analysis.Less, Per: analysis.PerWindow,
		Range: analysis.Amounts, Value: analysis.PositiveField("file_p50")},
	{Name: WakeupsPerSecond, Unit: "1/s", Text: "times the router's polling threads were given a CPU at the maximum",
		Host: "router", Per: analysis.PerWindow, Range: analysis.Amounts, Value: analysis.PositiveField("max_wakeups")},
	{Name: RouterSharePct, Unit: "% of its CPU", Text: "CPU that slowed routers had, by the clock of what took the rest",
		Host: "router", Per: analysis.PerWindow, Range: analysis.Percents,
		Value: func(r input) float64 { return analysis.Positive(100 * r.Get("share")) }},
}

// busy returns the router's CPU at the maximum, in percent of its CPU; of a slowed router, of the share that it had.
func busy(r input) float64 {
	share := r.Get("share")
	if !(share > 0) {
		share = 1
	}
	return min(100, analysis.Positive(100*r.Get("max_core")/share))
}

// trialsOf returns the transfers as trials, with the median time of one file.
func trialsOf(list []*Transfer) []analysis.Trial {
	out := make([]analysis.Trial, 0, len(list))
	for _, t := range list {
		a := analysis.TrialOf(t.Head, t.Cell(), 0, t)
		var each []float64
		for _, f := range t.Fetched {
			each = append(each, f.Each...)
		}
		slices.Sort(each)
		if len(each) > 0 {
			a.Device["file_p50"] = result.Quantile(each, 0.5)
		}
		out = append(out, a)
	}
	return out
}

// Names of a cell's curves, of its first accepted record: RateCurve is the rate over time, kByte/s; EndsCurve is the
// number of clients that have all their files, over time.
const (
	RateCurve = "rate"
	EndsCurve = "ends"
)

// describe adds the curves of study 3's figure 4 to a cell.
func describe(c *analysis.Cell, list []*Transfer) {
	for _, t := range list {
		if !t.Accepted || t.Cell() != c.Cell {
			continue
		}
		var rate, ends []analysis.CurvePoint
		elapsedMs := 0.0
		for _, s := range stepsOf(t.Samples) {
			elapsedMs += 1e3 * s.seconds
			if k := s.kbps(); !math.IsNaN(k) {
				rate = append(rate, analysis.CurvePoint{Ms: analysis.Number(elapsedMs), Value: analysis.Number(k)})
			}
		}
		for i, f := range t.Fetched {
			ends = append(ends, analysis.CurvePoint{Ms: analysis.Number(1e3 * f.Seconds), Value: analysis.Number(i + 1)})
		}
		c.Curves = map[string][]analysis.CurvePoint{RateCurve: rate, EndsCurve: ends}
		return
	}
}
