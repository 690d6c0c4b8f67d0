package transition

import (
	"fmt"
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// gateway and hosts are whose figures those of parts are.
const (
	gateway = "gateway"
	hosts   = "client"
)

// Part is a part of the way of probes, as its figures are named and described.
type Part struct {
	Name string // Send or its like
	Text string
	Host string
	// Judged parts are compared with the direct path.
	Judged bool
}

// Parts are all parts: study 4's figures, then the way from host to host.
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

// Stats are the figures of each part, the one that is shown first at first.
var Stats = []string{"p50", "mean", "min", "max", "p99"}

var statTexts = map[string]string{
	"p50": "median", "mean": "mean", "min": "least", "max": "most", "p99": "99th percentile"}

// MetricOf is the name of a figure of a part: "ethernet_to_tcp_p50_us".
func MetricOf(part, stat string) string { return part + "_" + stat + "_us" }

// RatioOf is the name of a judged part's median over that of the direct path.
func RatioOf(part string) string { return part + "_ratio" }

// OverallOf is the name of Down's or Up's mean over that of the direct path, of all loads up to OverallMost together.
func OverallOf(part string) string { return part + "_overall_ratio" }

// OverallMost is the greatest of these loads, Mbit/s: study 4's.
const OverallMost = 90

// What of a gateway stands behind its side, enter or leave, in names of metrics.
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

// Waits is the name of the run-queue wait of all threads of the gateways.
const Waits = "gateways_wait_pct"

// ResentBackground is the name of the share of a TCP background that was sent again.
const ResentBackground = "background_resent_pct"

// Metrics that views show, as records name them.
const (
	DeliveredMbps     = "delivered_mbps"
	KeptPct           = "kept_pct"
	ResentPct         = "resent_pct"
	UnmatchedPct      = "unmatched_pct"
	SenderWaitUs      = "sender_wait_us"
	ReceiverWaitUs    = "receiver_wait_us"
	BackgroundCorePct = "background_core_pct"
)

// Metrics is every figure of a cell.
var Metrics = metrics()

func metrics() []analysis.Metric {
	list := slices.Concat(timeMetrics(), probeMetrics(), cpuMetrics())
	for i := range list {
		list[i].Per = analysis.PerWindow
	}
	return list
}

// timeMetrics are those of the parts of the way.
func timeMetrics() (list []analysis.Metric) {
	for _, p := range Parts {
		for _, stat := range Stats {
			m := analysis.Metric{Name: MetricOf(p.Name, stat), Unit: "µs", Text: p.Text + ": " + statTexts[stat],
				Better: analysis.Less, Host: p.Host, Range: analysis.Amounts, Of: valueOrNaN("part." + p.Name + "." + stat)}
			if stat == Stats[0] && p.Judged {
				m.Short = p.Name
			}
			list = append(list, m)
		}
		if p.Judged {
			list = append(list, analysis.Metric{Name: RatioOf(p.Name), Text: p.Text +
				": median over the direct path's of the same block", Better: analysis.Less, Host: p.Host, Range: analysis.Amounts,
				Of: valueOrNaN("ratio." + p.Name)})
		}
		if p.Name == Down || p.Name == Up {
			list = append(list, analysis.Metric{Name: OverallOf(p.Name), Text: fmt.Sprintf(
				"%s: mean over the direct path's of the same block, geometric mean of the block's loads up to %d Mbit/s", p.Text,
				OverallMost), Better: analysis.Less, Host: p.Host, Range: analysis.Amounts, Of: valueOrNaN("overall." + p.Name)})
		}
	}
	return list
}

// probeMetrics are those of the background and of what became of the probes.
func probeMetrics() []analysis.Metric {
	return []analysis.Metric{
		analysis.Metric{Name: DeliveredMbps, Short: "delivered", Unit: "Mbit/s", Text: "background that arrived",
			Better: analysis.More, Range: analysis.Amounts, Of: valueOrNaN("delivered_mbps")},
		analysis.Metric{Name: ResentBackground, Unit: "%", Text: "the background's TCP segments that were sent again",
			Better: analysis.Less, Range: analysis.Percents, Of: resentBackground},
		analysis.Metric{Name: KeptPct, Unit: "%", Text: "probes that were neither lost nor sent again", Better: analysis.More,
			Range: analysis.Percents, Of: valueOrNaN("kept_pct")},
		analysis.Metric{Name: ResentPct, Unit: "%", Text: "probes left out because their connection sent again",
			Better: analysis.Less, Range: analysis.Percents, Of: valueOrNaN("resent_pct")},
		analysis.Metric{Name: UnmatchedPct, Unit: "%", Text: "probes that were not found for certain at a tap",
			Better: analysis.Less, Range: analysis.Percents, Of: valueOrNaN("unmatched_pct")},
	}
}

// cpuMetrics are those of the gateways' CPU.
func cpuMetrics() (list []analysis.Metric) {
	for _, at := range [][2]string{{"enter", "enters"}, {"leave", "leaves"}} {
		where := " of the gateway where the load " + at[1] + " the tunnel"
		list = append(list,
			analysis.Metric{Name: at[0] + corePct, Unit: "% of a core", Text: "CPU" + where, Better: analysis.Less,
				Host: gateway, Range: analysis.Amounts, Of: timeShare(at[0]+"_cpu.napi_ns", at[0]+"_cpu.process_ns")},
			analysis.Metric{Name: at[0] + napiWait, Unit: "% of the time", Text: "polling threads wait for a CPU: those" + where,
				Better: analysis.Less, Host: gateway, Range: analysis.Amounts, Of: timeShare(at[0] + "_cpu.napi_wait_ns")},
			analysis.Metric{Name: at[0] + processWait, Unit: "% of the time", Text: "daemons wait for a CPU: those" + where,
				Better: analysis.Less, Host: gateway, Range: analysis.Amounts, Of: timeShare(at[0] + "_cpu.process_wait_ns")})
	}
	return append(list,
		analysis.Metric{Name: Waits, Unit: "% of the time",
			Text: "polling threads and daemons of both gateways wait for a CPU", Better: analysis.Less, Host: gateway,
			Range: analysis.Amounts,
			Of: timeShare("enter_cpu.napi_wait_ns", "enter_cpu.process_wait_ns", "leave_cpu.napi_wait_ns",
				"leave_cpu.process_wait_ns")},
		analysis.Metric{Name: SenderWaitUs, Unit: "µs",
			Text: "run-queue wait of the gateway's writing thread, for each probe", Better: analysis.Less, Host: gateway,
			Range: analysis.Amounts, Of: perProbe("gateways.sender_wait_ns")},
		analysis.Metric{Name: ReceiverWaitUs, Unit: "µs",
			Text: "run-queue wait of the gateway's reading thread, for each probe", Better: analysis.Less, Host: gateway,
			Range: analysis.Amounts, Of: perProbe("gateways.receiver_wait_ns")},
		analysis.Metric{Name: BackgroundCorePct, Unit: "% of a core", Text: "what other work had of the gateways' CPU",
			Host: gateway, Range: analysis.Amounts,
			Of: func(r analysis.MetricInput) float64 { return analysis.Positive(100 * r.Get("background")) }},
		analysis.SlowedMetric(gateway, result.RouterShare))
}

// valueOrNaN returns a value of the input, or NaN where there is none.
func valueOrNaN(name string) func(analysis.MetricInput) float64 {
	return func(r analysis.MetricInput) float64 {
		if v, found := r.Values[name]; found {
			return v
		}
		return math.NaN()
	}
}

func resentBackground(r analysis.MetricInput) float64 {
	if r.Get("segments") == 0 {
		return math.NaN()
	}
	return 100 * r.Get("retransmits") / r.Get("segments")
}

// timeShare is a sum of times, ns, in percent of the step.
func timeShare(names ...string) func(analysis.MetricInput) float64 {
	return func(r analysis.MetricInput) float64 {
		var ns float64
		for _, name := range names {
			ns += r.Get(name)
		}
		return analysis.Over(ns/1e7, r.Get("load_seconds"))
	}
}

// perProbe is a time of the gateways' run, ns, in µs a probe.
func perProbe(name string) func(analysis.MetricInput) float64 {
	return func(r analysis.MetricInput) float64 {
		return analysis.Over(r.Get(name)/1e3, r.Get("gateways.counts.sent"))
	}
}
