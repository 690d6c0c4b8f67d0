package studies

import (
	"math"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/measure/transfer"
	"github.com/gateweigh/gateweigh/lab/result"
)

// study3 is Masuda, Nakanishi, Nakamura, Suzuki, "Implementation and Evaluation of Authorized Access LAN Sockets Using
// PPPoE", Osaka University: how fast four clients fetch files through a PPPoE server in user and in kernel mode, on
// three PCs, and its CPU; and the same with two ways of answering ident queries.
var study3 = Study{
	Number:    3,
	Lines:     true,
	Scenarios: pppoeModes,
	Pairs: []Pair{
		{First: "gateway-pppoe-ebpf", Second: "gateway-pppoe-ident-nat", Study: true, Claim: "ident-costs-no-rate"},
		{First: "gateway-pppoe-masquerade", Second: "gateway-pppoe-ident-masquerade", Study: true,
			Claim: "ident-costs-no-rate"},
		{First: "gateway-pppoe-ident-nat", Second: "gateway-pppoe-ident-masquerade", Study: true,
			Claim: "masquerade-costs-little-more"},
	},
	Sweeps: []*Sweep{servers, idents},
	Claims: claims3,
	Figures: []FigureForm{
		{Sweep: servers, Number: "4", Course: transfer.RateCurve,
			Caption: "Transfer rate over time, four clients, the fastest router", XLabel: "Since the first transfer began, s",
			Metric: Metric{Unit: "kByte/s"}, YLabel: "Transfer rate",
			Note: "The first transfers of each device. The study's curve is a picture: its server's clients were through " +
				"after 15, 20, 27 and 34 s."},
		serversFigure("5", "Maximum transfer rate by server and mode", maxRate, "Maximum transfer rate"),
		identFigure("6", "Delivered rate with and without ident", delivered, "Delivered rate"),
		serversFigure("7", "CPU in the maximum-load interval by server and mode", routerBusy, "Router CPU"),
		identFigure("8", "CPU with and without ident", perBit, "CPU per bit over the clean router's"),
	},
	Units: func(int) string { return "" },
}

// pppoeModes are the study's plain router and its two PPPoE servers.
var pppoeModes = []Scenario{
	{Published: "router", DUT: analysis.Clean, Name: "the clean router"},
	{Published: "kernel", DUT: "rp-pppoe-kernel", Name: "kernel mode",
		Obtain: "It takes PPP in the kernel: `gateweigh run pppoe-servers --kernel debian --set duts=clean,rp-pppoe-kernel`."},
	{Published: "user", DUT: "rp-pppoe-user", Name: "user mode",
		Obtain: "It takes PPP in the kernel: `gateweigh run pppoe-servers --kernel debian --set duts=clean,rp-pppoe-user`."},
}

// Devices whose sessions keep packets in the kernel, and devices whose packets go through a process.
var (
	inKernel  = []string{"rp-pppoe-kernel", "accel-ppp", "gateway-pppoe-kernel", "gateway-pppoe-ebpf"}
	inProcess = []string{"rp-pppoe-user", "gateway-pppoe-user"}
)

// The study's experiments are transfers through three servers, and ident queries. The lab measures the latter by the
// cost of a steady load.
var (
	servers = &Sweep{
		Along: transfer.RouterSpeed, Fixed: result.NewCell(result.Clients, 4), Held: result.Clients,
		Metrics: []Metric{maxRate, routerBusy}, Free: true, Course: transfer.RateCurve,
		File: "published/pppoe-servers.csv", Run: "pppoe-servers", Place: "four clients", Forms: "Figures 4, 5 and 7",
	}
	idents = &Sweep{
		Along: result.OfferedMbps, Fixed: result.NewCell(result.Clients, 4, result.Direction, result.Down),
		Held:    result.Clients,
		Prefer:  result.PerPacket,
		Metrics: []Metric{delivered, perBit}, Free: true, Devices: identDevices, Run: "ident", Place: "four clients",
		Forms: "Figures 6 and 8",
	}
	identDevices = []string{
		"gateway-pppoe-ebpf", "gateway-pppoe-ident-nat", "gateway-pppoe-masquerade", "gateway-pppoe-ident-masquerade"}
)

var (
	maxRate    = Metric{Name: transfer.MaxRate, Noun: "maximum transfer rate", Unit: "kByte/s"}
	routerBusy = Metric{Name: transfer.Busy, Noun: "router CPU", Unit: "%"}
	delivered  = Metric{Name: cost.Delivered, Noun: "delivered rate", Unit: "Mbit/s"}
	perBit     = Metric{Name: "overhead_ratio", Change: cost.PerBit, Noun: "CPU per bit", Unit: "× clean router"}
)

