package analysis

import (
	"math"

	"github.com/gateweigh/gateweigh/lab/result"
)

// Figures are the means of a cell with their intervals over blocks. Percentages
// are of one core unless the name says machine.
type Figures struct {
	DeliveredMbps      Estimate `json:"delivered_mbps"`
	CleanDeliveredMbps Estimate `json:"clean_delivered_mbps"`
	LinkMbps           Estimate `json:"link_mbps"` // with frame headers
	ProcessCorePct     Estimate `json:"process_core_pct"`
	// CPUMachinePct is the router's exact CPU over all CPUs of the machine.
	CPUMachinePct Estimate `json:"cpu_machine_pct"`
	// MachineBusyPct is the whole machine's /proc/stat, endpoints and both labs included.
	MachineBusyPct        Estimate `json:"machine_busy_pct"`
	CPUNormalisedPct      Estimate `json:"cpu_normalised_pct"`
	CleanCPUNormalisedPct Estimate `json:"clean_cpu_normalised_pct"`
	NsPerPacket           Estimate `json:"ns_per_packet"`
	CleanNsPerPacket      Estimate `json:"clean_ns_per_packet"`
	PSSMiB                Estimate `json:"pss_mib"`
	// RTT figures are over the blocks' medians.
	RTTP50us         Estimate `json:"rtt_p50_us"`
	RTTP99us         Estimate `json:"rtt_p99_us"`
	CleanRTTP50us    Estimate `json:"clean_rtt_p50_us"`
	CleanRTTP99us    Estimate `json:"clean_rtt_p99_us"`
	LossRatio        Estimate `json:"loss_ratio"`
	CleanLossRatio   Estimate `json:"clean_loss_ratio"`
	RetransmitRatio  Estimate `json:"retransmit_ratio"`
	SegmentsPerBurst Estimate `json:"segments_per_burst"`
	// DatagramLossRatio and ReorderedRatio are of UDP from the lab's generator.
	DatagramLossRatio      Estimate `json:"datagram_loss_ratio"`
	CleanDatagramLossRatio Estimate `json:"clean_datagram_loss_ratio"`
	ReorderedRatio         Estimate `json:"reordered_ratio"`
	CleanReorderedRatio    Estimate `json:"clean_reordered_ratio"`
	// CleanSegmentsPerBurst beside it shows whether both sides had the same traffic.
	CleanSegmentsPerBurst Estimate `json:"clean_segments_per_burst"`
	AggregationFactor     Estimate `json:"aggregation_factor"`
	// PacketsPerWakeup are frames that a polling thread of the router handles in one go,
	// AcksPerSegment packets against the direction of the payload for one along it: beside
	// the length of bursts they say why two kinds of traffic cost a router differently.
	PacketsPerWakeup      Estimate `json:"packets_per_wakeup"`
	CleanPacketsPerWakeup Estimate `json:"clean_packets_per_wakeup"`
	AcksPerSegment        Estimate `json:"acks_per_segment"`
	CleanAcksPerSegment   Estimate `json:"clean_acks_per_segment"`
	MeterCorePct          Estimate `json:"meter_core_pct"` // what measuring itself cost
	// ClientCorePct is the client hosts' own CPU, traffic and all; GeneratorCorePct the
	// busiest of the traffic's threads on either end.
	ClientCorePct      Estimate `json:"client_core_pct"`
	CleanClientCorePct Estimate `json:"clean_client_core_pct"`
	ServerCorePct      Estimate `json:"server_core_pct"`
	GeneratorCorePct   Estimate `json:"generator_core_pct"`
}

