package studies

import (
	"math"

	"github.com/gateweigh/gateweigh/lab/measure/capture"
	"github.com/gateweigh/gateweigh/lab/result"
)

// study2 measures what capturing with tcpdump costs five home gateways: end-to-end loss, the share of packets
// captured and CPU, against the rate, without tcpdump and with snap lengths of 68 and 1500 bytes.
var study2 = Study{
	Number:    2,
	Scenarios: monitored,
	Pairs: []Pair{
		{First: "tcpdump-1500", Second: "tcpdump-68", Study: true, Why: snapWhy, Claim: "first-bytes-cost-less"},
		{First: "tcpdump", Second: "tcpdump-disk", Study: true, Claim: "disk-costs-little"},
	},
	Sweeps: []*Sweep{gatewaySweep, gatewayLimits, plain, simpleFilter, complexFilter, copying, compressing},
	Claims: claims2,
	Limits: []LimitForm{{
		ID: "2", Title: "Table 2", RowHeading: "Gateway",
		Caption: "Highest rate without loss; published without tcpdump and without CPU monitoring",
		Reading: "Of the rates that were measured; at-least marks the highest of them. Without loss: at most 0.1 % of the " +
			"frames, in the mean over blocks.",
		Columns: []LimitColumn{
			{"Nothing lost end to end", gatewayLimits, endToEnd}, {"Everything captured", gatewaySweep, captured},
		},
	}},
	Figures: []FigureForm{
		gatewayFigure("2", "no-capture", "without tcpdump"), gatewayFigure("3", "tcpdump-68",
			"with tcpdump, 68 bytes a packet"), gatewayFigure("4", "tcpdump-1500", "with tcpdump, 1500 bytes a packet"),
	},
	Units: func(int) string { return "" },
}

// monitored are the study's scenarios.
var monitored = []Scenario{
	{Published: "no-tcpdump", DUT: "no-capture", Name: "no-capture",
		Obtain: "`gateweigh run capture-gateway --set duts=no-capture` measures it."},
	{Published: "tcpdump-68", DUT: "tcpdump-68", Name: "tcpdump-68",
		Obtain: "`gateweigh run capture-gateway --set duts=no-capture,tcpdump-68` measures it."},
	{Published: "tcpdump-1500", DUT: "tcpdump-1500", Name: "tcpdump-1500",
		Obtain: "`gateweigh run capture-gateway --set duts=no-capture,tcpdump-1500` measures it."},
}

// homeGateways are the study's gateways, in the order of their speed.
var homeGateways = []string{"MIPS1", "MIPS2", "Geode", "ARM", "ATOM"}

// lossless is the largest loss of frames that counts as none, per cent. The study's iperf prints two digits.
const lossless = 0.1

// Metrics of the measure capture. The study's share of captured packets is a share of the packets sent.
var (
	endToEnd = Metric{Name: capture.LossPct, Noun: "loss end to end", Unit: "%", Least: math.Inf(-1), Most: lossless}
	captured = Metric{
		Name: capture.CapturedOfferedPct, Noun: "capture rate", Unit: "%", Least: 100 - lossless, Most: math.Inf(1)}
	busy      = Metric{Name: capture.BusyPct, Noun: "the CPU", Unit: "%"}
	core      = Metric{Name: capture.CorePct, Noun: "CPU", Unit: "% of a core"}
	ofCapture = []Metric{endToEnd, captured, busy, core}
)

var (
	gatewaySweep = &Sweep{Along: result.OfferedMbps, Fixed: result.NewCell(result.FrameSize, "1514"), Metrics: ofCapture,
		Free: true, Needs: result.FrameSize, Systems: homeGateways,
		File: "published/capture-gateway.csv", Run: "capture-gateway", Place: "offered load",
		Forms: "Table 2 and figures 2 to 4"}
	gatewayLimits = &Sweep{Along: result.OfferedMbps, Fixed: result.NewCell(result.FrameSize, "1514"), Metrics: ofCapture,
		Free: true, Needs: result.FrameSize, Systems: homeGateways,
		File: "published/capture-limits.csv", Run: "capture-gateway"}
)

// gatewayFigure declares one of figures 2 to 4.
func gatewayFigure(number, dut, how string) FigureForm {
	f := FigureForm{Sweep: gatewaySweep, Number: number, Device: dut, LogX: true, XLabel: "Offered load",
		Caption: "Loss and CPU against the rate, " + how,
		Note: "Published are the figures of the study's text: it prints the curves as pictures. CPU here is the exact time " +
			"of the router's own threads and programs, of what the router has; in the study 1 − idle of the whole gateway.",
		Stack: []PanelForm{
			{Metric: endToEnd, Title: "End-to-end loss", YLabel: "Frames lost end to end"},
			{Metric: captured, Title: "Capture rate", YLabel: "Frames captured of those offered"},
			{Metric: busy, Title: "CPU", YLabel: "CPU in use"},
		}}
	if dut == monitored[0].DUT {
		f.Stack = []PanelForm{f.Stack[0], f.Stack[2]}
	} else {
		f.Caption = "Loss, capture and CPU against the rate, " + how
	}
	return f
}

// full is the smallest share at which a CPU counts as exhausted, per cent. Study 5 plots full CPUs at about 90 %.
const full = 90

// beyondRun declares a sweep of one parameter of capture-beyond, at the rate of the experiment.
func beyondRun(place string, held result.Dimension, value string) *Sweep {
	cell := result.NewCell(
		result.FrameSize, "study5", capture.Filter, "none", capture.Work, "none", capture.Programs, 1, result.BackgroundPct,
		0)
	if held != "" {
		cell = cell.With(held, value)
	}
	return &Sweep{Along: result.OfferedMbps, Fixed: cell, Held: held, Metrics: ofCapture, Free: true,
		Needs: result.FrameSize,
		Run:   "capture-beyond", Place: place}
}