const pppoeNote = "Published are bounds that the study's text gives: it prints bars without figures. Server A is " +
	"0.43 of this machine's CPU, B 0.24, C 0.1, in the proportion of the study's clocks; " +
	"CPU here is the exact time of the router's threads and programs, of what the router has, and in the study that of " +
	"the whole PC."

func serversFigure(number, caption string, m Metric, label string) FigureForm {
	return FigureForm{Sweep: servers, Number: number, Caption: caption, LogX: true, XLabel: "Router's CPU",
		Note: pppoeNote, Stack: []PanelForm{{Metric: m, Title: label, YLabel: label}}}
}

func identFigure(number, caption string, m Metric, label string) FigureForm {
	return FigureForm{Sweep: idents, Number: number, Caption: caption, XLabel: "Offered load", Stack: []PanelForm{{
		Metric: m, Title: label, YLabel: label}},
		Note: "Beside a steady load with 200 connections a second, at each of which a server may ask; the study has one " +
			"value for each method."}
}

// Meanings of the study's words: less than 1 %; far less than the router, for which the study has 80 %; almost 100 %;
// and little further CPU. The study has no figure for the cost of masquerading.
const (
	ignored   = 0.99
	farLess   = 0.9
	exhausted = 90
	enough    = 30
	improved  = 1.05
	slightly  = 1.25
)

var claims3 = []Claim{
	{ID: "kernel-mode-costs-no-rate",
		Holds: "at every speed the maximum rate is at least 99 % of the clean router's: lower bound",
		Not:   "an upper bound below at any", Subjects: devices, Only: inKernel, Sweeps: []*Sweep{servers}, Metric: maxRate,
		Judge: overFirst(ignored, math.Inf(1), false),
		Text:  "In kernel mode PPPoE costs less than 1 % of the router's rate, on every server (3.1)."},
	{ID: "user-mode-far-slower",
		Holds: "on the slowest router the rate is below 90 % of the clean router's (the study: 80 % on its fastest)",
		Not:   "above", Subjects: devices, Only: inProcess, Sweeps: []*Sweep{servers}, Metric: maxRate,
		Judge: overFirst(0, farLess, true), Why: faster,
		Text: "In user mode a server carries far less than a router, 80 % on the fastest (3.1)."},
	{ID: "user-mode-exhausts-cpu", Holds: "on the slowest router 90 % of the CPU or more in use",
		Not: "less", Subjects: devices, Only: inProcess, Sweeps: []*Sweep{servers}, Metric: routerBusy,
		Judge: onServers(exhausted, math.Inf(1), 0, true), Why: faster,
		Text: "User mode exhausts the CPU, which is almost 100 % busy (3.2)."},
	{ID: "kernel-mode-leaves-cpu", Holds: "less than 30 % of the CPU in use at every speed from 0.24 (550 MHz) on",
		Not: "more at any", Subjects: devices, Only: inKernel, Sweeps: []*Sweep{servers}, Metric: routerBusy,
		Judge: onServers(0, enough, serverB, false),
		Text:  "In kernel mode the CPU of servers from 550 MHz on is less than 30 % busy (3.2)."},
	{ID: "faster-cpu-brings-little",
		Holds: "from the second highest speed to the highest the maximum rate rises by less than 5 %",
		Not:   "by more", Subjects: devices, Only: inKernel, Sweeps: []*Sweep{servers}, Metric: maxRate,
		Judge: atMostFactor(improved),
		Text:  "In kernel mode twice the CPU brings no significant improvement (3.2)."},
	{ID: "ident-costs-no-rate",
		Holds: "the delivered rate with ident is within 1 % of that without, for each method beside the same router " +
			"without it",
		Not: "outside", Subjects: pairs, Sweeps: []*Sweep{idents}, Metric: delivered,
		Judge: besideOther(ignored, 1/ignored),
		Text:  "Answers to ident queries make no difference to the rate, by either method (3.1)."},
	{ID: "masquerade-costs-little-more",
		Holds: "CPU per bit of the masquerade method is above that of the NAT method, by at most 25 %",
		Not:   "below, or by more", Subjects: pairs, Sweeps: []*Sweep{idents}, Metric: perBit,
		Judge: besideOther(1, slightly),
		Text:  "The CPU of the masquerade method is slightly higher than that of the NAT method (3.2).",
		Why: Why{Fails: "The kernel's masquerading rewrites every packet and tracks every connection, and takes the fast " +
			"path of eBPF away; the study's servers had the same stack for both methods."}},
}

// serverB is the speed of the study's server B.
const serverB = 0.24

var faster = Why{
	Fails: "This router's CPU is faster beside its link than the study's: the slower the router, the more of its CPU a " +
		"process for every packet takes."}