// BlockTimes are figures known once a block, not once a window.
type BlockTimes struct {
	SetupSeconds Estimate `json:"setup_seconds"` // labs and DUT, without clients
	LeaseSeconds Estimate `json:"lease_seconds"` // all clients
	LoginSeconds Estimate `json:"login_seconds"` // all clients
	LoginP50ms   Estimate `json:"login_p50_ms"`  // one client
	LoginP99ms   Estimate `json:"login_p99_ms"`
	// DaemonCorePct is the DUT processes' CPU over the whole block: work done
	// every 15 s falls between windows and is seen only here.
	DaemonCorePct Estimate `json:"daemon_core_pct"`
}

// logRatio is the log of DUT over clean router CPU per delivered bit, NaN when
// a side delivered nothing or cost nothing.
func logRatio(t result.Trial) float64 {
	dut, clean := nsPerBit(t.DUT), nsPerBit(t.Clean)
	if !(dut > 0) || !(clean > 0) {
		return math.NaN()
	}
	return finite(math.Log(dut / clean))
}

func nsPerBit(m result.Measurement) float64 {
	return over(float64(m.RouterNs()), m.DeliveredMbps*1e6*m.Seconds)
}

func nsPerPacket(m result.Measurement) float64 {
	return over(float64(m.RouterNs()), float64(m.Packets))
}

// normalisedPct is equation 5.1 of study 1: CPU × limit / sampled bandwidth.
// The limit is payload and the sample counts frames, as in the study.
func normalisedPct(m result.Measurement, offered float64) float64 {
	return over(m.CPUCorePct()*offered, m.LinkMbps)
}

// rolePct is the CPU of a role, % of one core; absent where it was not recorded.
func rolePct(m result.Measurement, role string) float64 {
	return positive(over(float64(m.RoleNs[role])/1e7, m.Seconds))
}

// acksPerSegment is of TCP, and absent where both ends send payload and where packets
// were not counted by direction.
func acksPerSegment(m result.Measurement, direction string) float64 {
	switch {
	case m.Datagrams != nil:
		return math.NaN()
	case direction == result.Up:
		return over(float64(m.PacketsDown), float64(m.PacketsUp))
	case direction == result.Down:
		return over(float64(m.PacketsUp), float64(m.PacketsDown))
	}
	return math.NaN()
}

func lossRatio(m result.Measurement) float64 {
	return over(float64(m.Drops), float64(m.Packets)+float64(m.Drops))
}

// retransmitRatio is of TCP.
func retransmitRatio(m result.Measurement) float64 {
	if m.Datagrams != nil {
		return math.NaN()
	}
	return m.RetransmitRatio
}

// datagramRatio is of UDP.
func datagramRatio(m result.Measurement, of func(result.Datagrams) float64) float64 {
	if m.Datagrams == nil {
		return math.NaN()
	}
	return of(*m.Datagrams)
}

// over divides; a denominator of nothing gives no figure.
func over(a, b float64) float64 {
	if !(b > 0) {
		return math.NaN()
	}
	return finite(a / b)
}

// positive treats zero as "not measured", for figures that cannot be zero.
func positive(v float64) float64 {
	if !(v > 0) {
		return math.NaN()
	}
	return v
}

func finite(v float64) float64 {
	if math.IsInf(v, 0) {
		return math.NaN()
	}
	return v
}

// figure says how one field of Figures comes from a trial.
type figure struct {
	field func(*Figures) *Estimate
	of    func(t result.Trial, cpus int) float64
	// centre makes one value of a block's windows; nil is the mean.
	centre func([]float64) float64
	within scale
}

