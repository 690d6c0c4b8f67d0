// Package studies holds published measurements of access gateways and sets what
// runs measured here beside them: the study's own tables and figures, and for each
// of its claims whether it holds here.
//
// It computes from summaries only, one or more of them, so that a run of one
// experiment can be completed by a run of another; where two runs hold the same
// figure, the one given first counts. Columns, series and findings name their run.
//
// A study is a declaration of its own file (see Study): sweeps with their published
// values, claims with their criteria, and the forms of tables and figures.
// docs/studies.md says how each claim is judged.
package studies

import "github.com/gateweigh/gateweigh/lab/analysis"

// Table is a table in the study's own form: same columns, same order.
type Table struct {
	ID      string // "table-5.1"; "table-5.3-opennds" for a device the study does not have
	Title   string // "Table 5.1", "As table 5.3"
	Caption string // in our own words, one sentence without a full stop
	Columns []Column
	Rows    []Row  // one a level, ascending
	Note    string // sentences to read with it: units, marks, what was not measured
	Fold    string // heading under which it is folded away with others; empty: it is in the open
}

// Column heads the values below it. The first of a table is the level itself.
type Column struct {
	Name                string
	Unit, PublishedUnit string // of the values measured here, and of the study's
	DUT                 string // whose values these are; analysis.Clean; empty for the level
	Measured, Published bool   // whether the runs, and the study, have any value of it
	Run                 string // where the values measured here come from; empty when not measured
}

// Row is one level, with the values of all columns but the level's own.
type Row struct {
	Level  analysis.Number
	Values []Value
}

// Value is a figure measured here beside the published one; either may be absent.
type Value struct {
	Here      analysis.Estimate
	Published analysis.Number
	// Flags say what weakens Here: result.FlagSaturated, result.FlagLossy,
	// cost.FlagShortfall. With the last, a normalised figure is CPU that was never spent.
	Flags []string
}

// Figure is a figure of the study as panels to be drawn beside each other.
type Figure struct {
	ID      string // "figure-5.5"
	Title   string // "Figure 5.5"
	Caption string
	XLabel  string
	Panels  []Panel
	Note    string // why these panels
	Fold    string // as a table's
}

// Panel is one chart. All its series have the same unit.
type Panel struct {
	Title, YLabel string
	LogY          bool            // ratios
	Reference     analysis.Number // a level of Y to draw as a line; absent: none
	Series        []Series
}

// Series is one line of a panel. Those of one device have one colour.
type Series struct {
	Name      string
	DUT       string // the device, also of a published series; analysis.Clean; empty for a guide
	Published bool   // draw apart from what was measured here: dashed, hollow
	Guide     bool   // a line of reference without marks, such as "proportional"
	Points    []Point
	Run       string // where the points come from; empty when published
}

// Point is a value with its interval; published points have none.
type Point struct {
	X     analysis.Number
	Y     analysis.Estimate
	Flags []string
}

// Outcome is what runs say of one study.
type Outcome struct {
	Study int
	// Findings are its claims, each beside what the runs say of it. An ID is
	// "claim/device"; findings of one claim follow each other with the same text in
	// Claim, and Here begins with the device. A device of the study that no run
	// measured has one finding for all claims. Runs that hold none of the study's
	// sweeps have no findings.
	Findings []analysis.Finding
	// Tables and Figures are those of the sweeps that the runs hold, and tables in
	// the same form for devices that are not in the study. Missing says, a sentence
	// each, which run gives the others.
	Tables  []Table
	Figures []Figure
	Missing []string
	Answers Answers
}

// all are the published studies, in the order of their numbers.
var all = []Study{study1}

// Beside sets runs beside every study.
func Beside(runs ...analysis.Summary) []Outcome {
	var out []Outcome
	for _, st := range all {
		b := hold(st, runs)
		out = append(out, Outcome{st.Number, b.findings(), b.tables(), b.figures(), b.missing(), b.answers()})
	}
	return out
}
