package rate

import (
	"math"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Names of metrics that other packages read.
const (
	Goodput    = "goodput_mbps"
	Theory     = "theory_mbps"
	OfTheory   = "of_theory_pct"
	PerCore    = "mbps_per_core"
	EnterCPU   = "enter_core_pct"
	LeaveCPU   = "leave_core_pct"
	IdleRTT    = "rtt_idle_p50_us"
	LoadRTT    = "rtt_p50_us"
	PathMTU    = "path_mtu"
	TunnelMTU  = "tunnel_mtu"
	Efficiency = "payload_share_pct"
)

// gateway is the host name that the CPU metrics have in reports.
const gateway = "gateway"

// input has a window's figures by their names in records.
type input = analysis.MetricInput

// Names of further metrics, which the report's views show.
const (
	TheorySharePct     = "theory_share_pct"
	LinkMbps           = "link_mbps"
	Layer1             = "link_l1_mbps"
	NsPerPacket        = "ns_per_packet"
	RTTP99Us           = "rtt_p99_us"
	KnownMTU           = "known_mtu"
	RetransmitRatio    = "retransmit_ratio"
	FragmentsRatio     = "fragments_ratio"
	ReassemblyFailures = "reassembly_failures"
	TooLong            = "too_long"
)

// Metrics lists the metrics of a cell. Each is computed from one window, and a cell shows their mean.
var Metrics = perWindow(
	analysis.Metric{Name: Goodput, Short: "goodput", Unit: "Mbit/s", Text: "TCP payload that arrived",
		Better: analysis.More, Range: analysis.Amounts,
		Value: func(r input) float64 { return rateOf(r, "delivered_bytes", "load_seconds") }},
	analysis.Metric{Name: Theory, Short: "theory", Unit: "Mbit/s",
		Text: "payload that the tunnel's headers leave of the link's rate", Range: analysis.Amounts, Value: theory},
	analysis.Metric{Name: OfTheory, Unit: "%", Text: "payload that arrived, of what the headers leave",
		Better: analysis.More, Range: analysis.Amounts,
		Value: func(r input) float64 {
			return 100 * analysis.Over(rateOf(r, "delivered_bytes", "load_seconds"), theory(r))
		}},
	analysis.Metric{Name: Efficiency, Unit: "%",
		Text: "payload that arrived, of the bytes on the link between the gateways", Better: analysis.More,
		Range: analysis.Amounts,
		Value: func(r input) float64 {
			return 100 * analysis.Over(rateOf(r, "delivered_bytes", "load_seconds"), rateOf(r, "link_bytes", "link_seconds"))
		}},
	analysis.Metric{Name: TheorySharePct, Unit: "%", Text: "the same by the headers alone", Range: analysis.Percents,
		Value: func(r input) float64 { return 100 * r.Get("theory_share") }},
	analysis.Metric{Name: LinkMbps, Unit: "Mbit/s", Text: "on the link between the gateways, frames with Ethernet headers",
		Range: analysis.Amounts, Value: func(r input) float64 { return rateOf(r, "link_bytes", "link_seconds") }},
	analysis.Metric{Name: Layer1, Unit: "Mbit/s",
		Text: "on the link between the gateways, frames with FCS, preamble and gap as they take the wire",
		With: "wire_bytes", Range: analysis.Amounts, Value: func(r input) float64 {
			wire := analysis.Positive(r.Get("wire_bytes"))
			return analysis.Over((r.Get("link_bytes")+wire*r.Get("link_packets"))*8/1e6, r.Get("link_seconds"))
		}},
	analysis.Metric{Name: EnterCPU, Short: "enter", Unit: "% of a core",
		Text: "CPU of the gateway where the load enters the tunnel", Better: analysis.Less, Host: gateway,
		Range: analysis.Amounts, Value: corePct("enter_ns")},
	analysis.Metric{Name: LeaveCPU, Short: "leave", Unit: "% of a core",
		Text: "CPU of the gateway where the load leaves the tunnel", Better: analysis.Less, Host: gateway,
		Range: analysis.Amounts, Value: corePct("leave_ns")},
	analysis.Metric{Name: PerCore, Short: "per core", Unit: "Mbit/s",
		Text: "payload per core of the gateway that has more to do", Better: analysis.More, Host: gateway,
		Range: analysis.Amounts, Value: perCore},
	analysis.Metric{Name: NsPerPacket, Unit: "ns", Text: "CPU of both gateways per packet that left for the other one",
		Better: analysis.Less, Host: gateway, Range: analysis.Amounts,
		Value: func(r input) float64 {
			return analysis.Over(
				(corePct("enter_ns")(r)+corePct("leave_ns")(r))*1e7*r.Get("link_seconds"), r.Get("link_packets"))
		}},
	analysis.Metric{Name: IdleRTT, Short: "idle RTT", Unit: "µs", Text: "round-trip time before the load, median",
		Better: analysis.Less, Median: true, Range: analysis.Amounts, Value: analysis.PositiveField("idle_rtt_us.p50")},
	analysis.Metric{Name: LoadRTT, Short: "RTT", Unit: "µs",
		Text: "round-trip time under load, mean of the blocks' medians", Better: analysis.Less, Median: true,
		Range: analysis.Amounts, Value: analysis.PositiveField("rtt_us.p50")},
	analysis.Metric{Name: RTTP99Us, Unit: "µs", Text: "round-trip time under load, mean of the blocks' medians",
		Better: analysis.Less, Median: true, Range: analysis.Amounts, Value: analysis.PositiveField("rtt_us.p99")},
	analysis.Metric{Name: TunnelMTU, Short: "MTU", Unit: "bytes",
		Text: "largest packet that the tunnel takes by its own word", Range: analysis.Amounts,
		Value: analysis.Field("tunnel_mtu")},
	analysis.Metric{Name: PathMTU, Unit: "bytes", Text: "largest packet that came through to the server and back",
		Range: analysis.Amounts, Value: analysis.Field("path_mtu.passes")},
	analysis.Metric{Name: KnownMTU, Unit: "bytes", Text: "largest packet that the sender's kernel takes the path to carry",
		Range: analysis.Amounts, Value: analysis.Field("path_mtu.known")},
	analysis.Metric{Name: RetransmitRatio, Text: "TCP segments sent again / sent", Better: analysis.Less,
		Range: analysis.Shares, Value: func(r input) float64 { return ratio(r, "retransmits", "segments") }},
	analysis.Metric{Name: FragmentsRatio, Text: "fragments that the gateways made / packets that left for the other one",
		Better: analysis.Less, Range: analysis.Amounts,
		Value: func(r input) float64 { return ratio(r, "frag_creates", "link_packets") }},
	analysis.Metric{Name: ReassemblyFailures, Unit: "packets",
		Text: "given up by the gateways for want of a fragment, a window", Better: analysis.Less, Range: analysis.Amounts,
		Value: analysis.Field("reasm_fails")},
	analysis.Metric{Name: TooLong, Unit: "packets", Text: "that the gateways refused as too long, a window",
		Better: analysis.Less, Range: analysis.Amounts, Value: analysis.Field("frag_fails")},
	analysis.SlowedMetric("router", result.RouterShare),
)

// perWindow sets Per of all metrics to analysis.PerWindow.
func perWindow(list ...analysis.Metric) []analysis.Metric {
	for i := range list {
		list[i].Per = analysis.PerWindow
	}
	return list
}

// rateOf divides a figure in bytes by a figure in seconds: Mbit/s. bytes and seconds are the figures' names in records.
func rateOf(r input, bytes, seconds string) float64 {
	return analysis.Over(r.Get(bytes)*8/1e6, r.Get(seconds))
}

// theory is the largest payload rate that the tunnel's headers allow on the link between the gateways, Mbit/s. It is
// absent (NaN) for a link without a rate.
func theory(r input) float64 {
	return analysis.Positive(r.Get("link_mbps") * r.Get("theory_share"))
}

// corePct returns the metric of a gateway's CPU time, a figure in ns, as a percentage of one core. It is absent (NaN)
// for a link with a rate, because its queue is emptied by a timer's interrupt: that work is in no thread of the
// gateway.
func corePct(name string) func(input) float64 {
	return func(r input) float64 {
		if r.Get("link_mbps") > 0 {
			return math.NaN()
		}
		return analysis.Over(r.Get(name)/1e7, r.Get("link_seconds"))
	}
}

// perCore is the payload per core of the busier gateway, Mbit/s.
func perCore(r input) float64 {
	busier := max(corePct("enter_ns")(r), corePct("leave_ns")(r))
	return analysis.Over(100*rateOf(r, "delivered_bytes", "load_seconds"), busier)
}

// ratio divides figure a by figure b. It is 0, not absent, when b is 0, because then nothing was sent.
func ratio(r input, a, b string) float64 {
	if x := analysis.Over(r.Get(a), r.Get(b)); !math.IsNaN(x) {
		return x
	}
	return 0
}
