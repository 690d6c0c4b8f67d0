package studies

import "github.com/gateweigh/gateweigh/lab/result"

// Study declares a published study: what it measured, what it claims, and the form of its tables and figures. The rest
// of the package does not depend on any study's name.
type Study struct {
	Number int
	// true for a study of PPPoE: the clean router may have another kind of clients, see result.Sides.OfClean
	Lines         bool
	Scenarios     []Scenario // in the order of its columns; the first has no device, and the others are compared with it
	Pairs         []Pair
	Sweeps        []*Sweep
	Claims        []Claim // in the order in which a reader asks
	Tables        []TableForm
	Limits        []LimitForm
	Points        []PointForm
	Figures       []FigureForm
	Questions     []Question // columns of the table of answers, which has one row a device
	QuestionsNote string
	Devices       []string              // first rows of that table; other devices follow by name
	Units         func(cpus int) string // says how units here and in the study compare; 0 CPUs: not known
}

// Scenario is one of a study's routers, or another device of a run.
type Scenario struct {
	Published string // name in the published files; empty: the study does not have it
	DUT       string // name of the device in this lab
	Heading   string // in tables
	Name      string // in sentences
	Obtain    string // sentence that says how to measure it
	StandsIn  string // beginning of that sentence if another device replaces the study's
}

// Pair is two devices that are compared with each other.
type Pair struct {
	First, Second string
	Study         bool   // has findings even if the devices were not measured
	InPlaceOf     string // the pair is compared only if this device was not measured
	Claim         string // the only claim that is judged for the pair; empty: all claims about pairs
	Remark        string // necessary information about the pair
	Why           string // reason why the outcome may differ here
	Apart         string // added to Why if their costs do not converge
}

// Sweep is a published experiment: levels of one dimension, with the other dimensions fixed.
type Sweep struct {
	Along result.Dimension
	Fixed result.Cell      // the fixed dimensions
	Held  result.Dimension // the dimension of Fixed that names the sweep
	// Moves: if a device cannot carry the load, claims are judged at another value of Held. Lower is added to a finding if
	// that value is below the study's.
	Moves   bool
	Lower   string
	Prefer  string   // the profile to use where a run has several
	Metrics []Metric // read from runs and from the published file
	File    string   // CSV in this package's folder; its levels are those of the sweep. It may be empty for a free sweep
	// Free: the levels are those of the runs, and one is enough. Published are single figures of Systems, named in the
	// column system. They may be 0. A cell is empty if the study gives no figure.
	Free    bool
	Systems []string
	Needs   result.Dimension // a course of a free sweep must also have this dimension; empty: none
	Devices []string         // devices of the sweep; empty: all
	Course  string           // name of a cell's curve over time that the sweep also has; empty: none
	Run     string           // shipped experiment that repeats the sweep
	On      string           // machine that this needs: "on a machine with three CPUs"; empty: any
	Place   string           // "bandwidth limit, 100 clients", in captions
	// tables and figures of the sweep, for the sentence that says they are missing; empty: they belong to another sweep
	Forms string
}

// Metric is a figure that runs and the study have at each level of a sweep.
type Metric struct {
	Name                string // in published files, and of a sweep or a cell in summary.json
	Change              string // if set, runs use the change of this metric of a cell against the clean router
	Over                string // if set, the study's figure is this metric divided by the first scenario's
	Noun                string // word in a sentence: "CPU"
	Short               string // words for its name without figures, or for the unit of a difference ("points")
	Unit, PublishedUnit string
	Least, Most         float64 // for a share of frames: the range in which nothing is lost
	Heading             string  // of a column of a PointForm
}

// Claim is one claim of a study. It is judged for each subject by the figures of its sweeps.
type Claim struct {
	ID, Text string // the text is in our own words and names the section
	Subjects subjects
	Only     []string // the only devices that the claim is about; empty: all
	Sweeps   []*Sweep
	Metric   Metric
	Judge    criterion
	// Holds and Not say in words when the claim holds here, and when it does not. They must agree with Judge.
	Holds, Not string
	Absolute   bool // the claim is about times and not ratios, so an emulated CPU cannot test it
	Why        Why
}

// Why has explanations of outcomes that differ from the study's. Each may be empty.
type Why struct {
	Fails  string
	New    string // fails for a device that the study does not have; empty: Fails
	Other  string // fails in the opposite direction
	Beyond string // holds, and all figures are larger than the study's
	Moved  string // cannot fail at another value of Held; a format for both values
}

// subjects are the kinds of subjects for which a claim is judged.
type subjects int

const (
	routers subjects = iota // the devices and the first scenario
	devices
	pairs
)

// Question is answered by one claim or two (see studyInRuns.answer).
type Question struct {
	Text   string
	Claims []string
}

// TableForm declares tables of a sweep. With one number, all routers share a table. With one number for each scenario,
// each router has its own table, and a device that the study does not have uses the form of the first device's table.
type TableForm struct {
	Sweep   *Sweep
	Numbers []string
	Caption string // follows the router's name if each router has its own table
	Columns []ColumnForm
	Reading string // explanation of a derived column
	Fold    string // see Table
}

// ColumnForm declares a column for each router. In its name, %s stands for the heading of the router. An empty unit
// means that of the metric. If a metric is a change against the first scenario, the first scenario has no column.
type ColumnForm struct {
	Name                string
	Metric              Metric
	Derive              derivation
	Unit, PublishedUnit string
}

// LimitForm declares a table of the highest levels without loss. It has a row for each system of the study, then for
// each device, and a column for each sweep and metric.
type LimitForm struct {
	ID, Title, Caption, Reading string
	RowHeading                  string
	Columns                     []LimitColumn
}

// LimitColumn is the highest level up to which a metric is in the range in which nothing is lost.
type LimitColumn struct {
	Name   string
	Sweep  *Sweep
	Metric Metric
}

// FigureForm declares a figure of a sweep: the four panels of one metric, or, with Stack, one panel for each metric,
// one below the other.
type FigureForm struct {
	Sweep                   *Sweep
	Number, Caption         string
	Metric                  Metric
	YLabel, PublishedYLabel string  // without the unit
	Over                    *Metric // ratio to the first scenario, drawn in a separate panel
	OverYLabel, OverNote    string
	Proportional            string // name of the line proportional to the level; empty: no line
	Fold                    string // see Table

	Course string // if set, the figure has one panel with this curve over time, for each router at the highest level

	Stack  []PanelForm
	XLabel string   // for Stack, without the unit; so are the following
	LogX   bool     // the axis of the levels is logarithmic
	Device string   // the only device drawn; empty: all
	Only   []string // the only devices drawn; nil: all
	Note   string
}

// PanelForm is a panel of a stack.
type PanelForm struct {
	Metric        Metric
	Title, YLabel string // label without the unit
	// routers without this dimension are left out, because their host is another; empty: none
	Needs result.Dimension
}
