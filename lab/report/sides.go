package report

import (
	"fmt"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/words"
)

// A run may compare more than its devices: where clients or traffic of the two labs of
// a pair differ, no text may call the ratio the cost of a gateway.

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
	switch {
	case len(devices) == 0:
		return ""
	case s.Sides != nil:
		return fmt.Sprintf("what the ratio is with %s, this run leaves open", words.Listed(devices))
	case len(devices) > 1:
		return fmt.Sprintf("what %s cost, this run leaves open", words.Listed(devices))
	}
	return fmt.Sprintf("what %s costs, this run leaves open", devices[0])
}

// sidesSentence says in what the labs differ; empty where it is the device alone.
func sidesSentence(s analysis.Summary) string {
	if s.Sides == nil {
		return ""
	}
	alike := " In A/A pairs both have what is where the device is."
	if s.Sides.OfClean {
		alike = " In A/A pairs both have what is at the clean router."
	}
	return fmt.Sprintf(
		"the labs of a pair differ in more than the device: %s where the device is, %s at the clean router. A ratio is of "+
			"all that together, "+
			"and no device's overhead.%s", s.Sides.Device, s.Sides.Clean, alike)
}

// sidesColumns show why two kinds of traffic cost a router differently, the device's
// lab before the clean router's.
func sidesColumns() []cellColumn {
	cols := append(routerColumns(cost.Dimensions, "DUT / clean router", dimensionsOf), offeredColumn)
	for _, col := range []struct{ head, metric string }{
		{"ns/packet", cost.NsPerPacket}, {"segments/burst", cost.SegmentsPerBurst},
		{"packets/wake-up", cost.PacketsPerWakeup}, {"ACKs/segment", cost.AcksPerSegment},
	} {
		cols = append(cols, writtenColumn(col.head, func(c analysis.Cell) string {
			return digits3(c.Device(col.metric).Mean) + " / " + digits3(c.Clean(col.metric).Mean)
		}))
	}
	return cols
}