// figureTable is every figure known once a window; a new one is a line here.
var figureTable = []figure{
	{func(f *Figures) *Estimate { return &f.DeliveredMbps }, func(t result.Trial, _ int) float64 { return t.DUT.DeliveredMbps }, nil, amounts},
	{func(f *Figures) *Estimate { return &f.CleanDeliveredMbps }, func(t result.Trial, _ int) float64 { return t.Clean.DeliveredMbps }, nil, amounts},
	{func(f *Figures) *Estimate { return &f.LinkMbps }, func(t result.Trial, _ int) float64 { return t.DUT.LinkMbps }, nil, amounts},
	{func(f *Figures) *Estimate { return &f.ProcessCorePct }, func(t result.Trial, _ int) float64 {
		return over(float64(t.DUT.ProcessNs)/1e7, t.DUT.Seconds)
	}, nil, amounts},
	{func(f *Figures) *Estimate { return &f.CPUMachinePct }, func(t result.Trial, cpus int) float64 {
		return over(t.DUT.CPUCorePct(), float64(cpus))
	}, nil, percents},
	{func(f *Figures) *Estimate { return &f.MachineBusyPct }, func(t result.Trial, _ int) float64 {
		return positive(t.DUT.Machine.Usr + t.DUT.Machine.Sys + t.DUT.Machine.Soft)
	}, nil, percents},
	{func(f *Figures) *Estimate { return &f.CPUNormalisedPct }, func(t result.Trial, _ int) float64 {
		return positive(normalisedPct(t.DUT, t.Cell.Number(result.OfferedMbps)))
	}, nil, amounts},
	{func(f *Figures) *Estimate { return &f.CleanCPUNormalisedPct }, func(t result.Trial, _ int) float64 {
		return positive(normalisedPct(t.Clean, t.Cell.Number(result.OfferedMbps)))
	}, nil, amounts},
	{func(f *Figures) *Estimate { return &f.NsPerPacket }, func(t result.Trial, _ int) float64 { return nsPerPacket(t.DUT) }, nil, amounts},
	{func(f *Figures) *Estimate { return &f.CleanNsPerPacket }, func(t result.Trial, _ int) float64 { return nsPerPacket(t.Clean) }, nil, amounts},
	{func(f *Figures) *Estimate { return &f.PSSMiB }, func(t result.Trial, _ int) float64 { return t.DUT.PSSMiB }, nil, amounts},
	{func(f *Figures) *Estimate { return &f.RTTP50us }, func(t result.Trial, _ int) float64 { return positive(t.DUT.RTT.P50) }, median, amounts},
	{func(f *Figures) *Estimate { return &f.RTTP99us }, func(t result.Trial, _ int) float64 { return positive(t.DUT.RTT.P99) }, median, amounts},
	{func(f *Figures) *Estimate { return &f.CleanRTTP50us }, func(t result.Trial, _ int) float64 { return positive(t.Clean.RTT.P50) }, median, amounts},
	{func(f *Figures) *Estimate { return &f.CleanRTTP99us }, func(t result.Trial, _ int) float64 { return positive(t.Clean.RTT.P99) }, median, amounts},
	{func(f *Figures) *Estimate { return &f.LossRatio }, func(t result.Trial, _ int) float64 { return lossRatio(t.DUT) }, nil, shares},
	{func(f *Figures) *Estimate { return &f.CleanLossRatio }, func(t result.Trial, _ int) float64 { return lossRatio(t.Clean) }, nil, shares},
	{func(f *Figures) *Estimate { return &f.RetransmitRatio }, func(t result.Trial, _ int) float64 { return retransmitRatio(t.DUT) }, nil, shares},
	{func(f *Figures) *Estimate { return &f.DatagramLossRatio }, func(t result.Trial, _ int) float64 { return datagramRatio(t.DUT, result.Datagrams.LossRatio) }, nil, shares},
	{func(f *Figures) *Estimate { return &f.CleanDatagramLossRatio }, func(t result.Trial, _ int) float64 { return datagramRatio(t.Clean, result.Datagrams.LossRatio) }, nil, shares},
	{func(f *Figures) *Estimate { return &f.ReorderedRatio }, func(t result.Trial, _ int) float64 { return datagramRatio(t.DUT, result.Datagrams.ReorderedRatio) }, nil, shares},
	{func(f *Figures) *Estimate { return &f.CleanReorderedRatio }, func(t result.Trial, _ int) float64 { return datagramRatio(t.Clean, result.Datagrams.ReorderedRatio) }, nil, shares},
	{func(f *Figures) *Estimate { return &f.SegmentsPerBurst }, func(t result.Trial, _ int) float64 { return positive(t.DUT.SegmentsPerBurst) }, nil, amounts},
	{func(f *Figures) *Estimate { return &f.CleanSegmentsPerBurst }, func(t result.Trial, _ int) float64 {
		return positive(t.Clean.SegmentsPerBurst)
	}, nil, amounts},
	{func(f *Figures) *Estimate { return &f.AggregationFactor }, func(t result.Trial, _ int) float64 { return positive(t.DUT.AggregationFactor) }, nil, amounts},
	{func(f *Figures) *Estimate { return &f.PacketsPerWakeup }, func(t result.Trial, _ int) float64 { return positive(t.DUT.PacketsPerWakeup) }, nil, amounts},
	{func(f *Figures) *Estimate { return &f.CleanPacketsPerWakeup }, func(t result.Trial, _ int) float64 {
		return positive(t.Clean.PacketsPerWakeup)
	}, nil, amounts},
	{func(f *Figures) *Estimate { return &f.AcksPerSegment }, func(t result.Trial, _ int) float64 {
		return acksPerSegment(t.DUT, t.Cell.Text(result.Direction))
	}, nil, amounts},
	{func(f *Figures) *Estimate { return &f.CleanAcksPerSegment }, func(t result.Trial, _ int) float64 {
		return acksPerSegment(t.Clean, t.Cell.Text(result.Direction))
	}, nil, amounts},
	{func(f *Figures) *Estimate { return &f.MeterCorePct }, func(t result.Trial, _ int) float64 {
		return over(float64(t.DUT.MeterNs)/1e7, t.DUT.Seconds)
	}, nil, amounts},
	{func(f *Figures) *Estimate { return &f.ClientCorePct }, func(t result.Trial, _ int) float64 { return rolePct(t.DUT, result.RoleClient) }, nil, amounts},
	{func(f *Figures) *Estimate { return &f.CleanClientCorePct }, func(t result.Trial, _ int) float64 { return rolePct(t.Clean, result.RoleClient) }, nil, amounts},
	{func(f *Figures) *Estimate { return &f.ServerCorePct }, func(t result.Trial, _ int) float64 { return rolePct(t.DUT, result.RoleServer) }, nil, amounts},
	{func(f *Figures) *Estimate { return &f.GeneratorCorePct }, func(t result.Trial, _ int) float64 { return positive(100 * t.DUT.GeneratorCPU) }, nil, percents},
}

