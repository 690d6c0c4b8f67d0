package studies

import (
	"fmt"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// study1 is Gabbini, "Comparative Performance and Resource Utilization Analysis of
// Captive Portal Solutions", Politecnico di Milano, 2023/24: chapters 5 and 6 and
// appendix A.
var study1 = Study{
	Number:    1,
	Scenarios: portals,
	Pairs: []Pair{
		{First: "coovachilli", Second: "gateway-nfqueue", Study: true,
			Why: "The portal that works through NFQUEUE here is not the study's. " + labWhy, Apart: bothInUserSpace},
		{First: ownTun, Second: "gateway-nfqueue", Remark: " (one gateway, two mechanisms)",
			Why: "Both are one gateway here, so what they differ by is the mechanism; in the study it was also two programs. " +
				labWhy, Apart: bothInUserSpace},
		{First: "coovachilli", Second: "opennds", InPlaceOf: "gateway-nfqueue",
			Remark: " (works in the kernel, not the study's pair)",
			Why:    "openNDS decides in the kernel, where the study's second portal takes every packet to user space."},
	},
	Sweeps: []*Sweep{bandwidth, clients},
	Claims: claims1,
	Tables: []TableForm{
		comparison(bandwidth, "5.1"), fromLevelToLevel(bandwidth, "5.2", "5.3", "5.4"),
		comparison(clients, "5.5"), fromLevelToLevel(clients, "5.6", "5.7", "5.8"),
		asSampled(bandwidth, "A.1", "A.2", "A.3"), asSampled(clients, "A.4", "A.5", "A.6"),
	},
	Figures: []FigureForm{
		cpuFigure(bandwidth, "5.5", "proportional to bandwidth"), cpuFigure(clients, "5.6", ""),
		sampledFigure(bandwidth, "A.1", "proportional to bandwidth"), sampledFigure(clients, "A.2", ""),
	},
	Questions: []Question{
		{"More than double the CPU?", []string{"portals-double-cpu-at-any-bandwidth", "portals-double-cpu-with-any-clients"}},
		{"Bandwidth dominant?", []string{"bandwidth-dominates"}},
		{"Clients negligible beyond 10?", []string{"negligible-beyond-10-clients"}},
		{"Do TUN and NFQUEUE converge?", []string{"portals-converge"}},
	},
	QuestionsNote: "Clients and converging are judged at the study's load where the device carries it, else at the load " +
		"given; double at every level, also where the device is at its limit. A yes or no needs the whole interval (95 %, " +
		"over blocks) on one side. Double: the least CPU per bit over the clean router's of all levels. " +
		"Bandwidth: the factor by which it raises CPU beside that of the clients. Negligible: the rise of CPU from 10 to " +
		"100 clients lies within δ. " +
		"Converge: what one costs over the other, with the fewest and the most clients, and what becomes of the factor " +
		"between them.",
	// These devices handle packets in different ways. There is one for each way.
	Devices: []string{ownTun, "gateway-nfqueue", "gateway-ebpf", "opennds", "coovachilli"},
	Units:   cpuUnits,
}

// ownTun is the same gateway as gateway-nfqueue, but works through a TUN device as CoovaChilli does.
const ownTun = "gateway-tun"

// portals are the study's routers. Its proprietary portal passes every packet to user space by NFQUEUE. gatewayd does
// the same and replaces it.
var portals = []Scenario{
	{Published: "clean", DUT: analysis.Clean, Heading: "Clean", Name: "the clean router"},
	{Published: "coovachilli", DUT: "coovachilli", Heading: "Chilli", Name: "CoovaChilli",
		Obtain: "CoovaChilli is measured where its program, chilli, is on PATH: `gateweigh run portal-bandwidth --set " +
			"duts=coovachilli`."},
	{Published: "proprietary-nfqueue", DUT: "gateway-nfqueue", Heading: "Company", Name: "the company's portal (NFQUEUE)",
		Obtain: "The portal is proprietary. gatewayd stands in for it, handing every packet to user space by NFQUEUE: " +
			"`gateweigh run portal-bandwidth --set duts=gateway-nfqueue`.",
		StandsIn: "The study's second portal is proprietary; gatewayd stands in for it, working the same way: "},
}

// The study has two sweeps. It measured uploads, because its clients ran iperf3 -c without -R. The profile per-packet
// is most similar to its conditions.
var (
	bandwidth = &Sweep{
		Along: result.OfferedMbps, Fixed: result.NewCell(result.Clients, 100, result.Direction, result.Up),
		Held:    result.Clients,
		Prefer:  result.PerPacket,
		Metrics: metrics1, File: "published/portal-bandwidth.csv", Run: "portal-bandwidth",
		Place: "bandwidth limit, 100 clients", Forms: "Tables 5.1 to 5.4 and A.1 to A.3 and figures 5.5 and A.1",
	}
	clients = &Sweep{
		Along: result.Clients, Fixed: result.NewCell(result.OfferedMbps, 1000, result.Direction, result.Up),
		Held: result.OfferedMbps, Prefer: result.PerPacket,
		Moves: true, Lower: "; a client costs a larger share beside less traffic",
		Metrics: metrics1, File: "published/portal-clients.csv", Run: "portal-clients",
		Place: "number of clients, 1 Gbit/s in total", Forms: "Tables 5.5 to 5.8 and A.4 to A.6 and figures 5.6 and A.2",
	}
)

// Normalised CPU is CPU × limit / sampled bandwidth (equation 5.1): the router's CPU for the whole load. If a device
// carried much less than the load, that CPU was never used. Here CPU is exact and of the router alone. The study's CPU
// is mpstat's, of the whole machine.
var (
	link       = Metric{Name: cost.Link, Unit: "Mbit/s", PublishedUnit: "Mbit/s"}
	sampled    = Metric{Name: "cpu_sampled_pct", Noun: "CPU", Unit: "% of a core", PublishedUnit: "% of 8 threads"}
	normalised = Metric{
		Name: cost.Normalised, Noun: "CPU", Short: "points", Unit: "% of a core", PublishedUnit: "% of 8 threads"}
	overhead = Metric{Name: "overhead_ratio", Change: cost.PerBit, Over: cost.Normalised,
		Noun: "CPU per bit over the clean router's", Short: "ratio"}
	metrics1 = []Metric{link, sampled, normalised, overhead}
)

func cpuUnits(cpus int) string {
	return "CPU here is the exact time of the router's own threads and the device's processes, in per cent of one core" +
		words.When(cpus > 1, fmt.Sprintf(" (divided by %d: of this machine)", cpus)) +
		"; published CPU is what mpstat said of a whole machine of 8 hardware threads (times 8: of one thread). " +
		"Compare ratios and steps, not the percentages themselves."
}

// comparison declares table 5.1 or 5.5: normalised CPU of all routers, then the portals' increase over the clean
// router.
func comparison(s *Sweep, number string) TableForm {
	return TableForm{
		Sweep: s, Numbers: []string{number},
		Caption: "Normalised CPU against " + s.Place + ", and its increase over the clean router",
		Columns: []ColumnForm{{"CPU %s", normalised, metricItself, "", ""}, {"%s Incr.", overhead, asIncrease, "%", "%"}},
		Reading: "An increase measured here is the overhead ratio less one: taken pair by pair and per delivered bit, " +
			"so it does not follow to the last digit from the two columns it compares.",
	}
}

// fromLevelToLevel declares tables 5.2 to 5.4, or 5.6 to 5.8.
func fromLevelToLevel(s *Sweep, numbers ...string) TableForm {
	return TableForm{
		Sweep: s, Numbers: numbers, Fold: "From level to level",
		Caption: "normalised CPU against " + s.Place + ", and its increase from one level to the next",
		Columns: []ColumnForm{{"CPU", normalised, metricItself, "", ""},
			{"Net increase", normalised, netStep, "percentage points of a core", "percentage points"},
			{"Relative increase", normalised, relativeStep, "%", "%"}},
	}
}

// asSampled declares tables A.1 to A.3, or A.4 to A.6.
func asSampled(s *Sweep, numbers ...string) TableForm {
	return TableForm{
		Sweep: s, Numbers: numbers, Fold: "Appendix A: sampled and normalised",
		Caption: "sampled bandwidth and CPU, and CPU normalised to the limit, against " + s.Place,
		Columns: []ColumnForm{
			{"Bandwidth sampled", link, metricItself, "", ""}, {"CPU sampled", sampled, metricItself, "", ""}, {
				"CPU normalised", normalised, metricItself, "", ""}},
	}
}

// cpuFigure declares a figure of chapter 5, with a further panel for the ratio to the clean router.
func cpuFigure(s *Sweep, number, proportional string) FigureForm {
	return FigureForm{
		Sweep: s, Number: number, Metric: normalised, YLabel: "Router CPU", PublishedYLabel: "CPU",
		Proportional: proportional,
		Caption:      "CPU normalised against " + s.Place + ": here, as published, and both without their units",
		Over:         &overhead, OverYLabel: "CPU per bit, × clean router",
		OverNote: " Over the clean router, most of what two CPUs differ by cancels; over a series' own value, all of it.",
	}
}

// sampledFigure declares a figure of appendix A.
func sampledFigure(s *Sweep, number, proportional string) FigureForm {
	f := cpuFigure(s, number, proportional)
	f.Metric, f.Over, f.OverNote, f.Fold = sampled, nil, "", "Figures of appendix A: as sampled"
	f.Caption = strings.Replace(f.Caption, "normalised", "sampled", 1)
	return f
}

// almostLinear is the tolerance of "almost linear": the cost of a further Mbit/s may change by this share from one step
// of bandwidth to the next. The study calls a factor of 0.81 almost linear (its proprietary portal, table 5.4: 2.42
// points for the step of 100 Mbit/s, 3.90 for the next of 200).
const almostLinear = 0.25

var claims1 = []Claim{
	{ID: "bandwidth-dominates",
		Holds: "ten times the bandwidth (100 → 1000 Mbit/s, 100 clients) raises normalised CPU by a larger factor than a " +
			"hundred times the clients (1 → 100, 1 Gbit/s): lower bound above upper bound. Up to the highest level carried " +
			"when that is less",
		Not: "the other way round, with the full ten times", Sweeps: []*Sweep{bandwidth, clients}, Metric: normalised,
		Judge: dominates(),
		Text:  "Bandwidth is the dominant factor for CPU, ahead of the number of clients (5.4.3, 6.1).",
		Why: Why{Fails: "A gateway that walks a list of clients for each packet costs more with each of them; the study's " +
			"do not.",
			Moved: "At %s in total a client costs a larger share beside the traffic than at the study's %s: such a run can " +
				"prove the claim, and not disprove it."}},
	{ID: "portals-double-cpu-at-any-bandwidth", Holds: "lower bound of the overhead ratio above 2 at all five levels",
		Not: "an upper bound below 2 at any", Subjects: devices, Sweeps: []*Sweep{bandwidth}, Metric: overhead,
		Judge: alwaysAbove(2), Why: cheaper,
		Text: "A captive portal more than doubles CPU at every bandwidth, 100 Mbit/s to 1 Gbit/s (table 5.1, 6.1)."},
	{ID: "portals-double-cpu-with-any-clients", Holds: "the same at all four numbers of clients",
		Not: "the same", Subjects: devices, Sweeps: []*Sweep{clients}, Metric: overhead, Judge: alwaysAbove(2),
		Why:  cheaper,
		Text: "A captive portal more than doubles CPU with any number of clients, 1 to 100 (5.4.3)."},
	{ID: "linear-to-800-mbps",
		Holds: "from each step to the next, the CPU of a further Mbit/s changes by a factor within 1.25",
		Not:   "by a factor outside 1.25 on any", Sweeps: []*Sweep{bandwidth}, Metric: normalised,
		Judge: linear(800, almostLinear),
		Text:  "CPU follows bandwidth almost linearly up to 800 Mbit/s (5.3.3, 6.1).",
		Why: Why{Fails: labWhy +
			" At higher load a router finds more packets waiting when it wakes, and each costs less."}},
	{ID: "more-than-proportional-at-1-gbps",
		Holds: "from 800 to 1000 Mbit/s CPU rises by more than a factor 1.25: lower bound of CPU over bandwidth above 1, " +
			"and its upper bound above 1 + δ",
		Not: "its upper bound at most 1 + δ. This comes first: all of [1.01, 1.04] lies above 1, but a rise within δ does " +
			"not matter", Sweeps: []*Sweep{bandwidth}, Metric: normalised,
		Judge: beyondProportion(800, 1000),
		Text:  "From 800 Mbit/s to 1 Gbit/s CPU rises by more than in proportion (5.3.3, 6.1).",
		Why: Why{Fails: "In the study 1 Gbit/s is the line rate of the NICs and its client machine was near 100 % CPU " +
			"(5.2.2), " +
			"and a full link has effects of its own; links here have no line rate."}},
	{ID: "largest-step-1-to-10-clients",
		Holds: "the net increase from 1 to 10 clients lies above 0 and above that of every other step",
		Not:   "another lies above it, or the relative increase from 1 to 10 below δ", Sweeps: []*Sweep{clients},
		Metric: normalised, Judge: largestFirst(),
		Text: "The largest rise of CPU is from 1 to 10 clients (5.4.3, 6.1).",
		Why: Why{Fails: perClient,
			Other: "The length of bursts moves a router's CPU by a factor of two. In the study it was free to change with the " +
				"number of clients; " +
				"the lab holds it, so what is left is the cost of the clients themselves."}},
	// The study's own figures rise by 5.6, 7.7 and 20.4 %. Its text means that single steps become smaller.
	{ID: "negligible-beyond-10-clients", Holds: "the relative increase from 10 to 100 clients lies within δ",
		Not: "it lies outside", Sweeps: []*Sweep{clients}, Metric: normalised, Judge: negligible(10, 100),
		Why: rising,
		Text: "Beyond 10 clients the rise of CPU slows down so much that their number hardly matters (after 5.4.3 and 6.1: " +
			"it slows down considerably)."},
	// The study has no intervals, and calls a rise of 2.76 % negligible.
	{ID: "negligible-50-to-100-clients", Holds: "the relative increase lies within δ",
		Not: "it lies outside", Sweeps: []*Sweep{clients}, Metric: normalised, Judge: negligible(50, 100),
		Why:  rising,
		Text: "From 50 to 100 clients CPU hardly rises any more (5.4.3, 6.1)."},
	{ID: "portals-converge",
		Holds: "from 1 to 100 clients the factor between the more and the less expensive of the two, of their overhead " +
			"ratios, shrinks by more than δ: upper bound of (factor with 100) / (factor with 1) below 1/(1+δ)",
		Not: "it shrinks by less, or grows: lower bound at or above 1/(1+δ)", Subjects: pairs, Sweeps: []*Sweep{clients},
		Metric: overhead, Judge: converges(),
		Text: "The difference between a portal that works through a TUN device and one that works through NFQUEUE shrinks " +
			"with more clients (5.4.3, 6.1)."},
	{ID: "portals-alike-with-100-clients", Holds: "the quotient of the two overhead ratios lies within δ with 100 clients",
		Not: "it lies outside", Subjects: pairs, Sweeps: []*Sweep{clients}, Metric: overhead, Judge: costsAlike(),
		Text: "With 100 clients the two kinds of portal cost the same (5.4.3, 6.1)."},
}

// Reasons why figures of the lab may differ from those of the study's machines.
const (
	labWhy    = "The lab has veth pairs where the study had NICs: no driver, no interrupts, no line rate."
	perClient = "A gateway with one rule a client, checked in turn, costs more with every client; the study's " +
		"look clients up in a table."
	bothInUserSpace = " Both take every packet to user space, whatever the number of clients: what they differ by is " +
		"paid for each packet."
)

var (
	cheaper = Why{
		Fails: labWhy + " A clean router that is more expensive here makes a portal look cheaper beside it.",
		New: "Both portals of the study hand every packet to user space; a gateway that decides in the kernel need not " +
			"cost as much.",
		Beyond: "The clean router here has no NIC driver and no interrupts to pay for, so what a portal adds is compared " +
			"with less, " +
			"and ratios come out larger than the study's.",
	}
	rising = Why{Fails: perClient,
		Other: "CPU falls here. The machine's own speed may have changed between blocks; the rise over the clean router " +
			"beside it leaves that out."}
)
