package report

import (
	"fmt"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/words"
)

// An experiment (keys beside.*) may give the two labs of a pair different clients or traffic. The ratio is then not the
// cost of a device, and no text of the report may call it so. Summary.Sides is not nil for such a run.

// ratioName returns the report's name for the ratio of a pair.
func ratioName(s analysis.Summary) string {
	if s.Sides != nil {
		return "Ratio of the labs"
	}
	return "Overhead ratio"
}

// otherName is the report's name for the clean router's lab.
func otherName(s analysis.Summary) string {
	if s.Sides != nil {
		return "a clean router with " + s.Sides.Clean
	}
	return "a clean router"
}

// openClause is the clause that names devices without a verdict; empty for no devices.
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

// sidesSentence describes how the two labs differ; empty when only the device differs.
func sidesSentence(s analysis.Summary) string {
	if s.Sides == nil {
		return ""
	}
	alike := " In A/A pairs both labs are set up like the device's."
	if s.Sides.OfClean {
		alike = " In A/A pairs both labs are set up like the clean router's."
	}
	return fmt.Sprintf(
		"the labs of a pair differ in more than the device: %s where the device is, %s at the clean router. A ratio is of "+
			"all that together, "+
			"and no device's overhead.%s", s.Sides.Device, s.Sides.Clean, alike)
}

// sidesColumns are the columns of the table that explains why two kinds of traffic cost a router differently. Each
// entry has the device's lab before the clean router's.
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
