package analysis

// Clean is the name the clean router carries among the devices of a sweep.
const Clean = "clean"

// Quantities along which a sweep steps.
const (
	AlongLoad    = "offered_mbps"
	AlongClients = "clients"
)

// Sweep is one row of levels of one device, everything but one quantity held
// fixed. The fixed one of Clients and OfferedMbps is known, the other is absent
// (0 clients, null Mbit/s).
type Sweep struct {
	DUT         string `json:"dut"` // Clean for the clean router, over the blocks of all devices
	Along       string `json:"along"`
	Clients     int    `json:"clients"`
	OfferedMbps Number `json:"offered_mbps"`
	Direction   string `json:"direction"`
	Profile     string `json:"profile"`

	Levels     []Level     `json:"levels"`     // ascending
	Increments []Increment `json:"increments"` // one fewer than levels
	// Linearity is nil when the sweep has fewer than three usable levels.
	Linearity *Linearity `json:"linearity"`
}

// Level is what a device cost at one point of a sweep.
type Level struct {
	Level         Number   `json:"level"`              // Mbit/s of payload, or clients
	LinkMbps      Estimate `json:"link_mbps"`          // sampled bandwidth
	CPUSampled    Estimate `json:"cpu_sampled_pct"`    // % of one core
	CPUNormalised Estimate `json:"cpu_normalised_pct"` // equation 5.1, % of one core
	// Shortfall marks a sampled bandwidth more than 10 % below the limit: the
	// normalised figure is then CPU the router never spent.
	Shortfall bool `json:"shortfall"`
}

// Increment is the step from one level to the next (study 1, tables 5.2-5.4
// and 5.6-5.8), of normalised CPU. Blocks that hold both levels are paired;
// levels of different blocks are compared by Welch's interval.
type Increment struct {
	From        Number   `json:"from"`
	To          Number   `json:"to"`
	NetPct      Estimate `json:"net_pct"`      // percentage points of one core
	RelativePct Estimate `json:"relative_pct"` // 100 (to/from - 1)
	// Proportion is relative CPU over relative level, (CPU to/from) / (level
	// to/from): 1 is proportional, above 1 more than proportional.
	Proportion Estimate `json:"proportion"`
	// Verdict is Different when RelativePct leaves out 0, Equivalent when it
	// lies within δ, else Inconclusive; over all increments taken together.
	Verdict string `json:"verdict"`
}

// Linearity says how a device's CPU follows the bandwidth it carried: fits of
// sampled CPU over sampled Gbit/s, one a block, saturated levels left out.
type Linearity struct {
	Slope     Estimate `json:"slope"`     // % of a core per Gbit/s
	Intercept Estimate `json:"intercept"` // % of a core
	R2        Number   `json:"r2"`        // of the straight line through the level means
	// Exponent is b in CPU = a·bandwidth^b: 1 is proportional.
	Exponent Estimate `json:"exponent"`
	// BendAt is the lowest level whose CPU departs from the line through the
	// levels below it by more than δ and more than its interval; absent: none does.
	BendAt     Number   `json:"bend_at"`
	BendPct    Estimate `json:"bend_pct"` // how far it departs there, % of what the line says
	LevelsUsed int      `json:"levels_used"`
	LevelsLeft []Number `json:"levels_left"` // out of the fit: saturated
}
