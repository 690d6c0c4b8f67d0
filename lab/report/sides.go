package report

import (
	"fmt"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
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
		return fmt.Sprintf("what the ratio is with %s, this run leaves open", listed(devices))
	case len(devices) > 1:
		verb = "cost"
	}
	return fmt.Sprintf("what %s %s, this run leaves open", listed(devices), verb)
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
	{head: "ns/packet", value: func(c analysis.Cell) string { return both(c.Intervals.NsPerPacket, c.Intervals.CleanNsPerPacket) }},
	{head: "segments/burst", value: func(c analysis.Cell) string {
		return both(c.Intervals.SegmentsPerBurst, c.Intervals.CleanSegmentsPerBurst)
	}},
	{head: "packets/wake-up", value: func(c analysis.Cell) string {
		return both(c.Intervals.PacketsPerWakeup, c.Intervals.CleanPacketsPerWakeup)
	}},
	{head: "ACKs/segment", value: func(c analysis.Cell) string { return both(c.Intervals.AcksPerSegment, c.Intervals.CleanAcksPerSegment) }},
}

// both is a figure of either lab.
func both(dut, clean analysis.Estimate) string {
	return strings.Join([]string{digits3(dut.Mean), digits3(clean.Mean)}, " / ")
}

// packetsGrid is how packets came to the two routers.
func packetsGrid(cells []analysis.Cell, intervals string) grid {
	return build("How packets came: the longer the bursts and the fewer the acknowledgements, the less each costs"+intervals, cells, append(identity(cells),
		estimateColumn("Segments per burst", "as sent", digits3, func(c analysis.Cell) analysis.Estimate { return c.Intervals.SegmentsPerBurst }).field("segments_per_burst"),
		estimateColumn("Clean router's", "as sent", digits3, func(c analysis.Cell) analysis.Estimate { return c.Intervals.CleanSegmentsPerBurst }),
		estimateColumn("Packets per wake-up", "of a polling thread", digits3, func(c analysis.Cell) analysis.Estimate { return c.Intervals.PacketsPerWakeup }),
		estimateColumn("Clean router's", "a wake-up", digits3, func(c analysis.Cell) analysis.Estimate { return c.Intervals.CleanPacketsPerWakeup }),
		estimateColumn("ACKs per segment", "packets back for one with payload", digits3, func(c analysis.Cell) analysis.Estimate { return c.Intervals.AcksPerSegment }),
		estimateColumn("Clean router's", "a segment", digits3, func(c analysis.Cell) analysis.Estimate { return c.Intervals.CleanAcksPerSegment }),
		estimateColumn("Per packet", "ns", digits3, func(c analysis.Cell) analysis.Estimate { return c.Intervals.NsPerPacket }).field("ns_per_packet"),
		estimateColumn("Clean router's", "ns a packet", digits3, func(c analysis.Cell) analysis.Estimate { return c.Intervals.CleanNsPerPacket }),
	))
}
