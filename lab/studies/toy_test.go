// Tests of a study that shows what a new one needs. simulate makes a run from a description and a course
// (measuredCourse), which says how much dearer a bit is in a cell than proportional; bandwidth and clients are such
// runs over loads and over numbers of clients (simulated_test.go).

package studies

import (
	"io/fs"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/result"
)

var (
	toyLoad = &Sweep{
		Along: result.OfferedMbps, Fixed: result.NewCell(result.Clients, 30, result.Direction, result.Up),
		Held:   result.Clients,
		Prefer: result.PerPacket, Metrics: metrics1, File: "testdata/toy.csv", Run: "toy", Place: "bandwidth",
		Forms: "Table 7"}
	toyClients = &Sweep{Along: result.Clients, Fixed: result.NewCell(result.OfferedMbps, 500, result.Direction, result.Up),
		Held:   result.OfferedMbps,
		Prefer: result.PerPacket, Metrics: metrics1, File: "testdata/toy.csv", Run: "toy", Place: "clients", Forms: "Table 8",
		Moves: true}
)

// toy is a study with one claim of each criterion. A device that costs more with
// each client is compared with one whose cost is free of their number.
var toy = Study{
	Number: 99,
	Scenarios: []Scenario{{Published: "clean", DUT: "clean", Heading: "Plain", Name: "the plain router"},
		{Published: "dear", DUT: "dear", Heading: "Dear", Name: "the dear one"},
		{Published: "flat", DUT: "flat", Heading: "Flat", Name: "the flat one"}},
	Pairs:  []Pair{{First: "dear", Second: "flat", Study: true, Why: "They differ.", Apart: " More and more."}},
	Sweeps: []*Sweep{toyLoad, toyClients},
	Claims: []Claim{
		{ID: "above", Text: "Dearer by 2.5.", Subjects: devices, Sweeps: []*Sweep{toyClients}, Metric: overhead,
			Judge: alwaysAbove(2.5)},
		{ID: "linear", Text: "Straight.", Subjects: devices, Sweeps: []*Sweep{toyClients}, Metric: normalised,
			Judge: linear(40, 0.25)},
		{ID: "monotone", Text: "It rises.", Subjects: devices, Sweeps: []*Sweep{toyClients}, Metric: normalised,
			Judge: monotone()},
		{ID: "beyond-proportion", Text: "It rises by more.", Subjects: devices, Sweeps: []*Sweep{toyLoad}, Metric: normalised,
			Judge: beyondProportion(250, 500)},
		{ID: "negligible", Text: "It hardly rises.", Subjects: devices, Sweeps: []*Sweep{toyClients}, Metric: normalised,
			Judge: negligible(30, 40)},
		{ID: "largest", Text: "The first step is the largest.", Subjects: devices, Sweeps: []*Sweep{toyClients},
			Metric: normalised,
			Judge:  largestFirst()},
		{ID: "dominates", Text: "Bandwidth dominates.", Subjects: devices, Sweeps: []*Sweep{toyLoad, toyClients},
			Metric: normalised, Judge: dominates()},
		{ID: "converges", Text: "They converge.", Subjects: pairs, Sweeps: []*Sweep{toyClients}, Metric: normalised,
			Judge: converges()},
		{ID: "alike", Text: "They are alike.", Subjects: pairs, Sweeps: []*Sweep{toyClients}, Metric: normalised,
			Judge: costsAlike()},
		{ID: "larger", Text: "The dear one costs more.", Subjects: pairs, Sweeps: []*Sweep{toyClients}, Metric: normalised,
			Judge: costsMore()},
	},
	Tables: []TableForm{
		{Sweep: toyLoad, Numbers: []string{"7"}, Caption: "CPU",
			Columns: []ColumnForm{{"%s", normalised, metricItself, "", ""}, {"%s over", overhead, asIncrease, "%", "%"}}},
		{Sweep: toyClients, Numbers: []string{"8.1", "8.2", "8.3"}, Caption: "steps",
			Columns: []ColumnForm{{"Net", normalised, netStep, "points", "points"}}, Fold: "Steps"},
	},
	Figures: []FigureForm{
		{Sweep: toyLoad, Number: "3", Metric: normalised, Caption: "CPU", YLabel: "CPU", PublishedYLabel: "CPU"}},
	Questions: []Question{{"Straight?", []string{"linear"}}, {"Converging?", []string{"converges"}}},
	Units:     func(int) string { return "Units." },
}

