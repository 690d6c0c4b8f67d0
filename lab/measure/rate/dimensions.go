package rate

import "github.com/gateweigh/gateweigh/lab/analysis"

// Dimensions of the measure's cells.
var Dimensions = analysis.Dimensions{
	analysis.DUT, analysis.LinkMbps, analysis.Clients, analysis.Direction, analysis.Profile,
}
