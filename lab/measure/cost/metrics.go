package cost

import (
	"math"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Names of metrics that other code asks for.
const (
	PerBit     = "cpu_ns_per_bit" // judged against the clean router: the overhead ratio
	CPU        = "cpu_core_pct"
	Normalised = "cpu_normalised_pct"
	Delivered  = "delivered_mbps"
	Link       = "link_mbps"
)

// Metrics of traffic of frames, as records name them.
const (
	OfferedShare = "frames_offered_share"
	Duplicated   = "frames_duplicated_ratio"
	DelayP50     = "frame_delay_p50_us"
	DelayP99     = "frame_delay_p99_us"
	Jitter       = "frame_jitter_us"
	LateP99      = "frame_late_p99_us"
)

// CPU time of the gateway where the load enters a tunnel, and of the one where it leaves, as records name them, ns; and what
// is made of them.
const (
	EnterNs  = "enter_ns"
	LeaveNs  = "leave_ns"
	EnterCPU = "enter_core_pct"
	LeaveCPU = "leave_core_pct"
)

// WaitedForOthers is, in records, what side.WaitedForOthers says.
const WaitedForOthers = "waited_for_others"

// Kinds of sample besides windows and loads.
const (
	perClients analysis.Per = "clients" // of a load, in blocks that recorded how far their clients came
	perGuests  analysis.Per = "guests"  // of a block, before, while and after guests came and went
)

type reading = analysis.Reading

// Metrics is every figure of a cell. A new metric is read in one line of
// measurement, and described in one line here.
var Metrics = []analysis.Metric{
	{Name: PerBit, Unit: "ns/bit", Text: "router CPU per delivered bit", Better: analysis.Less, Against: analysis.AsRatio, Host: "router", Per: analysis.PerWindow, Both: true, Range: analysis.Amounts, Of: nsPerBit},
	{Name: "ns_per_packet", Short: "ns/packet", Unit: "ns", Text: "router CPU per packet forwarded", Better: analysis.Less, Host: "router", Per: analysis.PerWindow, Both: true, Range: analysis.Amounts, Of: func(r reading) float64 { return analysis.Over(routerNs(r), r.Get("packets")) }},
	{Name: CPU, Short: "CPU", Unit: "% of a core", Text: "router CPU", Better: analysis.Less, Host: "router", Per: analysis.PerWindow, Both: true, Range: analysis.Amounts, Of: cpuCorePct},
	{Name: Normalised, Unit: "% of a core", Text: "router CPU × offered load / bandwidth on the link", Better: analysis.Less, Host: "router", Per: analysis.PerWindow, Both: true, Range: analysis.Amounts, Of: normalisedPct},
	{Name: EnterCPU, Unit: "% of a core", Text: "CPU of the gateway where the load enters the tunnel", Better: analysis.Less, Against: analysis.AsRatio, Host: "gateway", Per: analysis.PerWindow, Both: true, Range: analysis.Amounts, Of: gatewayPct(EnterNs)},
	{Name: LeaveCPU, Unit: "% of a core", Text: "CPU of the gateway where the load leaves the tunnel", Better: analysis.Less, Against: analysis.AsRatio, Host: "gateway", Per: analysis.PerWindow, Both: true, Range: analysis.Amounts, Of: gatewayPct(LeaveNs)},
	{Name: "increase_pct", Unit: "%", Text: "normalised CPU above the clean router's, as study 1 tabulates it", Better: analysis.Less, Host: "router", Per: analysis.PerCell, From: increasePct},
	{Name: "cpu_machine_pct", Unit: "% of the machine", Text: "router CPU over all CPUs of the machine", Better: analysis.Less, Host: "router", Per: analysis.PerWindow, Range: analysis.Percents, Of: func(r reading) float64 { return analysis.Over(cpuCorePct(r), float64(r.CPUs)) }},
	analysis.SlowedMetric("router", "metrics."+result.RouterShare),
	{Name: "process_core_pct", Unit: "% of a core", Text: "router CPU in the device's processes", Host: "router", Per: analysis.PerWindow, Range: analysis.Amounts, Of: corePct("process_ns")},
	{Name: Delivered, Unit: "Mbit/s", Text: "payload", Better: analysis.More, Per: analysis.PerWindow, Both: true, Range: analysis.Amounts, Of: analysis.Field("delivered_mbps")},
	{Name: Link, Unit: "Mbit/s", Text: "on the router's outgoing link, with headers", Host: "router", Per: analysis.PerWindow, Range: analysis.Amounts, Of: analysis.Field("link_mbps")},
	{Name: "pss_mib", Unit: "MiB", Text: "memory of the device's processes", Better: analysis.Less, Host: "router", Per: analysis.PerWindow, Range: analysis.Amounts, Of: analysis.Field("pss_mib")},
	{Name: "rtt_p50_us", Unit: "µs", Text: "round-trip time under load, mean of the blocks' medians", Better: analysis.Less, Per: analysis.PerWindow, Both: true, Median: true, Range: analysis.Amounts, Of: analysis.PositiveField("rtt_us.p50")},
	{Name: "rtt_p99_us", Unit: "µs", Text: "round-trip time under load, mean of the blocks' medians", Better: analysis.Less, Per: analysis.PerWindow, Both: true, Median: true, Range: analysis.Amounts, Of: analysis.PositiveField("rtt_us.p99")},
	{Name: "rtt_p50_median_us", Unit: "µs", Text: "round-trip time under load, median of all windows", Better: analysis.Less, Per: analysis.PerPool, Both: true, Of: analysis.PositiveField("rtt_us.p50")},
	{Name: "rtt_p99_median_us", Unit: "µs", Text: "round-trip time under load, median of all windows", Better: analysis.Less, Per: analysis.PerPool, Both: true, Of: analysis.PositiveField("rtt_us.p99")},
	{Name: "loss_ratio", Text: "dropped by the router / (sent + dropped)", Better: analysis.Less, Host: "router", Per: analysis.PerWindow, Both: true, Range: analysis.Shares, Of: func(r reading) float64 {
		return analysis.Over(r.Get("drops"), r.Get("packets")+r.Get("drops"))
	}},
	{Name: "retransmit_ratio", Text: "TCP segments sent again / sent", Better: analysis.Less, Per: analysis.PerWindow, Range: analysis.Shares, Of: retransmitRatio},
	{Name: "datagram_loss_ratio", Text: "UDP datagrams lost / sent", Better: analysis.Less, Per: analysis.PerWindow, Both: true, Range: analysis.Shares, Of: datagrams("datagrams.lost", "datagrams.lost")},
	{Name: "reordered_ratio", Text: "UDP datagrams that came late / received", Better: analysis.Less, Per: analysis.PerWindow, Both: true, Range: analysis.Shares, Of: datagrams("datagrams.reordered", "")},
	{Name: "frames_per_second", Unit: "frames/s", Text: "that arrived", Better: analysis.More, Per: analysis.PerWindow, Both: true, Range: analysis.Amounts, Of: framesPerSecond},
	{Name: DelayP50, Unit: "µs", Text: "one-way delay of frames, median", Better: analysis.Less, Per: analysis.PerWindow, Both: true, Range: analysis.Amounts, Of: ofFrames(DelayP50)},
	{Name: DelayP99, Unit: "µs", Text: "one-way delay of frames", Better: analysis.Less, Per: analysis.PerWindow, Both: true, Range: analysis.Amounts, Of: ofFrames(DelayP99)},
	{Name: Jitter, Unit: "µs", Text: "interarrival jitter of frames (RFC 3550), mean of the streams", Better: analysis.Less, Per: analysis.PerWindow, Both: true, Range: analysis.Amounts, Of: ofFrames(Jitter)},
	{Name: Duplicated, Text: "frames that came again / received", Better: analysis.Less, Per: analysis.PerWindow, Both: true, Range: analysis.Shares, Of: ofFrames(Duplicated)},
	{Name: OfferedShare, Text: "frames that the generator's link took / that were due", Host: "client", Per: analysis.PerWindow, Both: true, Range: analysis.Amounts, Of: ofFrames(OfferedShare)},
	{Name: LateP99, Unit: "µs", Text: "how long after their due times frames left the generator", Host: "client", Per: analysis.PerWindow, Both: true, Range: analysis.Amounts, Of: ofFrames(LateP99)},
	{Name: "segments_per_burst", Unit: "segments", Text: "sent back to back", Host: "client", Per: analysis.PerWindow, Both: true, Range: analysis.Amounts, Of: analysis.PositiveField("segments_per_burst")},
	{Name: "aggregation_factor", Unit: "frames/packet", Host: "router", Per: analysis.PerWindow, Range: analysis.Amounts, Of: analysis.PositiveField("aggregation_factor")},
	{Name: "packets_per_wakeup", Unit: "packets", Text: "handled by a polling thread of the router in one go", Host: "router", Per: analysis.PerWindow, Both: true, Range: analysis.Amounts, Of: analysis.PositiveField("packets_per_wakeup")},
	{Name: "acks_per_segment", Unit: "packets", Text: "against the direction of the payload for one along it", Per: analysis.PerWindow, Both: true, Range: analysis.Amounts, Of: acksPerSegment},
	{Name: "machine_busy_pct", Unit: "% of the machine", Text: "/proc/stat, both labs with their endpoints", Host: "machine", Per: analysis.PerWindow, Range: analysis.Percents, Of: func(r reading) float64 {
		return analysis.Positive(r.Get("machine.usr") + r.Get("machine.sys") + r.Get("machine.soft"))
	}},
	{Name: "meter_core_pct", Unit: "% of a core", Text: "CPU of metering", Host: "router", Per: analysis.PerWindow, Range: analysis.Amounts, Of: corePct("meter_ns")},
	{Name: "client_core_pct", Unit: "% of a core", Text: "CPU of the client hosts", Host: "client", Per: analysis.PerWindow, Both: true, Range: analysis.Amounts, Of: roleCorePct(result.RoleClient)},
	{Name: "server_core_pct", Unit: "% of a core", Text: "CPU of the server", Host: "server", Per: analysis.PerWindow, Range: analysis.Amounts, Of: roleCorePct(result.RoleServer)},
	{Name: "generator_core_pct", Unit: "% of a core", Text: "CPU of the busiest traffic thread", Host: "client", Per: analysis.PerWindow, Range: analysis.Percents, Of: func(r reading) float64 { return analysis.Positive(100 * r.Get("generator_cpu")) }},

	{Name: "setup_seconds", Unit: "s", Text: "labs and device, without clients", Better: analysis.Less, Per: analysis.PerBlock, Range: analysis.Amounts, Of: analysis.Field("setup_seconds")},
	{Name: "lease_seconds", Unit: "s", Text: "until all clients had leased", Better: analysis.Less, Per: analysis.PerBlock, Range: analysis.Amounts, Of: analysis.Field("lease_seconds")},
	{Name: "login_seconds", Unit: "s", Text: "until all clients were logged in", Better: analysis.Less, Per: analysis.PerBlock, Range: analysis.Amounts, Of: analysis.Field("login_seconds")},
	{Name: "login_p50_ms", Unit: "ms", Text: "login of one client", Better: analysis.Less, Per: analysis.PerBlock, Range: analysis.Amounts, Of: analysis.Field("login_ms.p50")},
	{Name: "login_p99_ms", Unit: "ms", Text: "login of one client", Better: analysis.Less, Per: analysis.PerBlock, Range: analysis.Amounts, Of: analysis.Field("login_ms.p99")},
	{Name: "daemon_core_pct", Unit: "% of a core", Text: "CPU of the device's processes over the whole block", Better: analysis.Less, Host: "router", Per: analysis.PerBlock, Range: analysis.Amounts, Of: func(r reading) float64 { return 100 * r.Get("daemon_core") }},

	{Name: "connect_p50_us", Unit: "µs", Text: "until a stream was connected", Better: analysis.Less, Per: analysis.PerLoad, Range: analysis.Amounts, Of: analysis.PositiveField("connect_us.p50")},
	{Name: "connect_p99_us", Unit: "µs", Text: "until a stream was connected", Better: analysis.Less, Per: analysis.PerLoad, Range: analysis.Amounts, Of: analysis.PositiveField("connect_us.p99")},
	{Name: "first_byte_p50_us", Unit: "µs", Text: "from the connection to the server's first byte", Better: analysis.Less, Per: analysis.PerLoad, Range: analysis.Amounts, Of: analysis.PositiveField("first_byte_us.p50")},
	{Name: "first_byte_p99_us", Unit: "µs", Text: "from the connection to the server's first byte", Better: analysis.Less, Per: analysis.PerLoad, Range: analysis.Amounts, Of: analysis.PositiveField("first_byte_us.p99")},
	{Name: "jain", Text: "Jain's fairness index between streams", Better: analysis.More, Per: analysis.PerLoad, Both: true, Range: analysis.Shares, Of: analysis.PositiveField("fairness.jain")},
	{Name: "jain_even", Text: "the largest index possible where each stream carries whole bursts", Per: analysis.PerLoad, Range: analysis.Shares, Of: analysis.PositiveField("fairness.even")},
	{Name: "stream_min_mbps", Unit: "Mbit/s", Text: "of the stream that carried least", Better: analysis.More, Per: analysis.PerLoad, Range: analysis.Amounts, Of: func(r reading) float64 {
		if r.Get("fairness.streams") == 0 {
			return math.NaN()
		}
		return r.Get("fairness.min_mbps")
	}},
	{Name: "stream_max_mbps", Unit: "Mbit/s", Text: "of the stream that carried most", Per: analysis.PerLoad, Range: analysis.Amounts, Of: analysis.PositiveField("fairness.max_mbps")},
	{Name: "short_per_second", Unit: "connections/s", Text: "short connections that had their whole answer", Better: analysis.More, Per: analysis.PerLoad, Both: true, Range: analysis.Amounts, Of: analysis.Field("short.per_second")},
	{Name: "short_failed", Unit: "connections", Text: "short connections that failed in a block", Better: analysis.Less, Per: analysis.PerLoad, Range: analysis.Amounts, Of: analysis.Field("short.failed")},
	{Name: "short_connect_p99_us", Unit: "µs", Better: analysis.Less, Per: analysis.PerLoad, Range: analysis.Amounts, Of: analysis.PositiveField("short.connect_us.p99")},
	{Name: "short_whole_p50_us", Unit: "µs", Better: analysis.Less, Per: analysis.PerLoad, Range: analysis.Amounts, Of: analysis.PositiveField("short.whole_us.p50")},
	{Name: "short_whole_p99_us", Unit: "µs", Better: analysis.Less, Per: analysis.PerLoad, Range: analysis.Amounts, Of: analysis.PositiveField("short.whole_us.p99")},

	{Name: "warmup_seconds", Unit: "s", Per: perClients, Range: analysis.Amounts, Of: analysis.Field("warmup_seconds")},
	{Name: "memory_kib_per_client", Unit: "KiB", Text: "memory that both labs take of the machine, over their clients", Better: analysis.Less, Host: "machine", Per: perClients, Range: analysis.Amounts, Of: kibPerClient},

	{Name: "guests_per_second", Unit: "guests/s", Text: "that were to come", Per: perGuests, Range: analysis.Amounts, Of: analysis.Field("per_second")},
	{Name: "guest_lease_p99_ms", Unit: "ms", Better: analysis.Less, Per: perGuests, Range: analysis.Amounts, Of: analysis.PositiveField("lease_p99_ms")},
	{Name: "guest_login_p50_ms", Unit: "ms", Better: analysis.Less, Per: perGuests, Range: analysis.Amounts, Of: analysis.PositiveField("login_p50_ms")},
	{Name: "guest_login_p99_ms", Unit: "ms", Better: analysis.Less, Per: perGuests, Range: analysis.Amounts, Of: analysis.PositiveField("login_p99_ms")},
	{Name: "settled_seconds", Unit: "s", Text: "from the last guest's leaving until the device knew as many clients as before", Better: analysis.Less, Per: perGuests, Range: analysis.Amounts, Of: analysis.Field("settled_seconds")},
	{Name: "pss_before_mib", Unit: "MiB", Text: "memory of the device's processes before the first guest", Host: "router", Per: perGuests, Range: analysis.Amounts, Of: analysis.Field("before.pss_mib")},
	{Name: "pss_after_mib", Unit: "MiB", Text: "and after the last", Better: analysis.Less, Host: "router", Per: perGuests, Range: analysis.Amounts, Of: analysis.Field("after.pss_mib")},
	{Name: "rule_lines_before", Unit: "lines", Text: "of the router's rules before the first guest", Host: "router", Per: perGuests, Range: analysis.Amounts, Of: analysis.Field("before.rule_lines")},
	{Name: "rule_lines_after", Unit: "lines", Text: "and after the last", Better: analysis.Less, Host: "router", Per: perGuests, Range: analysis.Amounts, Of: analysis.Field("after.rule_lines")},
	{Name: "flows_before", Unit: "connections", Text: "tracked by the router before the first guest", Host: "router", Per: perGuests, Range: analysis.Amounts, Of: analysis.Field("before.flows")},
	{Name: "flows_after", Unit: "connections", Text: "and after the last", Better: analysis.Less, Host: "router", Per: perGuests, Range: analysis.Amounts, Of: analysis.Field("after.flows")},
}

// LinesTo is the highest load that lines of CPU contain, Mbit/s. Those of study 4 went to 90: at much higher loads several packets
// share a wake-up.
const LinesTo = 100

// laws name the metrics of sweeps, cost models and ceilings.
var laws = analysis.Laws{
	CPU: CPU, Normalised: Normalised, Link: Link, Delivered: Delivered,
	Packets: func(r reading) float64 { return analysis.Over(r.Get("packets"), r.Get("seconds")) / 1e6 },
	Lines:   []string{EnterCPU, LeaveCPU}, LinesTo: LinesTo,
}

func routerNs(r reading) float64 { return r.Get("napi_ns") + r.Get("process_ns") }

// cpuCorePct is the router's CPU as a percentage of one core.
func cpuCorePct(r reading) float64 {
	return analysis.Over(routerNs(r)/1e7, r.Get("seconds"))
}

// corePct is CPU time as a percentage of one core.
func corePct(name string) func(reading) float64 {
	return func(r reading) float64 { return analysis.Over(r.Get(name)/1e7, r.Get("seconds")) }
}

// roleCorePct is the CPU of a role, absent where it was not recorded.
func roleCorePct(role string) func(reading) float64 {
	return func(r reading) float64 { return analysis.Positive(corePct("role_ns." + role)(r)) }
}

// gatewayPct is the CPU of one of two gateways, absent where there is one router.
func gatewayPct(name string) func(reading) float64 {
	return func(r reading) float64 { return analysis.Positive(corePct("metrics." + name)(r)) }
}

func nsPerBit(r reading) float64 {
	return analysis.Over(routerNs(r), r.Get("delivered_mbps")*1e6*r.Get("seconds"))
}

// normalisedPct is CPU × offered load / sampled bandwidth. The load is payload and
// the sample counts frames, as in study 1 (equation 5.1).
func normalisedPct(r reading) float64 {
	return analysis.Positive(analysis.Over(cpuCorePct(r)*r.Cell.Number(result.OfferedMbps), r.Get("link_mbps")))
}

// overUDP reports whether the load was the lab's own datagrams.
func overUDP(r reading) bool { return !math.IsNaN(r.Get("datagrams.received")) }

// acksPerSegment is of TCP, and absent where both ends send payload and where packets
// were not counted by direction.
func acksPerSegment(r reading) float64 {
	switch up, down := r.Get("packets_up"), r.Get("packets_down"); {
	case overUDP(r):
	case r.Cell.Text(result.Direction) == result.Up:
		return analysis.Over(down, up)
	case r.Cell.Text(result.Direction) == result.Down:
		return analysis.Over(up, down)
	}
	return math.NaN()
}

func retransmitRatio(r reading) float64 {
	if overUDP(r) {
		return math.NaN()
	}
	return r.Get("retransmit_ratio")
}

// datagrams is a count over those received and another count; absent over TCP, and
// 0 where none came.
func datagrams(count, beside string) func(reading) float64 {
	return func(r reading) float64 {
		if !overUDP(r) {
			return math.NaN()
		}
		all := r.Get("datagrams.received")
		if beside != "" {
			all += r.Get(beside)
		}
		return r.Get(count) / max(1, all)
	}
}

// ofFrames is a figure that only windows of frames have.
func ofFrames(name string) func(reading) float64 {
	return func(r reading) float64 {
		if r.Get("metrics."+OfferedShare) == 0 {
			return math.NaN()
		}
		return r.Get("metrics." + name)
	}
}

func framesPerSecond(r reading) float64 {
	if r.Get("metrics."+OfferedShare) == 0 {
		return math.NaN()
	}
	return analysis.Over(r.Get("datagrams.received"), r.Get("seconds"))
}

// kibPerClient is absent where memory was not read, or where other programs gave
// back more than the labs took.
func kibPerClient(r reading) float64 {
	if r.Get("memory.clients") == 0 || !(r.Get("memory.mib") > 0) {
		return math.NaN()
	}
	return r.Get("memory.mib") * 1024 / r.Get("memory.clients")
}

func increasePct(f analysis.Figures) analysis.Number {
	return analysis.Number(100 * (analysis.Over(float64(f.Device(Normalised).Mean), float64(f.Clean(Normalised).Mean)) - 1))
}

// Ratio is the overhead ratio of a single trial: router CPU per delivered bit, device
// over clean router. Absent when a side delivered nothing or cost nothing.
func Ratio(t result.Trial) analysis.Number {
	device, clean := nsPerBit(readingOf(t, t.DUT)), nsPerBit(readingOf(t, t.Clean))
	return analysis.Number(analysis.Over(analysis.Positive(device), analysis.Positive(clean)))
}

// NormalisedPct is one router's CPU in one window, normalised to the offered load.
func NormalisedPct(t result.Trial, m result.Measurement) analysis.Number {
	return analysis.Number(normalisedPct(readingOf(t, m)))
}

func readingOf(t result.Trial, m result.Measurement) reading {
	return reading{Values: result.ValuesOf(m), Cell: t.Cell}
}

// AtLimit reports whether the device itself could not carry the offered load. A
// hiccup in one trial of many is not the device's limit.
func AtLimit(c analysis.Cell) bool {
	return c.Flagged(result.FlagSaturated) && float64(c.Device(Delivered).Mean) < result.FullLoad*c.Number(result.OfferedMbps)
}
