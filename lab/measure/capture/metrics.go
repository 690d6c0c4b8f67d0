package capture

import (
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// hostCapture is the host name that CPU metrics carry: that of the capture host.
const hostCapture = "capture"

// input has the numbers of a trial's record by their JSON names, and the shares of frames from Trial.lost.
type input = analysis.MetricInput

// Names of metrics, as summaries have them.
const (
	CapturedPct        = "captured_pct"
	CapturedOfferedPct = "captured_offered_pct"
	DroppedPct         = "dropped_pct"
	WaitingPct         = "waiting_pct"
	UnexplainedPct     = "unexplained_pct"
	LinkLossPct        = "link_loss_pct"
	LossPct            = "loss_pct"
	BusyPct            = "busy_pct"
	CorePct            = "core_pct"
	NapiCorePct        = "napi_core_pct"
	ProcessCorePct     = "process_core_pct"
	BackgroundCorePct  = "background_core_pct"
	NsPerFrame         = "ns_per_frame"
	KFramesPerSecond   = "kframes_per_second"
	OfferedPct         = "offered_pct"
)

// Metrics are all metrics of a cell, computed for each window.
var Metrics = perWindow(
	analysis.Metric{Name: CapturedPct, Short: "captured", Unit: "%",
		Text: "frames that the program took, of those that passed its interface", Better: analysis.More, Host: hostCapture,
		Range: analysis.Percents, Value: percent("captured")},
	analysis.Metric{Name: CapturedOfferedPct, Unit: "%",
		Text: "capture rate of the studies: frames that the program took, of those offered", Better: analysis.More,
		Host: hostCapture, Range: analysis.Percents,
		Value: func(r input) float64 {
			return 100 * r.Get("captured") * analysis.Over(r.Get("passed"), r.Get("offered"))
		}},
	analysis.Metric{Name: DroppedPct, Short: "dropped", Unit: "%", Text: "frames that the program says it lost",
		Better: analysis.Less, Host: hostCapture, Range: analysis.Percents, Value: percent("dropped")},
	analysis.Metric{Name: WaitingPct, Short: "waiting", Unit: "%",
		Text: "frames that waited for the program when it ended: neither taken nor lost", Host: hostCapture,
		Range: analysis.Percents, Value: percent("waiting")},
	analysis.Metric{Name: UnexplainedPct, Unit: "%",
		Text: "frames that the program neither took nor says it lost, and that do not wait for it", Host: hostCapture,
		Range: analysis.Changes, Value: percent("unexplained")},
	analysis.Metric{Name: LinkLossPct, Unit: "%", Text: "offered frames that never passed the capture interface",
		Better: analysis.Less, Range: analysis.Percents, Value: lossUpTo("passed")},
	analysis.Metric{Name: LossPct, Short: "loss", Unit: "%",
		Text:   "offered frames that did not come to the end: to the sink, or, behind a splitter, past the capture interface",
		Better: analysis.Less, Range: analysis.Percents, Value: lossUpTo("arrived")},
	analysis.Metric{Name: BusyPct, Short: "CPU", Unit: "%",
		Text: "CPU of the capture host with its other work, of what it has", Better: analysis.Less, Host: hostCapture,
		Range: analysis.Percents, Value: busy},
	analysis.Metric{Name: CorePct, Unit: "% of a core", Text: "polling threads and capture programs",
		Better: analysis.Less, Host: hostCapture, Range: analysis.Amounts, Value: corePct("napi_ns", "process_ns")},
	analysis.Metric{
		Name: NapiCorePct, Unit: "% of a core", Text: "polling threads", Host: hostCapture, Range: analysis.Amounts,
		Value: corePct("napi_ns")},
	analysis.Metric{Name: ProcessCorePct, Unit: "% of a core", Text: "capture programs", Host: hostCapture,
		Range: analysis.Amounts, Value: corePct("process_ns")},
	analysis.Metric{
		Name: BackgroundCorePct, Unit: "% of a core", Text: "other work", Host: hostCapture, Range: analysis.Amounts,
		Value: func(r input) float64 { return analysis.Positive(100 * r.Get("background")) }},
	analysis.Metric{Name: NsPerFrame, Short: "ns", Unit: "ns",
		Text: "CPU of the capture host per frame that passed, until all were worked off", Better: analysis.Less,
		Host:  hostCapture,
		Range: analysis.Amounts,
		Value: func(r input) float64 { return analysis.Over(r.Get("settled_ns"), r.Get("passed")) }},
	analysis.Metric{Name: KFramesPerSecond, Unit: "kframes/s", Text: "that passed", Range: analysis.Amounts,
		Value: func(r input) float64 { return analysis.Over(r.Get("passed")/1000, r.Get("send_seconds")) }},
	analysis.Metric{
		Name: OfferedPct, Unit: "%", Text: "frames that the generator's link took, of those due", Range: analysis.Percents,
		Value: func(r input) float64 { return 100 * analysis.Over(r.Get("offered"), r.Get("intended")) }},
	analysis.SlowedMetric(hostCapture, result.RouterShare),
)

// perWindow marks metrics as computed for each window by itself, and returns them.
func perWindow(list ...analysis.Metric) []analysis.Metric {
	for i := range list {
		list[i].Per = analysis.PerWindow
	}
	return list
}

// percent returns a function that reads a share of Trial.lost in percent.
func percent(share string) func(input) float64 {
	return func(r input) float64 { return 100 * r.Get(share) }
}

// lossUpTo returns a function that computes the offered frames missing from a count, in percent of the offered frames.
func lossUpTo(count string) func(input) float64 {
	return func(r input) float64 { return max(0, 100*(1-analysis.Over(r.Get(count), r.Get("offered")))) }
}

// corePct returns a function that sums CPU times in ns, in percent of a core while frames were sent.
func corePct(parts ...string) func(input) float64 {
	return func(r input) float64 {
		var ns float64
		for _, part := range parts {
			ns += r.Get(part)
		}
		return analysis.Over(ns/1e7, r.Get("load_seconds"))
	}
}

// busy returns the CPU that the capture host used, background work included, in percent of its CPUs; at most 100.
func busy(r input) float64 {
	work := corePct("napi_ns", "process_ns")(r)
	if other := r.Get("background"); other > 0 {
		work += 100 * other
	}
	return min(100, analysis.Over(work, r.Get("cpus")))
}
