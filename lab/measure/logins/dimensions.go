package logins

import (
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// LoginRate is a dimension that only this measure has.
const LoginRate result.Dimension = "login_rate"

// Dimensions of the measure's cells.
var Dimensions = analysis.Dimensions{
	analysis.DUT, analysis.Family, analysis.Clients,
	{Name: LoginRate, Text: "clients a second that lease and log in; 0: all at once", Heading: "They come",
		Short: "they come", Behind: "/s",
		None: "all at once", NoneShort: "all at once",
		Words: func(v result.Value) string {
			return v.Text + " " + words.When(v.Number == 1, "client") + words.When(v.Number != 1, "clients") + " a second"
		}},
}