var (
	plain         = beyondRun("without a filter and without work", "", "")
	simpleFilter  = beyondRun("with a simple filter", capture.Filter, "simple")
	complexFilter = beyondRun("with a complex filter", capture.Filter, "complex")
	copying       = beyondRun("with a memcpy for each frame", capture.Work, "memcpy")
	compressing   = beyondRun("with gzip for each frame", capture.Work, "gzip")
)

// The study calls less than 10 % little. "About double" here means within a factor of 1.25 of 2.
const (
	little   = 1.1
	double   = 2.0
	doubleBy = 1.25
)

var claims2 = []Claim{
	{ID: "forwards-all-to-20-mbps", Holds: "end-to-end loss within 0.1 % at every rate up to 20 Mbit/s",
		Not: "lost for sure at any", Sweeps: []*Sweep{gatewaySweep}, Metric: endToEnd, Judge: losesNothing(20),
		Text: "Up to 20 Mbit/s a gateway forwards every packet, also while tcpdump runs (5.3, 7: four of five gateways)."},
	{ID: "captures-all-to-20-mbps", Holds: "99.9 % captured at every rate up to 20 Mbit/s",
		Not: "lost for sure at any", Subjects: devices, Sweeps: []*Sweep{gatewaySweep}, Metric: captured,
		Judge: losesNothing(20),
		Text:  "Up to 20 Mbit/s tcpdump on the gateway captures every packet (5.3, 7: four of five gateways)."},
	{ID: "captures-part-at-maximum",
		Holds: "less than 99.9 % captured, for sure, at the highest rate that `no-capture` forwards without loss; a higher " +
			"one must have been measured",
		Not: "99.9 % or more", Subjects: devices, Sweeps: []*Sweep{gatewaySweep}, Metric: captured,
		Judge: losesAtMost(endToEnd),
		Text: "At the highest rate that a gateway forwards without loss tcpdump captures only a part: at most 13.2 % with " +
			"68 bytes and 8.8 % with 1500 on the fastest, 78 and 12 % on another (5.2: four of five gateways)."},
	{ID: "loss-follows-cpu",
		Holds: "90 % of the CPU or more in use wherever frames are lost for sure, end to end or by tcpdump",
		Not:   "less at any", Sweeps: []*Sweep{gatewaySweep}, Metric: busy,
		Judge: losesWith(full, math.Inf(1), false, endToEnd, captured),
		Text: "Packets are lost where the CPU is used up, and not before (5.1: the two gateways that lose packets without " +
			"tcpdump).", Why: Why{Fails: pauses}},
	{ID: "first-bytes-cost-less",
		Holds: "tcpdump-68 captures more than tcpdump-1500 at a rate at which the latter loses for sure, and less at none",
		Not:   "less at one, more at none", Subjects: pairs, Sweeps: []*Sweep{gatewaySweep}, Metric: captured,
		Judge: losesLess(),
		Text:  "Where tcpdump cannot capture everything, it captures more packets with 68 bytes of each than with 1500 (5.2)."},
	{ID: "simple-filter-costs-little", Holds: "CPU of the capturing host with the filter over that without below 1.1",
		Not: "above", Subjects: devices, Sweeps: []*Sweep{plain, simpleFilter}, Metric: core,
		Judge: multiplies(0, little, captured),
		Text:  "A simple filter costs less than 10 % more CPU (5.3, from earlier work)."},
	{ID: "complex-filter-costs-little", Holds: "the same, with 40 addresses to compare",
		Not: "above", Subjects: devices, Sweeps: []*Sweep{plain, complexFilter}, Metric: core,
		Judge: multiplies(0, little, captured),
		Text:  "A complex filter costs less than 10 % more CPU (5.3, from earlier work)."},
	{ID: "disk-costs-little", Holds: "CPU of `tcpdump-disk` over that of `tcpdump` below 1.1",
		Not: "above", Subjects: pairs, Sweeps: []*Sweep{plain}, Metric: core, Judge: multiplies(0, little, captured),
		Text: "Writing the packets to disk costs less than 10 % more CPU (5.3, from earlier work)."},
	{ID: "copying-doubles-cpu", Holds: "CPU with a memcpy for each frame over that without within a factor of 1.25 of 2",
		Not: "outside", Subjects: devices, Sweeps: []*Sweep{plain, copying}, Metric: core,
		Judge: multiplies(double/doubleBy, double*doubleBy, captured),
		Text:  "Copying every packet in memory about doubles the CPU (5.3, from earlier work: memcpy and gzip).",
		Why: Why{Fails: "A frame that has just been received lies in the CPU's cache: a copy of it costs little beside " +
			"taking it from the kernel."}},
	{ID: "compressing-doubles-cpu", Holds: "the same with gzip",
		Not: "outside", Subjects: devices, Sweeps: []*Sweep{plain, compressing}, Metric: core,
		Judge: multiplies(double/doubleBy, double*doubleBy, captured),
		Text:  "Compressing every packet about doubles the CPU (5.3, from earlier work: memcpy and gzip).",
		Why: Why{Fails: "Compressing a whole frame costs many times what taking it costs. The study does not say how much " +
			"its earlier work compressed."}},
}

// Reasons why outcomes may differ.
const (
	pauses = "A host that has a share of a CPU waits for its turns: frames that come meanwhile overflow a ring or a " +
		"buffer, whatever the CPU has left in the mean."
	snapWhy = "A kernel that copies no more of a packet than the program reads, and copies it once, makes the snap " +
		"length matter little beside the cost of a packet."
)
