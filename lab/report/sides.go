package report

import (
	"fmt"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"

	"github.com/gateweigh/gateweigh/lab/words"
)

// A run may weigh more than its devices: where clients or traffic of the two labs of
// a pair differ, no text may call the ratio what a gateway costs.

// ratioName is what the ratio of a pair is called.
func ratioName(s analysis.Summary) string {
	if s.Sides != nil {
		return "Ratio of the labs"
	}
	return "Overhead ratio"
}

// otherName is what the devices of a run are held against.
func otherName(s analysis.Summary) string {
	if s.Sides != nil {
		return "a clean router with " + s.Sides.Clean
	}
	return "a clean router"
}

// openClause names the devices that the run has no verdict on; empty without any.
func openClause(s analysis.Summary, devices []string) string {
	verb := "costs"
	switch {
	case len(devices) == 0:
		return ""
	case s.Sides != nil:
		return fmt.Sprintf("what the ratio is with %s, this run leaves open", words.Listed(devices))
	case len(devices) > 1:
		verb = "cost"
	}
	return fmt.Sprintf("what %s %s, this run leaves open", words.Listed(devices), verb)
}

// besideName is the clean router in charts and tables that have devices too.
func besideName(s analysis.Summary) string {
	if s.Sides != nil {
		return "clean router, " + s.Sides.Clean
	}
	return "clean router"
}

// sidesSentence says what is weighed; empty where it is the device alone.
func sidesSentence(s analysis.Summary) string {
	if s.Sides == nil {
		return ""
	}
	return fmt.Sprintf("the labs of a pair differ in more than the device: %s where the device is, %s at the clean router. A ratio is of all that together, "+
		"and no device's overhead. In A/A pairs both have what is where the device is.", s.Sides.Device, s.Sides.Clean)
}

// sidesColumns show why two kinds of traffic cost a router differently, the device's
// lab before the clean router's.
var sidesColumns = []column[analysis.Cell]{
	{head: "DUT / clean router", left: true, value: terminalColumns[0].value},
	{head: "profile", left: true, once: true, value: terminalColumns[1].value},
	{head: "direction", left: true, once: true, value: terminalColumns[2].value},
	{head: "clients", once: true, value: terminalColumns[3].value},
	{head: "offered", value: terminalColumns[4].value},
	{head: "ns/packet", value: func(c analysis.Cell) string { return both(c.Device("ns_per_packet"), c.Clean("ns_per_packet")) }},
	{head: "segments/burst", value: func(c analysis.Cell) string {
		return both(c.Device("segments_per_burst"), c.Clean("segments_per_burst"))
	}},
	{head: "packets/wake-up", value: func(c analysis.Cell) string {
		return both(c.Device("packets_per_wakeup"), c.Clean("packets_per_wakeup"))
	}},
	{head: "ACKs/segment", value: func(c analysis.Cell) string { return both(c.Device("acks_per_segment"), c.Clean("acks_per_segment")) }},
}

// both is a figure of either lab.
func both(dut, clean analysis.Estimate) string {
	return strings.Join([]string{digits3(dut.Mean), digits3(clean.Mean)}, " / ")
}
