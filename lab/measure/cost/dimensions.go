package cost

import "github.com/gateweigh/gateweigh/lab/analysis"

// Dimensions of the measure's cells.
var Dimensions = analysis.Dimensions{
	analysis.DUT, analysis.Family, analysis.Profile, analysis.FrameSize, analysis.LinkMbps, analysis.Direction,
	analysis.Clients, analysis.OfferedMbps,
}
