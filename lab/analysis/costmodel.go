package analysis

// CostModel is CPU = a + b·Gbit/s + c·clients + d·packets/s, fitted to the block
// means of one device over all its cells of one direction and profile. Terms
// that the run's sweep cannot tell apart are left out and named in Omitted.
type CostModel struct {
	DUT       string `json:"dut"` // Clean for the clean router
	Direction string `json:"direction"`
	Profile   string `json:"profile"`

	Terms   []Term   `json:"terms"`
	Omitted []string `json:"omitted"` // a sentence each: which term, and why
	R2      Number   `json:"r2"`
	// ResidualPct is the root mean square of the relative residuals, per cent.
	ResidualPct Number `json:"residual_pct"`
	Cells       int    `json:"cells"`
	Blocks      int    `json:"blocks"`

	MinMbps    Number `json:"min_mbps"` // delivered: the range the model was fitted in
	MaxMbps    Number `json:"max_mbps"`
	MinClients int    `json:"min_clients"`
	MaxClients int    `json:"max_clients"`

	Capacity []Capacity `json:"capacity"`
}

// Names of terms.
const (
	TermConstant = "constant"  // % of a core
	TermLoad     = "gbit_s"    // % of a core per Gbit/s of delivered payload
	TermClients  = "clients"   // % of a core per client
	TermPackets  = "packets_s" // % of a core per million packets a second
)

// Term is one coefficient with its interval over blocks.
type Term struct {
	Name  string   `json:"name"`
	Value Estimate `json:"value"`
}

// Capacity is how much this box carries with a device: the payload at which
// its router uses one whole core, by the model, or the most it was seen to
// deliver if it came to its limit before that.
type Capacity struct {
	Clients int      `json:"clients"`
	Mbps    Estimate `json:"mbps"` // payload
	// MeasuredMbps is the largest load delivered in the run with as many clients.
	MeasuredMbps Number `json:"measured_mbps"`
	// Saturated: the device fell short of the offered load in the run, so Mbps
	// is measured, and the model is not asked.
	Saturated bool `json:"saturated"`
	// Extrapolated: Mbps lies beyond the measured range.
	Extrapolated bool   `json:"extrapolated"`
	Note         string `json:"note"`
}
