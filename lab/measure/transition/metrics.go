package transition

import (
	"fmt"
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// gateway and hosts are the hosts that metrics carry.
const (
	gateway = "gateway"
	hosts   = "client"
)

// Part describes a part of the path of probes.
type Part struct {
	Name string // one of the constants Send to Up
	Text string // for readers: where the part begins and ends
	Host string // gateway, hosts, or empty
	// Judged parts are compared with the direct path.
	Judged bool
}

// Parts are all parts: those from gateway to gateway, as in study 4's figures, then those from host to host.
var Parts = []Part{
	{Late, "a probe is due → the gateway's program writes: how late that gets the CPU", gateway, false},
	{Down, "a gateway's program writes → the packet leaves by the outer interface (study 4, figure 6)", gateway, true},
	{Link, "between the gateways: queue, link, and the wait for polling", "", false},
	{Up, "a packet arrives at a gateway's outer interface → its program has read (study 4, figure 7)", gateway, true},
	{Send, "the client's program writes → the packet leaves", hosts, false},
	{ToEnter, "from the client to the gateway: link, and the wait for polling", "", false},
	{Enter, "through the gateway where packets enter the tunnel", gateway, true},
	{Cross, "between the gateways: queue, link, and the wait for polling", "", false},
	{Leave, "through the gateway where packets leave the tunnel", gateway, true},
	{ToHost, "from the gateway to the server: link, and the wait for polling", "", false},
	{Receive, "the packet arrives → the server's program has read", hosts, false},
	{Way, "the client's program writes → the server's has read", "", true},
}

// Stats are the statistics of each part. Views show the first of them as the part's figure.
var Stats = []string{"p50", "mean", "min", "max", "p99"}

var statTexts = map[string]string{
	"p50": "median", "mean": "mean", "min": "least", "max": "most", "p99": "99th percentile"}

// MetricOf returns the name of a metric of a part: "ethernet_to_tcp_p50_us".
func MetricOf(part, stat string) string { return part + "_" + stat + "_us" }

// RatioOf returns the name of a metric of a judged part: its median over the direct path's.
func RatioOf(part string) string { return part + "_ratio" }

// OverallOf returns the name of a metric of Down or Up: its mean over the direct path's, for all loads up to
// OverallMost together.
func OverallOf(part string) string { return part + "_overall_ratio" }

// OverallMost is the highest load of study 4, Mbit/s.
const OverallMost = 90

// Ends of the names of a gateway's metrics, after "enter" or "leave".
const (
	corePct     = "_core_pct"
	napiWait    = "_napi_wait_pct"
	processWait = "_process_wait_pct"
)

// Metrics of one gateway: where the probes enter the tunnel, and where they leave it.
const (
	EnterCorePct, EnterNAPIWait, EnterProcessWait = "enter" + corePct, "enter" + napiWait, "enter" + processWait
	LeaveCorePct, LeaveNAPIWait, LeaveProcessWait = "leave" + corePct, "leave" + napiWait, "leave" + processWait
)

// Waits is the name of the metric of the run-queue wait of all threads of both gateways.
const Waits = "gateways_wait_pct"

// ResentBackground is the name of the metric of the share of a TCP background that was sent again.
const ResentBackground = "background_resent_pct"

// Names of the other metrics.
const (
	DeliveredMbps     = "delivered_mbps"
	KeptPct           = "kept_pct"
	ResentPct         = "resent_pct"
	UnmatchedPct      = "unmatched_pct"
	SenderWaitUs      = "sender_wait_us"
	ReceiverWaitUs    = "receiver_wait_us"
	BackgroundCorePct = "background_core_pct"
)

// Metrics are all metrics of a cell.
var Metrics = metrics()

// metrics lists the metrics of all groups, each computed from one window.
func metrics() []analysis.Metric {
	list := slices.Concat(timeMetrics(), probeMetrics(), cpuMetrics())
	for i := range list {
		list[i].Per = analysis.PerWindow
	}
	return list
}

// timeMetrics returns the metrics of all parts of the path.
func timeMetrics() (list []analysis.Metric) {
	for _, p := range Parts {
		for _, stat := range Stats {
			m := analysis.Metric{Name: MetricOf(p.Name, stat), Unit: "µs", Text: p.Text + ": " + statTexts[stat],
				Better: analysis.Less, Host: p.Host, Range: analysis.Amounts, Value: valueOrNaN("part." + p.Name + "." + stat)}
			if stat == Stats[0] && p.Judged {
				m.Short = p.Name
			}
			list = append(list, m)
		}
		if p.Judged {
			list = append(list, analysis.Metric{Name: RatioOf(p.Name), Text: p.Text +
				": median over the direct path's of the same block", Better: analysis.Less, Host: p.Host, Range: analysis.Amounts,
				Value: valueOrNaN("ratio." + p.Name)})
		}
		if p.Name == Down || p.Name == Up {
			list = append(list, analysis.Metric{Name: OverallOf(p.Name), Text: fmt.Sprintf(
				"%s: mean over the direct path's of the same block, geometric mean of the block's loads up to %d Mbit/s", p.Text,
				OverallMost), Better: analysis.Less, Host: p.Host, Range: analysis.Amounts, Value: valueOrNaN("overall." + p.Name)})
		}
	}
	return list
}

// probeMetrics returns the metrics of the background traffic and of lost and resent probes.
func probeMetrics() []analysis.Metric {
	return []analysis.Metric{
		analysis.Metric{Name: DeliveredMbps, Short: "delivered", Unit: "Mbit/s", Text: "background that arrived",
			Better: analysis.More, Range: analysis.Amounts, Value: valueOrNaN("delivered_mbps")},
		analysis.Metric{Name: ResentBackground, Unit: "%", Text: "the background's TCP segments that were sent again",
			Better: analysis.Less, Range: analysis.Percents, Value: resentBackground},
		analysis.Metric{Name: KeptPct, Unit: "%", Text: "probes that were neither lost nor sent again", Better: analysis.More,
			Range: analysis.Percents, Value: valueOrNaN("kept_pct")},
		analysis.Metric{Name: ResentPct, Unit: "%", Text: "probes left out because their connection sent again",
			Better: analysis.Less, Range: analysis.Percents, Value: valueOrNaN("resent_pct")},
		analysis.Metric{Name: UnmatchedPct, Unit: "%", Text: "probes that were not found for certain at a tap",
			Better: analysis.Less, Range: analysis.Percents, Value: valueOrNaN("unmatched_pct")},
	}
}

// cpuMetrics returns the metrics of the gateways' CPUs.
func cpuMetrics() (list []analysis.Metric) {
	for _, at := range [][2]string{{"enter", "enters"}, {"leave", "leaves"}} {
		where := " of the gateway where the load " + at[1] + " the tunnel"
		list = append(list,
			analysis.Metric{Name: at[0] + corePct, Unit: "% of a core", Text: "CPU" + where, Better: analysis.Less,
				Host: gateway, Range: analysis.Amounts, Value: timeShare(at[0]+"_cpu.napi_ns", at[0]+"_cpu.process_ns")},
			analysis.Metric{Name: at[0] + napiWait, Unit: "% of the time", Text: "polling threads wait for a CPU: those" + where,
				Better: analysis.Less, Host: gateway, Range: analysis.Amounts, Value: timeShare(at[0] + "_cpu.napi_wait_ns")},
			analysis.Metric{Name: at[0] + processWait, Unit: "% of the time", Text: "daemons wait for a CPU: those" + where,
				Better: analysis.Less, Host: gateway, Range: analysis.Amounts, Value: timeShare(at[0] + "_cpu.process_wait_ns")})
	}
	return append(list,
		analysis.Metric{Name: Waits, Unit: "% of the time",
			Text: "polling threads and daemons of both gateways wait for a CPU", Better: analysis.Less, Host: gateway,
			Range: analysis.Amounts,
			Value: timeShare("enter_cpu.napi_wait_ns", "enter_cpu.process_wait_ns", "leave_cpu.napi_wait_ns",
				"leave_cpu.process_wait_ns")},
		analysis.Metric{Name: SenderWaitUs, Unit: "µs",
			Text: "run-queue wait of the gateway's writing thread, for each probe", Better: analysis.Less, Host: gateway,
			Range: analysis.Amounts, Value: perProbe("gateways.sender_wait_ns")},
		analysis.Metric{Name: ReceiverWaitUs, Unit: "µs",
			Text: "run-queue wait of the gateway's reading thread, for each probe", Better: analysis.Less, Host: gateway,
			Range: analysis.Amounts, Value: perProbe("gateways.receiver_wait_ns")},
		analysis.Metric{Name: BackgroundCorePct, Unit: "% of a core", Text: "what other work had of the gateways' CPU",
			Host: gateway, Range: analysis.Amounts,
			Value: func(r analysis.MetricInput) float64 { return analysis.Positive(100 * r.Get("background")) }},
		analysis.SlowedMetric(gateway, result.RouterShare))
}

// valueOrNaN returns a function that reads a value; NaN if the input lacks it.
func valueOrNaN(name string) func(analysis.MetricInput) float64 {
	return func(r analysis.MetricInput) float64 {
		if v, found := r.Values[name]; found {
			return v
		}
		return math.NaN()
	}
}

// resentBackground is the share of the background's TCP segments that were sent again, per cent; NaN without TCP.
func resentBackground(r analysis.MetricInput) float64 {
	if r.Get("segments") == 0 {
		return math.NaN()
	}
	return 100 * r.Get("retransmits") / r.Get("segments")
}

// timeShare returns a function that sums times in ns, in percent of the step's time.
func timeShare(names ...string) func(analysis.MetricInput) float64 {
	return func(r analysis.MetricInput) float64 {
		var ns float64
		for _, name := range names {
			ns += r.Get(name)
		}
		return analysis.Over(ns/1e7, r.Get("load_seconds"))
	}
}

// perProbe returns a function that reads a time of the gateways' run in ns, and returns it in µs a probe.
func perProbe(name string) func(analysis.MetricInput) float64 {
	return func(r analysis.MetricInput) float64 {
		return analysis.Over(r.Get(name)/1e3, r.Get("gateways.counts.sent"))
	}
}