// blockFigureTable is every figure known once a block.
var blockFigureTable = []struct {
	field func(*BlockTimes) *Estimate
	of    func(result.Block) float64
}{
	{func(f *BlockTimes) *Estimate { return &f.SetupSeconds }, func(b result.Block) float64 { return b.SetupSeconds }},
	{func(f *BlockTimes) *Estimate { return &f.LeaseSeconds }, func(b result.Block) float64 { return b.LeaseSeconds }},
	{func(f *BlockTimes) *Estimate { return &f.LoginSeconds }, func(b result.Block) float64 { return b.LoginSeconds }},
	{func(f *BlockTimes) *Estimate { return &f.LoginP50ms }, func(b result.Block) float64 { return quantile(b.LoginMs, 0.5) }},
	{func(f *BlockTimes) *Estimate { return &f.LoginP99ms }, func(b result.Block) float64 { return quantile(b.LoginMs, 0.99) }},
	{func(f *BlockTimes) *Estimate { return &f.DaemonCorePct }, func(b result.Block) float64 { return 100 * b.DaemonCore }},
}

// TrialRatio is the overhead ratio of a single trial: router CPU per delivered
// bit, DUT over clean. Absent when a side delivered nothing or cost nothing.
func TrialRatio(t result.Trial) Number { return Number(math.Exp(logRatio(t))) }
