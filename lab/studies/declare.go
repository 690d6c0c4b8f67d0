package studies

import "github.com/gateweigh/gateweigh/lab/result"

// Study declares a published study: what it measured, what it says, and the form
// in which it prints its figures. The rest of the package knows no study by name.
type Study struct {
	Number        int
	Scenarios     []Scenario // in the order of its columns; the first has no device, the others are compared with it
	Pairs         []Pair
	Sweeps        []*Sweep
	Claims        []Claim // in the order in which a reader asks
	Tables        []TableForm
	Figures       []FigureForm
	Questions     []Question // columns of a table that has a row a device
	QuestionsNote string
	Devices       []string              // the first rows of that table; others follow by name
	Units         func(cpus int) string // how figures here and in the study compare; 0 CPUs: not known
}

// Scenario is one of a study's routers, or another device that a run has.
type Scenario struct {
	Published string // in the published files; empty: the study does not have it
	DUT       string // the device it is here
	Heading   string // in tables
	Name      string // in sentences
	Obtain    string // how to measure it
	StandsIn  string // said before that, where another device takes the place of the study's own
}

// Pair is two devices that are compared with each other.
type Pair struct {
	First, Second string
	Study         bool   // judged even where they were not measured
	InPlaceOf     string // compared only where this device was not measured
	Remark        string // what to know of the pair
	Why           string // why they may compare otherwise here
	Apart         string // added to Why where they do not come nearer to each other
}

// Sweep is a published experiment: levels of one dimension, all else held fixed.
type Sweep struct {
	Along result.Dimension
	At    result.Cell      // what is held fixed
	Held  result.Dimension // the one of At that names the sweep
	// Moves: where a device cannot carry the load, claims are judged at another
	// value of Held. Lower is added to a finding when that is below the study's.
	Moves   bool
	Lower   string
	Prefer  string   // the profile that counts where a run has several
	Metrics []Metric // what is read of runs and of the published file
	File    string   // CSV below this package; its levels are the sweep's
	Run     string   // the shipped experiment that repeats it
	Place   string   // "bandwidth limit, 100 clients", in captions
	Forms   string   // its tables and figures, in the sentence that says they are missing
}

// Metric is a figure that runs and the study have at each level of a sweep.
type Metric struct {
	Name                string // in published files, and of a sweep or a cell in summary.json
	Change              string // in runs it is how this metric of a cell compares with the clean router
	Over                string // the study has it only as this metric over that of the first scenario
	Noun                string // in a sentence: "CPU"
	Short               string // in a sentence: what it is without figures, or a difference of it is in
	Unit, PublishedUnit string
}

// Claim is one claim of a study, judged for each subject by the points of its sweeps.
type Claim struct {
	ID, Text string // the text is in our own words, with its section
	Of       subjects
	Sweeps   []*Sweep
	Metric   Metric
	Judge    criterion
	Why      Why
}

// Why explains outcomes that differ from the study's; each may be empty.
type Why struct {
	Fails  string
	New    string // fails for a device the study does not have; empty: Fails
	Other  string // fails on the other side of what was claimed
	Beyond string // holds, and all figures are larger than the study's
	Moved  string // cannot fail at another value of what is held: both values follow
}

// subjects are what a claim is judged for.
type subjects int

const (
	routers subjects = iota // all, the first scenario too
	devices
	pairs
)

// Question is answered by one claim, or by the lower of two.
type Question struct {
	Text   string
	Claims []string
}

// TableForm declares tables of a sweep. With one number all routers share a
// table; with one a scenario each router has its own, and devices that the study
// does not have are shown in the form of the first device's.
type TableForm struct {
	Sweep   *Sweep
	Numbers []string
	Caption string // after the router's name where each has its own table
	Columns []ColumnForm
	Said    string // how to read a derived column
	Fold    string // see Table
}

// ColumnForm declares a column for each router; in its name, %s is the heading of
// the router. Units are the metric's where they are empty. A metric that is a
// change against the first scenario has no column for that.
type ColumnForm struct {
	Name                string
	Metric              Metric
	Derive              derivation
	Unit, PublishedUnit string
}

// FigureForm declares a figure of a sweep.
type FigureForm struct {
	Sweep                   *Sweep
	Number, Caption         string
	Metric                  Metric
	YLabel, PublishedYLabel string  // before the unit
	Over                    *Metric // ratio to the first scenario, drawn in a panel of its own
	OverYLabel, OverNote    string
	Proportional            string // name of a line for what follows the level; empty: none
	Fold                    string // see Table
}
