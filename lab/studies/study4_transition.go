package studies

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/transition"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Study 4 has transition times (3.3.1): the time of a program's packets between TCP and Ethernet, at gateways with a
// tunnel between them, under a background of 0 to 90 Mbit/s. It prints its curves as pictures. Its text says about 100
// µs.
var (
	tcpToEthernet = Metric{Name: transition.MetricOf(transition.Down, "mean"), Noun: "the time from TCP to Ethernet",
		Unit: "µs", PublishedUnit: "µs"}
	ethernetToTCP = Metric{Name: transition.MetricOf(transition.Up, "mean"), Noun: "the time from Ethernet to TCP",
		Unit: "µs", PublishedUnit: "µs"}
	// The metric is divided by the direct path's in the same block, over all its loads together.
	ethernetToTCPOver = Metric{
		Name: transition.OverallOf(transition.Up), Noun: "the time from Ethernet to TCP", Short: "quotient"}

	tunnelTimes = &Sweep{
		Along: result.OfferedMbps, Fixed: result.NewCell(result.Clients, 1), Metrics: []Metric{tcpToEthernet,
			ethernetToTCP, ethernetToTCPOver}, Free: true,
		Run: "tunnel-transition", Place: "UDP in the background, one flow", Forms: "Figures 6 and 7"}
)

// transitionFigures are figures 6 and 7.
var transitionFigures = []FigureForm{
	transitionFigure("6", tcpToEthernet, "Transition time from TCP to Ethernet"),
	transitionFigure("7", ethernetToTCP, "Transition time from Ethernet to TCP"),
}

func transitionFigure(number string, m Metric, caption string) FigureForm {
	return FigureForm{Sweep: tunnelTimes, Number: number, XLabel: "Background", Caption: caption,
		Note: "The study prints its curves as pictures. Times are those of programs on the gateways themselves, means of " +
			"the probes of a step.",
		Stack: []PanelForm{{Metric: m, Title: "Mean", YLabel: "Time"}}}
}

// Meanings of the study's words.
const (
	mostBackground = transition.OverallMost
	doubledLeast   = 1.5
	doubledMost    = 3.
	similar        = 1.25            // larger or smaller by this factor
	negligibleUs   = 7000. * 5 / 100 // of 7 ms from Paris to Lyon
)

// unencrypted are the tunnels that the study calls IPsec: IP in IP, and ESP without encryption.
var unencrypted = []string{"ipip", "ipsec-null"}

// claimsTransition are the study's claims about transition times.
var claimsTransition = []Claim{
	{ID: "openvpn-doubles-ethernet-to-tcp",
		Holds: "OpenVPN's mean time from Ethernet to TCP over the direct path's in the same block, geometric mean of the " +
			"loads up to 90 Mbit/s, 1.5 to 3",
		Not: "outside", Subjects: devices, Only: encrypted, Sweeps: []*Sweep{tunnelTimes},
		Metric: ethernetToTCPOver, Judge: overall(doubledLeast, doubledMost),
		Text: "OpenVPN, which copies packets to user space and back, doubles the time from Ethernet to TCP (3.3.1; here: × " +
			"1.5 to 3 of the direct path's, over all loads up to 90 Mbit/s)."},
	{ID: "ipsec-similar-to-direct", Holds: "the same of `ipip` and `ipsec-null` within a quarter of 1",
		Not: "outside", Subjects: devices, Only: unencrypted, Sweeps: []*Sweep{tunnelTimes},
		Metric: ethernetToTCPOver, Judge: overall(1/similar, similar),
		Text: "With IPsec the transition times are similar to those of a direct connection (3.3.1; here: within a quarter, " +
			"over all loads up to 90 Mbit/s)."},
	{ID: "transition-negligible",
		Holds: "the mean time from Ethernet to TCP is less than 350 µs, 5 % of 7 ms, at each of these loads, for every tunnel",
		Not:   "more at one", Subjects: routers, Sweeps: []*Sweep{tunnelTimes}, Metric: ethernetToTCP,
		Judge: atEach(0, negligibleUs), Absolute: true,
		Text: "Transition times of about 100 µs are negligible beside propagation, 7 ms from Paris to Lyon (3.3.1; here: " +
			"less than 5 % of it, at each load up to 90 Mbit/s)."},
}

// atStudysLoads makes a criterion for the study's loads at which a device has a figure. There must be at least one.
// judge gets them ascending.
func atStudysLoads(judge func(j *judgement, x repetition, r router, known []float64)) criterion {
	return func(j *judgement) {
		x := j.sweeps[0].study()
		r := x.router(j.subject.id)
		if !r.measured() {
			j.unmeasured(x, r)
			return
		}
		known, _ := split(
			r.levels, func(level float64) bool { return level <= mostBackground && r.estimate(j.metric, level).Mean.Known() })
		if len(known) == 0 {
			j.Here, j.Expect = "no figure at any load of the study's",
				x.command("duts="+strings.Join(slices.Compact([]string{analysis.Clean, r.DUT}), ","))+" measures them."
			return
		}
		if r.Published == "" && j.why.New != "" {
			j.why.Fails = j.why.New
		}
		judge(j, x, r, known)
	}
}

// overall judges whether a metric over all loads together is in a range.
func overall(least, most float64) criterion {
	return atStudysLoads(func(j *judgement, x repetition, r router, known []float64) {
		e := r.estimate(j.metric, known[0])
		j.Here = fmt.Sprintf("%s is × %s over %s together, %g to %g Mbit/s; %s; run %s", j.metric.Noun, meanWithInterval(e),
			words.Counted(len(known), "load"), known[0], known[len(known)-1], blocks(e), r.Run)
		j.figure, j.detail, j.least = "× "+meanWithInterval(e), blocks(e), e.Mean
		j.decide(place(e, least, most))
	})
}

// atEach judges whether a metric is in a range at each of the study's loads.
func atEach(least, most float64) criterion {
	return atStudysLoads(func(j *judgement, x repetition, r router, known []float64) {
		estimate := func(level float64) analysis.Estimate { return r.estimate(j.metric, level) }
		var sides [3]int
		low, high := known[0], known[0] // loads with the smallest and the largest mean
		for _, level := range known {
			sides[place(estimate(level), least, most)]++
			if estimate(level).Mean < estimate(low).Mean {
				low = level
			}
			if estimate(level).Mean > estimate(high).Mean {
				high = level
			}
		}
		unit := words.When(j.metric.Unit != "", " "+j.metric.Unit)
		j.Here = fmt.Sprintf(
			"%s is %s%s %s to %s%s %s; %s; run %s", j.metric.Noun, meanWithInterval(estimate(low)), unit, x.atAll(low),
			meanWithInterval(estimate(high)), unit, x.atAll(high), blocks(estimate(high)), r.Run)
		j.figure, j.detail = meanWithInterval(estimate(high))+unit,
			fmt.Sprintf("most; %s; %s", blocks(estimate(high)), x.levelText(high))
		j.least = analysis.Number(math.Min(float64(estimate(low).Mean), float64(estimate(high).Mean)))
		switch {
		case sides[outsideBounds] > 0:
			j.decide(outsideBounds)
		case sides[insideBounds] == len(known):
			j.decide(insideBounds)
		default:
			j.decide(acrossBound)
		}
	})
}
