// Package studies has published measurements of access gateways and compares them with runs of this lab. It fills the
// study's tables and figures, and says for each claim of the study whether it holds here.
//
// It computes from one or more summaries, so that a run of one experiment can complete a run of another one. If two
// runs have the same figure, that of the first run given counts. Columns, series and findings name their run.
//
// Each study is declared in a file of its own (see Study): sweeps with their published values, claims with their
// criteria, and the forms of tables and figures. A course has the figures of one router along a sweep. A repetition is
// a sweep as the runs measured it. docs/reference/claims.md says how each claim is judged.
package studies

import (
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
)

// Table is a table in the study's own form: same columns, same order.
type Table struct {
	ID      string // "table-5.1"; "table-5.3-opennds" for a device that the study does not have
	Title   string // "Table 5.1", "As table 5.3"
	Caption string // in our own words, one sentence without a full stop
	Columns []Column
	Rows    []Row  // one for each level, ascending
	Note    string // sentences below the table: units, marks, what was not measured
	Fold    string // heading under which tables are folded away; empty: visible
}

// Column is a column of values. The first column of a table has the levels.
type Column struct {
	Name                string
	Unit, PublishedUnit string // of the values measured here, and of the study's values
	DUT                 string // the device, or analysis.Clean; empty for the level
	Measured, Published bool   // the runs have values for it; the study has values for it
	Run                 string // run with the values measured here; empty when not measured
}

// Row is one level, or one system, with the values of all columns except the first.
type Row struct {
	Level  analysis.Number
	Name   string `json:",omitempty"` // of a system; then there is no level
	Values []Value
}

// Value is a figure measured here beside the published one. Either may be absent.
type Value struct {
	Here      analysis.Estimate
	Published analysis.Number
	// Flags are the weaknesses of Here: result.FlagSaturated, result.FlagLossy, cost.FlagShortfall, FlagAtLeast. With
	// cost.FlagShortfall, a normalised figure includes CPU that was never used.
	Flags []string
}

// FlagAtLeast marks a limit that is the highest level measured.
const FlagAtLeast = "at-least"

// Figure is a figure of the study. Its panels are side by side, or one below the other.
type Figure struct {
	ID      string // "figure-5.5"
	Title   string // "Figure 5.5"
	Caption string
	XLabel  string
	Panels  []Panel
	Note    string // explanation of the panels
	Fold    string // see Table
	Stacked bool   `json:",omitempty"` // one below the other
	LogX    bool   `json:",omitempty"`
	Course  bool   `json:",omitempty"` // over time: of many points that are not single results
}

// Panel is one chart. All its series have the same unit.
type Panel struct {
	Title, YLabel string
	LogY          bool            // ratios
	Reference     analysis.Number // value of Y drawn as a line; absent: none
	Series        []Series
}

// Series is one line of a panel. All series of a device have the same colour.
type Series struct {
	Name      string
	DUT       string // device, also of a published series; analysis.Clean; empty for a guide
	Published bool   // published values are drawn dashed, with hollow marks
	Guide     bool   // a reference line without marks, such as "proportional"
	Points    []Point
	Run       string // the run that measured the points; empty when published
}

// Point is a value with its interval; published points have none.
type Point struct {
	X     analysis.Number
	Y     analysis.Estimate
	Flags []string
}

// Outcome is one study compared with runs.
type Outcome struct {
	Study int
	// Findings are the study's claims with their outcomes here. An ID is "claim/device". Findings of one claim follow each
	// other with the same text in Claim, and Here begins with the device. A device of the study that no run measured has
	// one finding for all claims. Runs without any of the study's sweeps have no findings.
	Findings []analysis.Finding
	// Tables and Figures are those of the sweeps that the runs have. Devices that are not in the study have tables of the
	// same form. Missing has one sentence for each missing sweep. It names the experiment that fills it.
	Tables  []Table
	Figures []Figure
	Missing []string
	Answers Answers
}

var allStudies = []Study{study1, study2, study3, study4, study5}

// All returns the published studies in the order of their numbers.
func All() []Study { return slices.Clone(allStudies) }

// Beside compares runs with every study. A run whose labs differ in more than the device does not test a study. If the
// first run is such a run, the study is left out. Other runs are left out if they are such runs, or if their routers
// had another speed than those of the first run. If a CPU was emulated, all other runs are left out.
func Beside(runs ...analysis.Summary) []Outcome {
	var out []Outcome
	for _, st := range allStudies {
		if len(runs) > 0 && st.differs(runs[0]) {
			continue
		}
		b := judgeStudy(st, st.comparable(runs))
		out = append(out, Outcome{st.Number, b.findings(), slices.Concat(b.tables(), b.limits(), b.points()), b.figures(),
			b.missing(), b.answers()})
	}
	return out
}

// differs reports whether the labs of a run differ in more than the device, as far as this study is concerned.
func (st Study) differs(s analysis.Summary) bool {
	return s.Sides != nil && !(st.Lines && s.Sides.OfClean)
}

// comparable returns the runs that may complete the first one.
func (st Study) comparable(runs []analysis.Summary) []analysis.Summary {
	if len(runs) < 2 {
		return runs
	}
	return append(runs[:1:1], slices.DeleteFunc(slices.Clone(runs[1:]), func(s analysis.Summary) bool {
		return st.differs(s) || s.Speed() != runs[0].Speed() || s.Mark != "" || runs[0].Mark != ""
	})...)
}
