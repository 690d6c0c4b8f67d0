package cost

import (
	"math"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Names of the metrics that other packages read.
const (
	PerBit     = "cpu_ns_per_bit" // its ratio to the clean router's is the overhead ratio
	CPU        = "cpu_core_pct"
	Normalised = "cpu_normalised_pct"
	Delivered  = "delivered_mbps"
	Link       = "link_mbps"
	Layer1     = "l1_mbps"
	LinePct    = "line_pct"
)

// Metrics of traffic of frames, as records name them.
const (
	OfferedShare = "frames_offered_share"
	Duplicated   = "frames_duplicated_ratio"
	DelayP50     = "frame_delay_p50_us"
	DelayP99     = "frame_delay_p99_us"
	DelayBound   = "frame_delay_bound_us"
	Jitter       = "frame_jitter_us"
	LateP99      = "frame_late_p99_us"
)

// Names for the two gateways of a tunnel. The load enters the tunnel at one of them and leaves it at the other.
const (
	EnterNs  = "enter_ns" // figure in records: CPU time, ns
	LeaveNs  = "leave_ns"
	EnterCPU = "enter_core_pct" // metric: CPU, percent of a core
	LeaveCPU = "leave_core_pct"
)

// RouterOfBusy is a figure in records: the router's CPU time by the lab's exact meter, over the busy time of the
// machine's CPUs by the ticks of /proc/stat, which the studies used. It is about 1 when nothing else runs on the
// machine.
const RouterOfBusy = "router_of_busy"

// InterruptSteal is a figure in records: the largest share of a router's interrupt time that its hypervisor may have
// taken. Unlike the time of threads, interrupt time contains it. Only routers whose links are polled in interrupts have
// this figure.
const InterruptSteal = "interrupt_steal"

// WaitedForOthers is a figure in records: see bench.Bench.WaitedForOthers.
const WaitedForOthers = "waited_for_others"

// Kinds of sample besides analysis.PerWindow, PerLoad and PerBlock.
const (
	perClients analysis.Per = "clients" // one a load, in blocks that recorded how many clients logged in
	perGuests  analysis.Per = "guests"  // one a block with guests
)

// Names of further metrics, which the report's views show.
const (
	NsPerPacket        = "ns_per_packet"
	IncreasePct        = "increase_pct"
	CPUMachinePct      = "cpu_machine_pct"
	ProcessCorePct     = "process_core_pct"
	PSSMiB             = "pss_mib"
	RTTP50Us           = "rtt_p50_us"
	RTTP99Us           = "rtt_p99_us"
	RTTP50MedianUs     = "rtt_p50_median_us"
	RTTP99MedianUs     = "rtt_p99_median_us"
	LossRatio          = "loss_ratio"
	RetransmitRatio    = "retransmit_ratio"
	DatagramLossRatio  = "datagram_loss_ratio"
	ReorderedRatio     = "reordered_ratio"
	FramesPerSecond    = "frames_per_second"
	SegmentsPerBurst   = "segments_per_burst"
	AggregationFactor  = "aggregation_factor"
	PacketsPerWakeup   = "packets_per_wakeup"
	AcksPerSegment     = "acks_per_segment"
	MachineBusyPct     = "machine_busy_pct"
	MeterCorePct       = "meter_core_pct"
	ClientCorePct      = "client_core_pct"
	ServerCorePct      = "server_core_pct"
	GeneratorCorePct   = "generator_core_pct"
	SetupSeconds       = "setup_seconds"
	LeaseSeconds       = "lease_seconds"
	LoginSeconds       = "login_seconds"
	LoginP50Ms         = "login_p50_ms"
	LoginP99Ms         = "login_p99_ms"
	DaemonCorePct      = "daemon_core_pct"
	ConnectP50Us       = "connect_p50_us"
	ConnectP99Us       = "connect_p99_us"
	FirstByteP50Us     = "first_byte_p50_us"
	FirstByteP99Us     = "first_byte_p99_us"
	Jain               = "jain"
	JainEven           = "jain_even"
	StreamMinMbps      = "stream_min_mbps"
	StreamMaxMbps      = "stream_max_mbps"
	ShortPerSecond     = "short_per_second"
	ShortFailed        = "short_failed"
	ShortConnectP99Us  = "short_connect_p99_us"
	ShortWholeP50Us    = "short_whole_p50_us"
	ShortWholeP99Us    = "short_whole_p99_us"
	WarmupSeconds      = "warmup_seconds"
	MemoryKiBPerClient = "memory_kib_per_client"
	GuestsPerSecond    = "guests_per_second"
	GuestLoginP50Ms    = "guest_login_p50_ms"
	GuestLoginP99Ms    = "guest_login_p99_ms"
	PSSBeforeMiB       = "pss_before_mib"
	PSSAfterMiB        = "pss_after_mib"
	RuleLinesBefore    = "rule_lines_before"
	RuleLinesAfter     = "rule_lines_after"
	FlowsBefore        = "flows_before"
	FlowsAfter         = "flows_after"
)

// input has the figures of a window, load or block by their names in records.
type input = analysis.MetricInput

// Metrics lists the metrics of a cell. Adding one takes a line in lab.measurement, which reads it, and a line here,
// which describes it.
var Metrics = append([]analysis.Metric{
	{Name: PerBit, Unit: "ns/bit", Text: "router CPU per delivered bit", Better: analysis.Less, Against: analysis.AsRatio,
		Host: "router", Per: analysis.PerWindow, Both: true, Range: analysis.Amounts, Value: nsPerBit},
	{Name: NsPerPacket, Short: "ns/packet", Unit: "ns", Text: "router CPU per packet forwarded", Better: analysis.Less,
		Host: "router", Per: analysis.PerWindow, Both: true, Range: analysis.Amounts,
		Value: func(r input) float64 { return analysis.Over(routerNs(r), r.Get("packets")) }},
	{Name: CPU, Short: "CPU", Unit: "% of a core", Text: "router CPU", Better: analysis.Less, Host: "router",
		Per: analysis.PerWindow, Both: true, Range: analysis.Amounts, Value: cpuCorePct},
	{Name: Normalised, Unit: "% of a core", Text: "router CPU × offered load / bandwidth on the link",
		Better: analysis.Less, Host: "router", Per: analysis.PerWindow, Both: true, Range: analysis.Amounts,
		Value: normalisedPct},
	{Name: EnterCPU, Unit: "% of a core", Text: "CPU of the gateway where the load enters the tunnel",
		Better: analysis.Less, Against: analysis.AsRatio, Host: "gateway", Per: analysis.PerWindow, Both: true,
		Range: analysis.Amounts, Value: gatewayPct(EnterNs)},
	{Name: LeaveCPU, Unit: "% of a core", Text: "CPU of the gateway where the load leaves the tunnel",
		Better: analysis.Less, Against: analysis.AsRatio, Host: "gateway", Per: analysis.PerWindow, Both: true,
		Range: analysis.Amounts, Value: gatewayPct(LeaveNs)},
	{Name: IncreasePct, Unit: "%", Text: "normalised CPU above the clean router's, as study 1 tabulates it",
		Better: analysis.Less, Host: "router", Per: analysis.PerCell, From: increasePct},
	{Name: CPUMachinePct, Unit: "% of the machine", Text: "router CPU over all CPUs of the machine", Better: analysis.Less,
		Host: "router", Per: analysis.PerWindow, Range: analysis.Percents,
		Value: func(r input) float64 { return analysis.Over(cpuCorePct(r), float64(r.CPUs)) }},
	analysis.SlowedMetric("router", "metrics."+result.RouterShare),
	{Name: ProcessCorePct, Unit: "% of a core", Text: "router CPU in the device's processes", Host: "router",
		Per: analysis.PerWindow, Range: analysis.Amounts, Value: corePct("process_ns")},
	{Name: Delivered, Unit: "Mbit/s", Text: "payload", Better: analysis.More, Per: analysis.PerWindow, Both: true,
		Range: analysis.Amounts, Value: analysis.Field("delivered_mbps")},
	{Name: Link, Unit: "Mbit/s", Text: "on the router's outgoing link, with headers", Host: "router",
		Per: analysis.PerWindow, Range: analysis.Amounts, Value: analysis.Field("link_mbps")},
	{Name: Layer1, Unit: "Mbit/s", Text: "frames on the router's outgoing link with FCS, preamble and gap", Host: "router",
		Per: analysis.PerWindow, Range: analysis.Amounts, With: "metrics." + layer1,
		Value: analysis.PositiveField("metrics." + layer1)},
	{Name: LinePct, Unit: "%", Text: "the same, of the rate of the routers' slowest line", Host: "router",
		Per: analysis.PerWindow, Range: analysis.Percents, With: "metrics." + lineShare,
		Value: func(r input) float64 { return 100 * analysis.Positive(r.Get("metrics."+lineShare)) }},
	{Name: PSSMiB, Unit: "MiB", Text: "memory of the device's processes", Better: analysis.Less, Host: "router",
		Per: analysis.PerWindow, Range: analysis.Amounts, Value: analysis.Field("pss_mib")},
	{Name: RTTP50Us, Unit: "µs", Text: "round-trip time under load, mean of the blocks' medians", Better: analysis.Less,
		Per: analysis.PerWindow, Both: true, Median: true, Range: analysis.Amounts,
		Value: analysis.PositiveField("rtt_us.p50")},
	{Name: RTTP99Us, Unit: "µs", Text: "round-trip time under load, mean of the blocks' medians", Better: analysis.Less,
		Per: analysis.PerWindow, Both: true, Median: true, Range: analysis.Amounts,
		Value: analysis.PositiveField("rtt_us.p99")},
	{Name: RTTP50MedianUs, Unit: "µs", Text: "round-trip time under load, median of all windows", Better: analysis.Less,
		Per: analysis.PerPool, Both: true, Value: analysis.PositiveField("rtt_us.p50")},
	{Name: RTTP99MedianUs, Unit: "µs", Text: "round-trip time under load, median of all windows", Better: analysis.Less,
		Per: analysis.PerPool, Both: true, Value: analysis.PositiveField("rtt_us.p99")},
	{Name: LossRatio, Text: "dropped by the router / (sent + dropped)", Better: analysis.Less, Host: "router",
		Per: analysis.PerWindow, Both: true, Range: analysis.Shares, Value: func(r input) float64 {
			return analysis.Over(r.Get("drops"), r.Get("packets")+r.Get("drops"))
		}},
	{Name: RetransmitRatio, Text: "TCP segments sent again / sent", Better: analysis.Less, Per: analysis.PerWindow,
		Range: analysis.Shares, Value: retransmitRatio},
	{Name: DatagramLossRatio, Text: "UDP datagrams lost / sent", Better: analysis.Less, Per: analysis.PerWindow,
		Both: true, Range: analysis.Shares, Value: datagrams("datagrams.lost", "datagrams.lost")},
	{Name: ReorderedRatio, Text: "UDP datagrams that came late / received", Better: analysis.Less, Per: analysis.PerWindow,
		Both: true, Range: analysis.Shares, Value: datagrams("datagrams.reordered", "")},
	{Name: FramesPerSecond, Unit: "frames/s", Text: "that arrived", Better: analysis.More, Per: analysis.PerWindow,
		Both: true, Range: analysis.Amounts, Value: framesPerSecond},
	{Name: DelayP50, Unit: "µs", Text: "one-way delay of frames, median", Better: analysis.Less, Per: analysis.PerWindow,
		Both: true, Range: analysis.Amounts, Value: delayOnly(DelayP50)},
	{Name: DelayP99, Unit: "µs", Text: "one-way delay of frames", Better: analysis.Less, Per: analysis.PerWindow,
		Both: true, Range: analysis.Amounts, Value: delayOnly(DelayP99)},
	{Name: DelayBound, Unit: "µs", Text: "by which one-way delays are off at most, by the clocks of two machines",
		Per: analysis.PerWindow, Range: analysis.Amounts, With: "metrics." + DelayBound, Value: delayOnly(DelayBound)},
	{Name: Jitter, Unit: "µs", Text: "interarrival jitter of frames (RFC 3550), mean of the streams",
		Better: analysis.Less, Per: analysis.PerWindow, Both: true, Range: analysis.Amounts, Value: framesOnly(Jitter)},
	{Name: Duplicated, Text: "frames that came again / received", Better: analysis.Less, Per: analysis.PerWindow,
		Both: true, Range: analysis.Shares, Value: framesOnly(Duplicated)},
	{Name: OfferedShare, Text: "frames that the generator's link took / that were due", Host: "client",
		Per: analysis.PerWindow, Both: true, Range: analysis.Amounts, Value: framesOnly(OfferedShare)},
	{Name: LateP99, Unit: "µs", Text: "how long after their due times frames left the generator", Host: "client",
		Per: analysis.PerWindow, Both: true, Range: analysis.Amounts, Value: framesOnly(LateP99)},
	{Name: SegmentsPerBurst, Unit: "segments", Text: "sent back to back", Host: "client", Per: analysis.PerWindow,
		Both: true, Range: analysis.Amounts, Value: analysis.PositiveField("segments_per_burst")},
	{Name: AggregationFactor, Unit: "frames/packet", Host: "router", Per: analysis.PerWindow, Range: analysis.Amounts,
		Value: analysis.PositiveField("aggregation_factor")},
	{Name: PacketsPerWakeup, Unit: "packets", Text: "handled by a polling thread of the router in one go", Host: "router",
		Per: analysis.PerWindow, Both: true, Range: analysis.Amounts, Value: analysis.PositiveField("packets_per_wakeup")},
	{Name: AcksPerSegment, Unit: "packets", Text: "against the direction of the payload for one along it",
		Per: analysis.PerWindow, Both: true, Range: analysis.Amounts, Value: acksPerSegment},
	{Name: MachineBusyPct, Unit: "% of the machine", Text: "/proc/stat, both labs with their endpoints", Host: "machine",
		Per: analysis.PerWindow, Range: analysis.Percents, Value: func(r input) float64 {
			return analysis.Positive(r.Get("machine.usr") + r.Get("machine.sys") + r.Get("machine.soft"))
		}},
	{Name: MeterCorePct, Unit: "% of a core", Text: "CPU of metering", Host: "router", Per: analysis.PerWindow,
		Range: analysis.Amounts, Value: corePct("meter_ns")},
	{Name: ClientCorePct, Unit: "% of a core", Text: "CPU of the client hosts", Host: "client", Per: analysis.PerWindow,
		Both: true, Range: analysis.Amounts, Value: roleCorePct(result.RoleClient)},
	{Name: ServerCorePct, Unit: "% of a core", Text: "CPU of the server", Host: "server", Per: analysis.PerWindow,
		Range: analysis.Amounts, Value: roleCorePct(result.RoleServer)},
	{Name: GeneratorCorePct, Unit: "% of a core", Text: "CPU of the busiest traffic thread", Host: "client",
		Per: analysis.PerWindow, Range: analysis.Percents,
		Value: func(r input) float64 { return analysis.Positive(100 * r.Get("generator_cpu")) }},

	{Name: SetupSeconds, Unit: "s", Text: "labs and device, without clients", Better: analysis.Less,
		Per: analysis.PerBlock, Range: analysis.Amounts, Value: analysis.Field("setup_seconds")},
	{Name: LeaseSeconds, Unit: "s", Text: "until all clients had leased", Better: analysis.Less, Per: analysis.PerBlock,
		Range: analysis.Amounts, Value: analysis.Field("lease_seconds")},
	{Name: LoginSeconds, Unit: "s", Text: "until all clients were logged in", Better: analysis.Less,
		Per: analysis.PerBlock, Range: analysis.Amounts, Value: analysis.Field("login_seconds")},
	{Name: LoginP50Ms, Unit: "ms", Text: "login of one client", Better: analysis.Less, Per: analysis.PerBlock,
		Range: analysis.Amounts, Value: analysis.Field("login_ms.p50")},
	{Name: LoginP99Ms, Unit: "ms", Text: "login of one client", Better: analysis.Less, Per: analysis.PerBlock,
		Range: analysis.Amounts, Value: analysis.Field("login_ms.p99")},
	{Name: DaemonCorePct, Unit: "% of a core", Text: "CPU of the device's processes over the whole block",
		Better: analysis.Less, Host: "router", Per: analysis.PerBlock, Range: analysis.Amounts,
		Value: func(r input) float64 { return 100 * r.Get("daemon_core") }},

	{Name: ConnectP50Us, Unit: "µs", Text: "until a stream was connected", Better: analysis.Less, Per: analysis.PerLoad,
		Range: analysis.Amounts, Value: analysis.PositiveField("connect_us.p50")},
	{Name: ConnectP99Us, Unit: "µs", Text: "until a stream was connected", Better: analysis.Less, Per: analysis.PerLoad,
		Range: analysis.Amounts, Value: analysis.PositiveField("connect_us.p99")},
	{Name: FirstByteP50Us, Unit: "µs", Text: "from the connection to the server's first byte", Better: analysis.Less,
		Per: analysis.PerLoad, Range: analysis.Amounts, Value: analysis.PositiveField("first_byte_us.p50")},
	{Name: FirstByteP99Us, Unit: "µs", Text: "from the connection to the server's first byte", Better: analysis.Less,
		Per: analysis.PerLoad, Range: analysis.Amounts, Value: analysis.PositiveField("first_byte_us.p99")},
	{Name: Jain, Text: "Jain's fairness index between streams", Better: analysis.More, Per: analysis.PerLoad, Both: true,
		Range: analysis.Shares, Value: analysis.PositiveField("fairness.jain")},
	{Name: JainEven, Text: "the largest index possible where each stream carries whole bursts", Per: analysis.PerLoad,
		Range: analysis.Shares, Value: analysis.PositiveField("fairness.even")},
	{Name: StreamMinMbps, Unit: "Mbit/s", Text: "of the stream that carried least", Better: analysis.More,
		Per: analysis.PerLoad, Range: analysis.Amounts, Value: func(r input) float64 {
			if r.Get("fairness.streams") == 0 {
				return math.NaN()
			}
			return r.Get("fairness.min_mbps")
		}},
	{Name: StreamMaxMbps, Unit: "Mbit/s", Text: "of the stream that carried most", Per: analysis.PerLoad,
		Range: analysis.Amounts, Value: analysis.PositiveField("fairness.max_mbps")},
	{Name: ShortPerSecond, Unit: "connections/s", Text: "short connections that had their whole answer",
		Better: analysis.More, Per: analysis.PerLoad, Both: true, Range: analysis.Amounts,
		Value: analysis.Field("short.per_second")},
	{Name: ShortFailed, Unit: "connections", Text: "short connections that failed in a block", Better: analysis.Less,
		Per: analysis.PerLoad, Range: analysis.Amounts, Value: analysis.Field("short.failed")},
	{Name: ShortConnectP99Us, Unit: "µs", Better: analysis.Less, Per: analysis.PerLoad, Range: analysis.Amounts,
		Value: analysis.PositiveField("short.connect_us.p99")},
	{Name: ShortWholeP50Us, Unit: "µs", Better: analysis.Less, Per: analysis.PerLoad, Range: analysis.Amounts,
		Value: analysis.PositiveField("short.whole_us.p50")},
	{Name: ShortWholeP99Us, Unit: "µs", Better: analysis.Less, Per: analysis.PerLoad, Range: analysis.Amounts,
		Value: analysis.PositiveField("short.whole_us.p99")},

	{Name: WarmupSeconds, Unit: "s", Per: perClients, Range: analysis.Amounts, Value: analysis.Field("warmup_seconds")},
	{Name: MemoryKiBPerClient, Unit: "KiB", Text: "memory that both labs take of the machine, over their clients",
		Better: analysis.Less, Host: "machine", Per: perClients, Range: analysis.Amounts, Value: kibPerClient},

	{Name: GuestsPerSecond, Unit: "guests/s", Text: "that were to come", Per: perGuests, Range: analysis.Amounts,
		Value: analysis.Field("per_second")},
	{Name: "guest_lease_p99_ms", Unit: "ms", Better: analysis.Less, Per: perGuests, Range: analysis.Amounts,
		Value: analysis.PositiveField("lease_p99_ms")},
	{Name: GuestLoginP50Ms, Unit: "ms", Better: analysis.Less, Per: perGuests, Range: analysis.Amounts,
		Value: analysis.PositiveField("login_p50_ms")},
	{Name: GuestLoginP99Ms, Unit: "ms", Better: analysis.Less, Per: perGuests, Range: analysis.Amounts,
		Value: analysis.PositiveField("login_p99_ms")},
	{Name: "settled_seconds", Unit: "s",
		Text: "from the last guest's leaving until the device knew as many clients as before", Better: analysis.Less,
		Per: perGuests, Range: analysis.Amounts, Value: analysis.Field("settled_seconds")},
	{Name: PSSBeforeMiB, Unit: "MiB", Text: "memory of the device's processes before the first guest", Host: "router",
		Per: perGuests, Range: analysis.Amounts, Value: analysis.Field("before.pss_mib")},
	{Name: PSSAfterMiB, Unit: "MiB", Text: "and after the last", Better: analysis.Less, Host: "router", Per: perGuests,
		Range: analysis.Amounts, Value: analysis.Field("after.pss_mib")},
	{Name: RuleLinesBefore, Unit: "lines", Text: "of the router's rules before the first guest", Host: "router",
		Per: perGuests, Range: analysis.Amounts, Value: analysis.Field("before.rule_lines")},
	{Name: RuleLinesAfter, Unit: "lines", Text: "and after the last", Better: analysis.Less, Host: "router",
		Per: perGuests, Range: analysis.Amounts, Value: analysis.Field("after.rule_lines")},
	{Name: FlowsBefore, Unit: "connections", Text: "tracked by the router before the first guest", Host: "router",
		Per: perGuests, Range: analysis.Amounts, Value: analysis.Field("before.flows")},
	{Name: FlowsAfter, Unit: "connections", Text: "and after the last", Better: analysis.Less, Host: "router",
		Per: perGuests, Range: analysis.Amounts, Value: analysis.Field("after.flows")},
}, delayMetrics...)

// LinesTo is the highest load, Mbit/s, to which straight lines of CPU over load are fitted. Study 4's go to 90 Mbit/s.
// At much higher loads several packets share a wake-up, and CPU is no longer a straight line.
const LinesTo = 100

// namedMetrics tells package analysis which metrics to use for sweeps, cost models and ceilings.
var namedMetrics = analysis.Laws{
	CPU: CPU, Normalised: Normalised, Link: Link, Delivered: Delivered,
	Packets:      func(r input) float64 { return analysis.Over(r.Get("packets"), r.Get("seconds")) / 1e6 },
	TrendMetrics: []string{EnterCPU, LeaveCPU}, TrendMaxMbps: LinesTo,
}

// routerNs is the router's CPU time in ns.
func routerNs(r input) float64 { return r.Get("napi_ns") + r.Get("process_ns") }

// cpuCorePct is the router's CPU as a percentage of one core.
func cpuCorePct(r input) float64 {
	return analysis.Over(routerNs(r)/1e7, r.Get("seconds"))
}

// corePct returns the metric of a figure of CPU time in ns: as a percentage of one core.
func corePct(name string) func(input) float64 {
	return func(r input) float64 { return analysis.Over(r.Get(name)/1e7, r.Get("seconds")) }
}

// roleCorePct returns the metric of a role's CPU. It is absent for records without that role.
func roleCorePct(role string) func(input) float64 {
	return func(r input) float64 { return analysis.Positive(corePct("role_ns." + role)(r)) }
}

// gatewayPct returns the metric of the CPU of one of two gateways. It is absent for labs with one router.
func gatewayPct(name string) func(input) float64 {
	return func(r input) float64 { return analysis.Positive(corePct("metrics." + name)(r)) }
}

// nsPerBit is the router's CPU time per delivered bit, ns.
func nsPerBit(r input) float64 {
	return analysis.Over(routerNs(r), r.Get("delivered_mbps")*1e6*r.Get("seconds"))
}

// normalisedPct is the router's CPU × offered load / bandwidth on the link, percent of a core. The load is payload, and
// the bandwidth counts whole frames, as in study 1 (equation 5.1).
func normalisedPct(r input) float64 {
	return analysis.Positive(analysis.Over(cpuCorePct(r)*r.Cell.Number(result.OfferedMbps), r.Get("link_mbps")))
}

// overUDP reports whether the load was the lab's own datagrams.
func overUDP(r input) bool { return !math.IsNaN(r.Get("datagrams.received")) }

// acksPerSegment is the packets against the direction of a TCP load over those along it. It is absent for UDP, for
// loads in both directions, and for records that do not count packets by direction.
func acksPerSegment(r input) float64 {
	switch up, down := r.Get("packets_up"), r.Get("packets_down"); {
	case overUDP(r):
	case r.Cell.Text(result.Direction) == result.Up:
		return analysis.Over(down, up)
	case r.Cell.Text(result.Direction) == result.Down:
		return analysis.Over(up, down)
	}
	return math.NaN()
}

func retransmitRatio(r input) float64 {
	if overUDP(r) {
		return math.NaN()
	}
	return r.Get("retransmit_ratio")
}

// datagrams returns the metric count / (received + beside) of a load over UDP; beside may be "". It is absent for TCP.
func datagrams(count, beside string) func(input) float64 {
	return func(r input) float64 {
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

// framesOnly returns the metric of a figure that only loads of frames have. It is absent for other loads.
func framesOnly(name string) func(input) float64 {
	return func(r input) float64 {
		if r.Get("metrics."+OfferedShare) == 0 {
			return math.NaN()
		}
		return r.Get("metrics." + name)
	}
}

// delayOnly returns the metric of a one-way delay of frames. It is absent for hosts without a common clock.
func delayOnly(name string) func(input) float64 {
	return func(r input) float64 {
		if _, known := r.Values["metrics."+name]; !known {
			return math.NaN()
		}
		return framesOnly(name)(r)
	}
}

func framesPerSecond(r input) float64 {
	if r.Get("metrics."+OfferedShare) == 0 {
		return math.NaN()
	}
	return analysis.Over(r.Get("datagrams.received"), r.Get("seconds"))
}

// kibPerClient is the memory of both labs over their clients, KiB. It is absent when memory was not read, or when other
// programs freed more memory than the labs took.
func kibPerClient(r input) float64 {
	if r.Get("memory.clients") == 0 || !(r.Get("memory.mib") > 0) {
		return math.NaN()
	}
	return r.Get("memory.mib") * 1024 / r.Get("memory.clients")
}

func increasePct(f analysis.Figures) analysis.Number {
	return analysis.Number(
		100 * (analysis.Over(float64(f.Device(Normalised).Mean), float64(f.Clean(Normalised).Mean)) - 1))
}

// Ratio is the overhead ratio of a single trial: router CPU per delivered bit, device
// over clean router. Absent when a side delivered nothing or cost nothing.
func Ratio(t result.Trial) analysis.Number {
	device, clean := nsPerBit(inputOf(t, SidesOf(t).DUT)), nsPerBit(inputOf(t, SidesOf(t).Clean))
	return analysis.Number(analysis.Over(analysis.Positive(device), analysis.Positive(clean)))
}

// NormalisedPct is one router's CPU in one window, normalised to the offered load.
func NormalisedPct(t result.Trial, m Measurement) analysis.Number {
	return analysis.Number(normalisedPct(inputOf(t, m)))
}

func inputOf(t result.Trial, m Measurement) input {
	return input{Values: result.ValuesOf(m), Cell: t.Cell}
}

// AtLimit reports whether the device could not carry the cell's offered load. It is false when only some of the trials
// delivered too little, so that their mean is still close to the load, or the interval of what was delivered has it.
func AtLimit(c analysis.Cell) bool {
	delivered, offered := c.Device(Delivered), c.Number(result.OfferedMbps)
	if !c.Flagged(result.FlagSaturated) || float64(delivered.Mean) >= result.FullLoad*offered {
		return false
	}
	return c.FlaggedShare(result.FlagSaturated) == 1 || !delivered.Hi.Known() || float64(delivered.Hi) < offered
}
