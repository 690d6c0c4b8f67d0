// Package analysis turns the raw records of a run into figures with intervals
// and verdicts. It is a pure function of the records: the same trials give the
// same summary, to the byte.
//
// The unit of replication is the block, not the window: windows of one start
// agree with each other while each new start of labs and traffic shifts the
// result by some per cent. So windows are averaged within their block, and
// every interval is a t-interval over blocks, on the scale that keeps it where the
// figure can be.
package analysis

import (
	"github.com/gateweigh/gateweigh/lab/result"
)

// Version of summary.json.
const Version = 1

// Options of Summarise; the zero value is usable.
type Options struct {
	// Delta is the relative difference that does not matter: ratios inside
	// [1/(1+δ), 1+δ] are equivalent. Default 0.05.
	Delta float64
	// Confidence of every interval, two-sided. Default 0.95.
	Confidence float64
}

func (o Options) withDefaults() Options {
	if o.Delta <= 0 {
		o.Delta = 0.05
	}
	if o.Confidence <= 0 || o.Confidence >= 1 {
		o.Confidence = 0.95
	}
	return o
}

// Summary is summary.json.
type Summary struct {
	Version    int    `json:"version"`
	Experiment string `json:"experiment"`
	Profile    string `json:"profile"` // several are joined by commas
	Mode       string `json:"mode"`
	// Measure is result.MeasureLogins, or empty: then the run measured costs.
	Measure string `json:"measure,omitempty"`
	// Sides is set when the labs of a pair differed in more than the device: what the
	// ratios are of then.
	Sides      *result.Sides `json:"sides,omitempty"`
	Confidence float64       `json:"confidence"`
	Delta      float64       `json:"delta"`

	Trials  Counts        `json:"trials"`
	AA      AA            `json:"aa"`
	Cells   []Cell        `json:"cells"`
	Storms  []StormCell   `json:"storms,omitempty"` // of runs that measure logins
	Skipped []result.Skip `json:"skipped"`
	Rejects []Tally       `json:"rejects"` // of all trials, A/A included
	// Multiplicity says how the verdicts of the cells are taken together.
	Multiplicity Multiplicity `json:"multiplicity"`
	Sweeps       []Sweep      `json:"sweeps"`
	Quotients    []Quotient   `json:"quotients,omitempty"` // of runs with several devices and numbers of clients
	CostModels   []CostModel  `json:"cost_models"`
	Ceilings     []Ceiling    `json:"ceilings,omitempty"` // of runs in which sides take turns
	Stability    Stability    `json:"stability"`
	// FailedBlocks are blocks that ended with an error, whatever trials they gave before.
	FailedBlocks []FailedBlock `json:"failed_blocks"`
	// Limits are where devices broke: more clients than they take.
	Limits []Limit `json:"limits"`
	// Findings are filled in by whoever knows the published studies.
	Findings []Finding `json:"findings"`
	// Warnings say what weakens the result, a sentence each.
	Warnings []string `json:"warnings"`
}

// Counts of trials.
type Counts struct {
	Accepted int `json:"accepted"`
	Rejected int `json:"rejected"`
	Redone   int `json:"redone"` // trials that repeat a rejected one
}

// Multiplicity is the correction for judging many cells at once: with it, the
// chance that even one cell is called different or equivalent wrongly is 1 - Confidence.
type Multiplicity struct {
	Method   string `json:"method"` // "holm"
	Verdicts int    `json:"verdicts"`
}

// AA is the noise floor: what the method says of two clean routers.
type AA struct {
	Pairs    int      `json:"pairs"`
	Blocks   int      `json:"blocks"`
	Rejected int      `json:"rejected"`
	Rejects  []Tally  `json:"rejects"`
	Ratio    Estimate `json:"ratio"`
	SDLog    Number   `json:"sd_log"` // of the block means of the log ratio
}

