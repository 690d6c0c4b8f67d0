package throughput

import "github.com/gateweigh/gateweigh/lab/analysis"

// Dimensions of the measure's cells.
var Dimensions = analysis.Dimensions{
	analysis.DUT, analysis.Family, analysis.FrameSize, analysis.Clients, analysis.Direction, analysis.Profile,
}
