package studies

import (
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/measure/rate"
	"github.com/gateweigh/gateweigh/lab/result"
)

// study4 is Boulanger and Bailly, "Performance analysis of two secure tunneling mechanisms: IPSec VPN versus SSL VPN":
// useful rate, transition time and CPU of a direct path, an unencrypted IPsec tunnel (IP in IP) and OpenVPN between two
// gateways.
var study4 = Study{
	Number:    4,
	Scenarios: tunnelled,
	Pairs:     tunnelPairs,
	Sweeps:    []*Sweep{tunnelRates, tunnelTimes, tunnelCPU},
	Claims:    slices.Concat(claimsTransition, claims4),
	Points: []PointForm{{
		ID: "rates-4", Title: "Section 2", RowHeading: "Path", Sweep: tunnelRates, Level: 100,
		Metrics: []Metric{theoretical, carried},
		Caption: "Useful TCP rate on a link of 100 Mbit/s, by headers and measured",
		Reading: "Here the link counts frames with the Ethernet header (14 bytes), segments have time stamps (12 bytes), " +
			"and " +
			"each tunnel its own headers; the study counts frames of 1518 bytes without time stamps. " +
			"Its formulas for OpenVPN leave out the outer IP header (20 bytes), which their results contain.",
	}},
	Figures: slices.Concat(transitionFigures, []FigureForm{
		tunnelFigure("8", entering, "CPU where the flow enters the tunnel", nil),
		tunnelFigure("9", leaving, "CPU where the flow leaves the tunnel", nil),
		tunnelFigure("10", entering, "CPU where the flow enters, OpenVPN without and with encryption", encrypted),
		tunnelFigure("11", leaving, "CPU where the flow leaves, OpenVPN without and with encryption", encrypted),
	}),
	Units: func(int) string { return "" },
}

// tunnelled are the study's paths.
var tunnelled = []Scenario{
	{Published: "direct", DUT: analysis.Clean, Name: "the direct path", Heading: "Direct"},
	{Published: "ipsec", DUT: "ipip", Name: "ipip", Heading: "IPsec without encryption (ipip)",
		Obtain: "`gateweigh run tunnel-cpu --kernel debian --set duts=ipip` measures it where this kernel has no ipip."},
	{Published: "openvpn", DUT: "openvpn-none", Name: "openvpn-none", Heading: "OpenVPN",
		Obtain: "`gateweigh run tunnel-cpu --set duts=openvpn-none` measures it."},
	{Published: "openvpn-encrypted", DUT: "openvpn-blowfish", Name: "openvpn-blowfish", Heading: "OpenVPN, Blowfish",
		Obtain: "`gateweigh run tunnel-cpu --set duts=openvpn-none,openvpn-blowfish` measures it."},
}

// encrypted are the devices of figures 10 and 11: OpenVPN, and with which ciphers.
var encrypted = []string{"openvpn-none", "openvpn-blowfish", "openvpn-aes-gcm", "openvpn-chacha20"}

// tunnelPairs are compared by the cost of a further Gbit/s. Each cost is divided by that of the direct path beside the
// tunnel.
var tunnelPairs = []Pair{
	{First: "openvpn-none", Second: "ipip", Study: true, Claim: "openvpn-far-above-ipsec"},
	{First: "openvpn-none", Second: "ipsec-null", Claim: "openvpn-far-above-ipsec"},
	{First: "ipip", Second: analysis.Clean, Study: true, Claim: "ipsec-slightly-above-direct"},
	{First: "ipsec-null", Second: analysis.Clean, Claim: "ipsec-slightly-above-direct"},
	{First: "openvpn-blowfish", Second: "openvpn-none", Study: true, Claim: "encryption-entering", Why: blowfishWhy},
	{First: "openvpn-blowfish", Second: "openvpn-none", Study: true, Claim: "encryption-leaving", Why: blowfishWhy},
	{First: "openvpn-aes-gcm", Second: "openvpn-none", Claim: "encryption-entering", Why: aesWhy},
	{First: "openvpn-aes-gcm", Second: "openvpn-none", Claim: "encryption-leaving", Why: aesWhy},
}

const (
	blowfishWhy = "Today's CPUs have instructions for AES and none for Blowfish, and the rest of OpenVPN's work has " +
		"become cheap beside it."
	aesWhy = "Another cipher than the study's, with instructions of the CPU for it."
)

// Metrics of the measures rate and cost.
var (
	theoretical = Metric{Name: rate.Theory, Noun: "the rate by its headers", Unit: "Mbit/s", PublishedUnit: "Mbit/s",
		Heading: "By its headers"}
	carried = Metric{
		Name: rate.Goodput, Noun: "the useful rate", Unit: "Mbit/s", PublishedUnit: "Mbit/s", Heading: "Measured"}
	entering = Metric{Name: cost.EnterCPU, Noun: "CPU where the flow enters", Unit: "% of a core"}
	leaving  = Metric{Name: cost.LeaveCPU, Noun: "CPU where the flow leaves", Unit: "% of a core"}
)

