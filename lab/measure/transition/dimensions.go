package transition

import (
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// BackgroundKind is a dimension that only this measure has.
const BackgroundKind result.Dimension = "background_kind"

// Dimensions of the measure's cells.
var Dimensions = analysis.Dimensions{
	analysis.DUT, analysis.Clients, analysis.Profile, analysis.BackgroundPct.Headed("busy %"),
	{Name: BackgroundKind, Text: "of that other work: how it competes for the CPU", Heading: "Its kind", Short: "by",
		Words: func(v result.Value) string { return "by " + v.Text }},
	analysis.OfferedMbps,
}
