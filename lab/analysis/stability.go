package analysis

// Stability shows whether the figures depend on when and in which order they
// were taken. Each effect is a percentage with its interval over blocks; 0 is none.
type Stability struct {
	// DriftPctPerHour is the trend of the overhead ratio over the run.
	DriftPctPerHour Effect `json:"drift_pct_per_hour"`
	// CleanDriftPctPerHour is that of the clean router's CPU per bit: the
	// machine's own drift, which a duet cancels.
	CleanDriftPctPerHour Effect `json:"clean_drift_pct_per_hour"`
	// SidePct is the overhead ratio with the device in lab a over that in lab b.
	SidePct Effect `json:"side_pct"`
	// OrderPct is a load's later windows over its first.
	OrderPct Effect `json:"order_pct"`
	// Series are the blocks in the order they were measured, for a chart.
	Series []StabilityPoint `json:"series"`
}

// Effect is one dependence that should not be there.
type Effect struct {
	Value   Estimate `json:"value"`
	Verdict string   `json:"verdict"` // Different, Equivalent (within δ) or Inconclusive
	Note    string   `json:"note"`    // one sentence
}

// StabilityPoint is one block: its place in time and how far it lies from its
// cells' means.
type StabilityPoint struct {
	Hours    Number `json:"hours"` // since the run began
	DUT      string `json:"dut"`
	AA       bool   `json:"aa"`
	DUTLab   string `json:"dut_lab"`
	RatioPct Number `json:"ratio_pct"` // overhead ratio against the cells' means
	CleanPct Number `json:"clean_pct"` // clean router's CPU per bit against the cells' means
}