// one flow from PC1 to PC2, as in the study
var oneFlow = result.NewCell(result.Clients, 1, result.Direction, result.Up)

var (
	tunnelRates = &Sweep{
		Along: result.LinkMbps, Fixed: oneFlow, Metrics: []Metric{theoretical, carried}, Free: true, Prefer: result.PerPacket,
		File: "published/tunnel-rates.csv", Run: "tunnel-rate", Place: "link of 100 Mbit/s", Forms: "The rates of section 2"}
	// The study's curves are pictures, and its text has no figures of them.
	tunnelCPU = &Sweep{
		Along: result.OfferedMbps, Fixed: oneFlow, Metrics: []Metric{entering, leaving}, Free: true, Prefer: result.PerPacket,
		Run: "tunnel-cpu", Place: "UDP, one flow", Forms: "Figures 8 to 11"}
)

// tunnelFigure declares one of figures 8 to 11.
func tunnelFigure(number string, m Metric, caption string, only []string) FigureForm {
	return FigureForm{Sweep: tunnelCPU, Number: number, XLabel: "Offered load", Caption: caption, Only: only,
		Note: "The study prints its curves as pictures. CPU here is the exact time of one gateway's threads and programs; " +
			"in the study 1 − idle of the whole gateway.",
		Stack: []PanelForm{{Metric: m, Title: "CPU", YLabel: "CPU"}}}
}

// Meanings of the study's words.
const (
	nearly5     = 0.05
	straightR2  = 0.98
	farAbove    = 2.
	aboutFactor = 1.25 // larger or smaller by this factor
)

var claims4 = []Claim{
	{ID: "rates-close", Holds: "useful rate at 100 Mbit/s over the direct path's within 0.95 to 1.05",
		Not: "outside", Subjects: devices, Sweeps: []*Sweep{tunnelRates}, Metric: carried,
		Judge: besideFirst(100, 1-nearly5, 1+nearly5),
		Text:  "A tunnel's useful rate is within 5 % of the direct path's: 94.1, 92.9 and 92 of 100 Mbit/s (2.4)."},
	{ID: "cpu-linear-entering", Holds: "R² of the straight line of CPU over payload, where the flow enters, 0.98 or more",
		Not: "less", Sweeps: []*Sweep{tunnelCPU}, Metric: entering, Judge: straight(straightR2),
		Text: "Where the flow enters the tunnel CPU is linear in the rate (3.3.2; R² of 0.98 or more)."},
	{ID: "cpu-linear-leaving", Holds: "the same where it leaves",
		Not: "less", Sweeps: []*Sweep{tunnelCPU}, Metric: leaving, Judge: straight(straightR2),
		Text: "Where the flow leaves the tunnel CPU is linear in the rate (3.3.2; R² of 0.98 or more)."},
	{ID: "openvpn-far-above-ipsec",
		Holds: "slope of OpenVPN where the flow enters over that of IPsec 2 or more, each over the direct path's beside it",
		Not:   "less than 2", Subjects: pairs, Sweeps: []*Sweep{tunnelCPU}, Metric: entering,
		Judge: slopes(farAbove, math.Inf(1), ""),
		Text:  "OpenVPN's CPU is far above IPsec's (3.3.2; here: twice or more a Gbit/s)."},
	{ID: "ipsec-slightly-above-direct", Holds: "slope of IPsec over the direct path's 1 to 1.25",
		Not: "outside", Subjects: pairs, Sweeps: []*Sweep{tunnelCPU}, Metric: entering,
		Judge: slopes(1, slightly, ""),
		Text:  "IPsec's CPU slightly exceeds the direct path's (3.3.2; here: by at most a quarter a Gbit/s)."},
	{ID: "encryption-entering",
		Holds: "slope with encryption over that without, where the flow enters, within a factor of 1.25 of 1.45",
		Not:   "outside", Subjects: pairs, Sweeps: []*Sweep{tunnelCPU}, Metric: entering,
		Judge: slopes(1.45/aboutFactor, 1.45*aboutFactor, "× 1.45"),
		Text:  "Encryption makes a further Gbit/s about 45 % dearer where the flow enters (3.3.2, Blowfish of 128 bits)."},
	{ID: "encryption-leaving", Holds: "the same where it leaves, of 1.24",
		Not: "outside", Subjects: pairs, Sweeps: []*Sweep{tunnelCPU}, Metric: leaving,
		Judge: slopes(1.24/aboutFactor, 1.24*aboutFactor, "× 1.24"),
		Text:  "Encryption makes a further Gbit/s about 24 % dearer where the flow leaves (3.3.2, Blowfish of 128 bits)."},
}