// Cell is one point of the sweep: one DUT at one load.
type Cell struct {
	DUT           string `json:"dut"`
	Clients       int    `json:"clients"`
	OfferedMbps   Number `json:"offered_mbps"` // payload
	DeliveredMbps Number `json:"delivered_mbps"`
	Pairs         int    `json:"pairs"` // accepted
	Rejected      int    `json:"rejected"`

	// OverheadRatio is router CPU per delivered bit, DUT over clean: geometric mean.
	OverheadRatio Estimate `json:"overhead_ratio"`
	// IncreasePct is the increase of normalised CPU over the clean router's, as study 1 tabulates it.
	IncreasePct Number `json:"increase_pct"`
	Verdict     string `json:"verdict"`
	// PDifferent and PEquivalent are adjusted for multiplicity: the chance of
	// such blocks if the ratio were 1, or if it lay outside [1/(1+δ), 1+δ].
	PDifferent  Number `json:"p_different"`
	PEquivalent Number `json:"p_equivalent"`

	CPUCorePct      Estimate `json:"cpu_core_pct"` // % of one core
	CleanCPUCorePct Estimate `json:"clean_cpu_core_pct"`
	// CPUNormalisedPct is CPU × limit / sampled bandwidth (study 1, equation 5.1), % of one core.
	CPUNormalisedPct Number `json:"cpu_normalised_pct"`
	NsPerPacket      Number `json:"ns_per_packet"`

	PSSMiB           Number `json:"pss_mib"`
	RTT              RTT    `json:"rtt_us"`
	LossRatio        Number `json:"loss_ratio"` // router drops / (sent + drops)
	RetransmitRatio  Number `json:"retransmit_ratio"`
	SegmentsPerBurst Number `json:"segments_per_burst"`

	Direction    string        `json:"direction"`
	Profile      string        `json:"profile"`
	Blocks       int           `json:"blocks"`
	Redone       int           `json:"redone"`
	VerdictNote  string        `json:"verdict_note"`
	BlocksNeeded *int          `json:"blocks_needed"` // further blocks for a verdict
	SDLog        Number        `json:"sd_log"`        // of the block means of the log ratio
	CleanRTT     RTT           `json:"clean_rtt_us"`
	Flags        []Tally       `json:"flags"`
	Rejects      []Tally       `json:"rejects"`
	Intervals    Figures       `json:"intervals"`
	BlockFigures BlockTimes    `json:"block_figures"`
	Streams      StreamFigures `json:"streams"`
	Crowd        Crowd         `json:"crowd"`
	Churn        ChurnFigures  `json:"churn"`
}

// RTT is the median over windows of the windows' percentiles, microseconds.
type RTT struct {
	P50 Number `json:"p50"`
	P99 Number `json:"p99"`
}

// Tally counts accepted trials with a flag, or rejected trials by reason.
// Reasons that differ only in their figures are one: Text is the first of them.
type Tally struct {
	Text  string `json:"text"`
	Count int    `json:"count"`
}

// Finding is one claim of a published study beside what was measured here.
type Finding struct {
	Study int    `json:"study"`
	ID    string `json:"id"`
	Claim string `json:"claim"`
	Here  string `json:"here"`
	Holds *bool  `json:"holds"` // nil: this run cannot say
	// Open: the claim was tested, but the intervals leave it open. A claim that
	// neither holds, nor fails, nor is open was not tested.
	Open bool `json:"open"`
	// Expect says why a difference from the study is to be expected, or what the
	// run would need to say anything; empty when neither.
	Expect string `json:"expect"`
}

// FlagShortfall marks a cell whose sampled bandwidth is more than 10 % below
// the limit, so that equation 5.1 extrapolates CPU the router never spent.
const FlagShortfall = "bandwidth-shortfall"

// FlagNoRatio marks accepted trials without a ratio: one side delivered
// nothing, or the clean router's CPU was not seen.
const FlagNoRatio = "no-ratio"

// Has reports whether the cell carries a flag.
func (c Cell) Has(flag string) bool {
	for _, f := range c.Flags {
		if f.Text == flag {
			return true
		}
	}
	return false
}
