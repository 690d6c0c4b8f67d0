package failover

import (
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Fault is a dimension that only this measure has: what happens to the gateway, one of dut.Faults.
const Fault result.Dimension = "fault"

// Dimensions of the measure's cells.
var Dimensions = analysis.Dimensions{
	analysis.DUT, analysis.Clients,
	{Name: Fault, Text: "what happens to the gateway: none, restart, kill, link, power, store or switch", Heading: "Fault",
		Words: func(v result.Value) string { return "fault " + v.Text }, None: "no fault"},
}