// TestNewStudyNeedsOneTableLine: a study is a declaration and a line of the table of studies.
func TestNewStudyNeedsOneTableLine(t *testing.T) {
	defer func(before []Study, shipped fs.FS) { allStudies, files = before, shipped }(allStudies, files)
	allStudies, files = []Study{study1, toy}, os.DirFS(".")
	run := analysistest.Run(analysistest.Spec{
		Seed: 7, Clients: []int{1, 30, 40}, Offered: []float64{250, 500}, Blocks: 8, Windows: 6, AABlocks: 2, BlockSD: 0.005,
		WindowSD: 0.01, MachineSD: 0.01,
		DUTs: []analysistest.DUT{
			{Name: "dear", Cost: analysistest.Cost{PerGbit: 40, PerClient: 0.5}}, {Name: "flat", Ratio: 3}},
	})
	run.Environment.Experiment = "toy"
	outcomes := Beside(measure.Summarise(run, analysis.Options{}))
	if len(outcomes) != 2 || len(outcomes[0].Findings) != 0 || outcomes[1].Study != 99 {
		t.Fatalf("%d outcomes: %+v", len(outcomes), outcomes)
	}
	o := outcomes[1]
	said := map[string]string{}
	for _, f := range o.Findings {
		said[f.ID] = map[bool]string{true: "open", false: "not tested"}[f.Open]
		if f.Holds != nil {
			said[f.ID] = map[bool]string{true: "holds", false: "fails"}[*f.Holds]
		}
		if f.Study != 99 || strings.Contains(f.Here, "%!") || f.Holds != nil && !strings.Contains(f.Here, " blocks") {
			t.Errorf("%+v", f)
		}
	}
	want := map[string]string{
		"above/dear": "holds", "above/flat": "holds", "linear/dear": "holds", "linear/flat": "open", "monotone/dear": "holds",
		"monotone/flat":          "open",
		"beyond-proportion/dear": "fails", "beyond-proportion/flat": "fails", "negligible/dear": "fails",
		"negligible/flat": "holds",
		"largest/dear":    "holds", "largest/flat": "fails", "dominates/dear": "fails", "dominates/flat": "holds",
		"converges/dear-flat": "fails", "alike/dear-flat": "fails", "larger/dear-flat": "holds",
	}
	for id, word := range want {
		if said[id] != word {
			t.Errorf("%s: %s, want %s", id, said[id], word)
		}
	}
	if len(said) != len(want) {
		t.Errorf("findings %v", said)
	}
	if len(o.Tables) != 4 || len(o.Tables[0].Rows) != 2 || len(o.Tables[0].Columns) != 6 ||
		o.Tables[2].Title != "Table 8.2" || o.Tables[2].Fold != "Steps" {
		t.Fatalf("tables %+v", o.Tables)
	}
	// Link bandwidth is 1.046 times the payload in a simulated run.
	dear := o.Tables[2].Rows[1].Values[0]
	if math.Abs(float64(dear.Here.Mean)-14.5/1.046) > 0.5 || !dear.Here.HasInterval() || dear.Published != 14.5 {
		t.Errorf("step of the dear one %+v", dear)
	}
	if len(o.Figures) != 1 || len(o.Figures[0].Panels) != 3 || len(o.Figures[0].Panels[1].Series) != 3 {
		t.Errorf("figures %+v", o.Figures)
	}
	if len(o.Answers.Rows) != 2 || o.Answers.Rows[0].Answers[0].Holds == nil ||
		o.Answers.Rows[0].Answers[1].Finding != "converges/dear-flat" {
		t.Errorf("answers %+v", o.Answers)
	}
}
