package transfer

import (
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// RouterSpeed is a dimension that only this measure has.
const RouterSpeed result.Dimension = "router_speed"

// Dimensions of the measure's cells.
var Dimensions = analysis.Dimensions{
	analysis.DUT,
	{Name: RouterSpeed, Text: "share of its CPU that the router has; 1: all", Heading: "Router speed", Unit: "of its CPU",
		Axis: analysis.Axis{Heading: "Router's CPU", Noun: "speed of the router", Count: "speed", By: "at",
			One: "of the CPU", Many: "of the CPU", Unit: "of this machine's"}},
	analysis.Clients,
}
