// Package analysis turns the raw records of a run into figures with intervals and verdicts. It is a pure function of
// the records: the same trials give the same summary, byte for byte.
//
// A block builds both labs (one with the device, one with the clean router) and measures all its windows in them. A
// cell is one combination of device, clients, load and the other dimensions. A round is one block of every cell.
//
// The unit of statistics is the block, not the window. Windows of one block agree with each other, while each new start
// of labs and traffic shifts the result by some per cent. So windows are averaged within their block, and every
// interval is a t-interval over blocks. It is computed on a scale that keeps it within the figure's range.
package analysis

import (
	"math"

	"github.com/gateweigh/gateweigh/lab/result"
)

// Version of summary.json.
const Version = 2

// Options of Summarise; the zero value is usable.
type Options struct {
	AllMetrics bool // also list metrics that no trial has a figure of
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

// limit returns the logarithm of the largest ratio that does not matter.
func (o Options) limit() float64 { return math.Log1p(o.Delta) }

// Summary is the content of summary.json.
type Summary struct {
	Version    int    `json:"version"`    // of the format: 2
	Experiment string `json:"experiment"` // its name
	Measure    string `json:"measure"`    // what was measured: "cost", "logins"
	Noun       string `json:"-"`          // what a trial is called
	Unit       string `json:"-"`          // what intervals are over: "block", or Noun where a trial is a whole block
	Mode       string `json:"mode"`       // duet or solo
	// Sides is set when the two labs of a pair differed in more than the device. The ratios then compare these sides.
	Sides *result.Sides `json:"sides,omitempty"`
	// Slowed is set when the routers had only a share of their CPU. Its badge stands beside the figures, so that nobody
	// compares them with figures at full speed.
	Slowed *Slowed `json:"slowed,omitempty"`
	// Noise is the CPU time that others took from the machine. It is nil on a quiet machine.
	Noise *Noise `json:"noise,omitempty"`
	// VM is the virtual machine that the lab ran in. Mark is the text that must stand beside every figure for it
	// (result.VM.Mark).
	VM   *result.VM `json:"vm,omitempty"`
	Mark string     `json:"mark,omitempty"` // "relative, emulated CPU", where that is so
	// LoadsDividedBy is the field of the environment with the same name.
	LoadsDividedBy float64 `json:"loads_divided_by,omitempty"`
	Confidence     float64 `json:"confidence"` // of all intervals
	Delta          float64 `json:"delta"`      // difference that does not matter, as a share

	// Dimensions describe the dimensions of the cells.
	Dimensions Dimensions `json:"-"`
	// Metrics describe the figures of the cells. Primary names the metric that verdicts judge.
	Metrics []Metric `json:"metrics"`
	Primary string   `json:"primary,omitempty"` // the metric that verdicts are on

	// Until is set where each cell was measured until it was exact enough. Intervals hold with Confidence in such a run
	// too.
	Until *Until `json:"until,omitempty"`

	Trials  Counts        `json:"trials"`      // numbers of trials
	AA      AA            `json:"aa,omitzero"` // zero: the measure has no clean router
	Cells   []Cell        `json:"cells"`       // in the order of a reader
	Skipped []result.Skip `json:"skipped"`     // devices that were left out
	Rejects []Tally       `json:"rejects"`     // of all trials, A/A included
	// Multiplicity is the correction for judging many cells together. It is zero without verdicts.
	Multiplicity Multiplicity `json:"multiplicity,omitzero"`

	Sweeps    []Sweep    `json:"sweeps,omitempty"`    // along loads or clients
	Quotients []Quotient `json:"quotients,omitempty"` // of runs with several devices and numbers of clients
	// Families are devices by IPv6, and by both families, over themselves by IPv4.
	Families   []FamilyRatio `json:"by_family,omitempty"`
	CostModels []CostModel   `json:"cost_models,omitempty"` // of CPU over load, clients and packets
	Ceilings   []Ceiling     `json:"ceilings,omitempty"`    // of runs in which sides take turns
	Stability  Stability     `json:"stability,omitzero"`    // effects of time, order and lab on the figures
	// Nodes says how well the machines of a campaign agree. It is nil for any other run.
	Nodes *Nodes `json:"nodes,omitempty"`

	// FailedBlocks are blocks that ended with an error. Trials before the error are in the cells.
	FailedBlocks []FailedBlock `json:"failed_blocks"`
	// LeftBlocks are blocks whose labs were closed with an error. Their trials are valid.
	LeftBlocks []LeftBlock `json:"left_blocks,omitempty"`
	// Limits are numbers of clients at which devices broke.
	Limits []Limit `json:"limits"`
	// Findings are the outcomes of published claims. lab/studies fills them in.
	Findings []Finding `json:"findings"`
	// Warnings say what weakens the result, one sentence each.
	Warnings []string `json:"warnings"`
}

// Counts of trials.
type Counts struct {
	Accepted int `json:"accepted"` // accepted trials
	Rejected int `json:"rejected"` // rejected trials
	Redone   int `json:"redone"`   // trials that repeat a rejected one
	// LeftOut is the number of rejected trials of cells that the machine cannot measure (result.Block.LeftOut). They are
	// in no other count, because they do not show noise of the machine.
	LeftOut int `json:"left_out,omitempty"`
	// Aside is the number of accepted trials that do not count, because another attempt at the same window was quieter.
	Aside int `json:"aside,omitempty"`
}

// Multiplicity is the correction for judging many cells at once. With it, the chance that even one cell is wrongly
// called different or equivalent is at most 1 - Confidence.
type Multiplicity struct {
	Method   string `json:"method"`   // "holm"
	Verdicts int    `json:"verdicts"` // number of verdicts judged together
}

// AA is the noise floor: two clean routers, compared with the same method as device and clean router.
type AA struct {
	Pairs    int     `json:"pairs"`    // accepted trials of two clean routers
	Blocks   int     `json:"blocks"`   // blocks with such a trial
	Rejected int     `json:"rejected"` // rejected trials
	Rejects  []Tally `json:"rejects"`  // why they were rejected
	// Ratio is the second clean router's figure divided by the first one's. For a primary metric that is compared by
	// difference, it is the difference.
	Ratio Estimate `json:"ratio"`
	SDLog Number   `json:"sd_log"` // spread of the blocks' mean log ratios, or of their mean differences
}

// Finding is one claim of a published study with its outcome in this run.
type Finding struct {
	Study int    `json:"study"` // its number
	ID    string `json:"id"`    // claim/device, or the claim alone where no run holds its experiment
	// Pair names two devices, such as "tcpdump-1500 against tcpdump-68", where the claim compares them. In files the ID
	// has them.
	Pair  string `json:"-"`
	Claim string `json:"claim"` // of the study
	Here  string `json:"here"`  // figures with intervals, n and run
	Holds *bool  `json:"holds"` // nil: this run cannot say
	// Open: the claim was tested, but the intervals leave it open. A claim that
	// neither holds, nor fails, nor is open was not tested.
	Open bool `json:"open"`
	// Expect says why a difference from the study is to be expected, or what the run lacks to test the claim. It is empty
	// when neither applies.
	Expect string `json:"expect"`
}
