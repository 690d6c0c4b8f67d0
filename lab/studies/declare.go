package studies

import "github.com/gateweigh/gateweigh/lab/result"

// Study declares a published study: what it measured, what it says, and the form
// in which it prints its figures. The rest of the package knows no study by name.
type Study struct {
	Number int
	// of PPPoE: clients of another kind at the clean router are no difference, see result.Sides.OfClean
	Lines         bool
	Scenarios     []Scenario // in the order of its columns; the first has no device, the others are compared with it
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
	Units         func(cpus int) string // how units here and in the study compare; 0 CPUs: not known
}

// Scenario is one of a study's routers, or another device that a run has.
type Scenario struct {
	Published string // in the published files; empty: the study does not have it
	DUT       string // the device it is here
	Heading   string // in tables
	Name      string // in sentences
	Obtain    string // sentence: how to measure it
	StandsIn  string // begins that sentence where another device replaces the study's own
}

// Pair is two devices that are compared with each other.
type Pair struct {
	First, Second string
	Study         bool   // has findings even when the devices were not measured
	InPlaceOf     string // the pair is compared only where this device was not measured
	Claim         string // the only claim that is judged for the pair; empty: all of pairs
	Remark        string // what a reader must know of the pair
	Why           string // why the outcome may differ here
	Apart         string // added to Why where their costs do not converge
}

// Sweep is a published experiment: levels of one dimension, with the other dimensions fixed.
type Sweep struct {
	Along result.Dimension
	At    result.Cell      // the fixed dimensions
	Held  result.Dimension // the dimension of At that names the sweep
	// Moves: where a device cannot carry the load, claims are judged at another
	// value of Held. Lower is added to a finding when that value is below the study's.
	Moves   bool
	Lower   string
	Prefer  string   // the profile to use where a run has several
	Metrics []Metric // read from runs and from the published file
	File    string   // CSV below this package; its levels are the sweep's. Of a free sweep it may be empty
	// Free: the levels are those of the runs, and one is enough. Published are single figures of Systems, named
	// in the column system; they may be 0, and a cell is empty where the study gives no figure.
	Free    bool
	Systems []string
	Needs   result.Dimension // that a course of a free sweep must have besides; empty: none
	Of      []string         // the devices that it is of; empty: all
	Course  string           // name of a cell's curve over time that it has as well; empty: none
	Run     string           // the shipped experiment that repeats the sweep
	On      string           // the machine that this takes: "on a machine with three CPUs"; empty: any
	Place   string           // "bandwidth limit, 100 clients", in captions
	// its tables and figures, in the sentence that says they are missing; empty: another sweep has it
	Forms string
}

// Metric is a figure that runs and the study have at each level of a sweep.
type Metric struct {
	Name                string // in published files, and of a sweep or a cell in summary.json
	Change              string // set: runs take the change of this metric of a cell against the clean router
	Over                string // set: the study's figure is this metric over the first scenario's
	Noun                string // in a sentence: "CPU"
	Short               string // in a sentence: its name without figures, or the unit of a difference ("points")
	Unit, PublishedUnit string
	Least, Most         float64 // of a share of frames: the range in which nothing is lost
	Heading             string  // of a column of a PointForm
}

// Claim is one claim of a study, judged for each subject by the points of its sweeps.
type Claim struct {
	ID, Text string // the text is in our own words and names the section
	Of       subjects
	Only     []string // of these, the devices that it is about; empty: all
	Sweeps   []*Sweep
	Metric   Metric
	Judge    criterion
	// Holds and Not say in words what Judge asks for: when the claim holds here, and when it does not.
	Holds, Not string
	Absolute   bool // of times, not of ratios: nothing that an emulated CPU can tell
	Why        Why
}

// Why explains outcomes that differ from the study's; each may be empty.
type Why struct {
	Fails  string
	New    string // fails for a device the study does not have; empty: Fails
	Other  string // fails in the opposite direction
	Beyond string // holds, and all figures are larger than the study's
	Moved  string // cannot fail at another value of Held; a format of both values
}

// subjects say what a claim is judged for.
type subjects int

const (
	routers subjects = iota // the devices and the first scenario
	devices
	pairs
)

// Question is answered by one claim, or by two claims (see beside.answer).
type Question struct {
	Text   string
	Claims []string
}

// TableForm declares tables of a sweep. With one number all routers share a table.
// With one number a scenario each router has its own table, and a device that the
// study does not have is shown in the form of the first device's table.
type TableForm struct {
	Sweep   *Sweep
	Numbers []string
	Caption string // after the router's name where each router has its own table
	Columns []ColumnForm
	Said    string // how to read a derived column
	Fold    string // see Table
}

// ColumnForm declares a column for each router; in its name, %s is the heading of
// the router. Empty units are the metric's. A metric that is a change against the
// first scenario has no column for the first scenario.
type ColumnForm struct {
	Name                string
	Metric              Metric
	Derive              derivation
	Unit, PublishedUnit string
}

// LimitForm declares a table of the highest levels without loss: a row for each system of the study, then
// for each device, and a column for each sweep and metric.
type LimitForm struct {
	ID, Title, Caption, Said string
	RowHeading               string
	Columns                  []LimitColumn
}

// LimitColumn is the highest level up to which a metric stays in the range in which nothing is lost.
type LimitColumn struct {
	Name   string
	Sweep  *Sweep
	Metric Metric
}

// FigureForm declares a figure of a sweep: the four panels of one metric, or, with Stack, one panel a metric,
// one below the other.
type FigureForm struct {
	Sweep                   *Sweep
	Number, Caption         string
	Metric                  Metric
	YLabel, PublishedYLabel string  // without the unit
	Over                    *Metric // ratio to the first scenario, drawn in a panel of its own
	OverYLabel, OverNote    string
	Proportional            string // name of the line proportional to the level; empty: no line
	Fold                    string // see Table

	Course string // set: the figure has one panel, that curve of each router at the highest level over time

	Stack  []PanelForm
	XLabel string   // of Stack, without the unit; so are the following
	LogX   bool     // the axis of the levels is logarithmic
	Of     string   // the device that is drawn; empty: all
	Only   []string // the devices that are drawn; nil: all
	Note   string
}

// PanelForm is a panel of a stack.
type PanelForm struct {
	Metric        Metric
	Title, YLabel string           // the label without the unit
	Needs         result.Dimension // a router without it is left out: its host is another; empty: none is
}
