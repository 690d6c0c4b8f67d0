// Tests of the tables of studies. simulate makes a run from a description and a course (measuredCourse), which says how
// much dearer a bit is in a cell than proportional; bandwidth and clients are such runs over loads and over numbers of
// clients (simulated_test.go).

package studies_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/studies"
)

func table(t *testing.T, tables []studies.Table, id string) studies.Table {
	t.Helper()
	for _, tb := range tables {
		if tb.ID == id {
			return tb
		}
	}
	t.Fatalf("no %s", id)
	return studies.Table{}
}

// tableValue finds a value by its level and the name of its column.
func tableValue(t *testing.T, tb studies.Table, level float64, column string) studies.Value {
	t.Helper()
	i := slices.IndexFunc(tb.Columns, func(c studies.Column) bool { return c.Name == column })
	for _, row := range tb.Rows {
		if float64(row.Level) == level && i > 0 {
			return row.Values[i-1]
		}
	}
	t.Fatalf("%s: no %q at %g", tb.ID, column, level)
	return studies.Value{}
}

func checkNear(t *testing.T, what string, got analysis.Number, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(float64(got)-want) <= tolerance) {
		t.Errorf("%s is %g, want %g", what, float64(got), want)
	}
}

func TestTablesOfBothExperiments(t *testing.T) {
	tables := study1Outcome(
		bandwidth(proportional, portal("coovachilli", 5), portal("opennds", 2.5)),
		clients(proportional, portal("coovachilli", 5))).Tables
	var ids []string
	for _, tb := range tables {
		ids = append(ids, strings.TrimPrefix(tb.ID, "table-"))
		for _, row := range tb.Rows {
			if len(row.Values) != len(tb.Columns)-1 {
				t.Errorf("%s: %d values under %d columns", tb.ID, len(row.Values), len(tb.Columns))
			}
		}
		if units := tb.ID == "table-5.1" || tb.ID == "table-5.5"; tb.Caption == "" ||
			strings.Contains(tb.Note, "Compare ratios") != units {
			t.Errorf("%s: caption %q, note %q", tb.ID, tb.Caption, tb.Note)
		}
	}
	want := "5.1 5.2 5.3 5.4 5.3-opennds 5.5 5.6 5.7 5.8 A.1 A.2 A.3 A.2-opennds A.4 A.5 A.6"
	if got := strings.Join(ids, " "); got != want {
		t.Errorf("tables %s\nwant   %s", got, want)
	}
	if tb := table(t, tables, "table-5.3-opennds"); tb.Title != "As table 5.3" ||
		!strings.HasPrefix(tb.Caption, "opennds: ") {
		t.Errorf("%s: %s", tb.Title, tb.Caption)
	}
	if note := table(t, tables, "table-5.7").Note; !strings.Contains(note, "Of run portal-clients: CoovaChilli.") {
		t.Errorf("of two runs: %q", note)
	}
}

func TestComparisonTable(t *testing.T) {
	tables := study1Outcome(bandwidth(proportional, portal("coovachilli", 5), portal("opennds", 2.5))).Tables
	tb := table(t, tables, "table-5.1")
	var names []string
	for _, c := range tb.Columns {
		names = append(names, c.Name)
	}
	want := []string{"Bandwidth limit", "CPU Clean", "CPU Chilli", "CPU Company", "Chilli Incr.", "Company Incr.",
		"CPU opennds", "opennds Incr."}
	if !slices.Equal(names, want) || len(tb.Rows) != 5 {
		t.Fatalf("%d rows under %q", len(tb.Rows), names)
	}
	// 8 % of a core at 1 Gbit/s of payload is the simulated clean router; link
	// bandwidth is 1.046 times the payload.
	clean := tableValue(t, tb, 1000, "CPU Clean")
	checkNear(t, "clean at 1000", clean.Here.Mean, 8/1.046, 0.4)
	checkNear(t, "clean at 1000, published", clean.Published, 9.22, 0)
	chilli := tableValue(t, tb, 200, "Chilli Incr.")
	checkNear(t, "increase", chilli.Here.Mean, 400, 15)
	checkNear(t, "increase, published", chilli.Published, 117.22, 0)
	if !chilli.Here.HasInterval() || chilli.Here.N != 12 || !(chilli.Here.Lo < chilli.Here.Mean) {
		t.Errorf("increase %+v", chilli.Here)
	}
	checkNear(t, "opennds", tableValue(t, tb, 400, "opennds Incr.").Here.Mean, 150, 8)
	if v := tableValue(t, tb, 400, "CPU opennds"); v.Published.Known() || !v.Here.Mean.Known() {
		t.Errorf("opennds %+v", v)
	}
	company := tb.Columns[3]
	if v := tableValue(t, tb, 800, "CPU Company"); company.Measured || !company.Published || v.Here.Mean.Known() ||
		v.Published != 16.31 {
		t.Errorf("company %+v, %+v", company, v)
	}
	if !strings.Contains(tb.Note, "The company's portal (NFQUEUE) is not measured here") ||
		!strings.Contains(tb.Note, "divided by 2: of this machine") {
		t.Errorf("note %q", tb.Note)
	}
	if chilliColumn := tb.Columns[2]; chilliColumn.Run != "portal-bandwidth" || chilliColumn.DUT != "coovachilli" ||
		chilliColumn.Unit == chilliColumn.PublishedUnit {
		t.Errorf("column %+v", chilliColumn)
	}
}

// TestTablesByFamily: a study's table has a run's devices by IPv4 in its own columns, and by IPv6 in further ones, each
// over the clean router of its family. The clean router by IPv6 is no portal that claims are about.
func TestTablesByFamily(t *testing.T) {
	var run result.Run
	for family, ratio := range map[string]float64{"4": 5, "6": 3} {
		one := analysistest.Run(bandwidthSpec(portal("coovachilli", ratio)))
		for _, trial := range one.Trials {
			trial.Cell = trial.Cell.With(result.Family, family)
			run.Trials = append(run.Trials, trial)
		}
		run.Environment = one.Environment
	}
	run.Environment.Experiment = "portal-bandwidth"
	out := study1Outcome(measure.Summarise(run, analysis.Options{}))
	tb := table(t, out.Tables, "table-5.1")
	checkNear(t, "increase by IPv4", tableValue(t, tb, 200, "Chilli Incr.").Here.Mean, 400, 15)
	checkNear(t, "increase by IPv6", tableValue(t, tb, 200, "coovachilli, IPv6 Incr.").Here.Mean, 200, 10)
	for _, c := range tb.Columns {
		if c.Name == "clean, IPv6 Incr." {
			t.Error("the clean router has an increase over itself")
		}
	}
	if v := tableValue(t, tb, 200, "CPU clean, IPv6"); !v.Here.Mean.Known() {
		t.Errorf("the clean router by IPv6: %+v", v)
	}
	const claim = "portals-double-cpu-at-any-bandwidth/"
	if f := findingByID(t, out.Findings, claim+"coovachilli, IPv6"); f.Holds == nil || !*f.Holds {
		t.Errorf("%+v", f)
	}
	for _, f := range out.Findings {
		if f.ID == claim+"clean, IPv6" {
			t.Errorf("the clean router is judged as a portal: %+v", f)
		}
	}
}

func TestNFQueueReplacesProprietaryPortal(t *testing.T) {
	tb := table(t, study1Outcome(clients(proportional, portal("gateway-nfqueue", 3))).Tables, "table-5.5")
	if c := tb.Columns[3]; !c.Measured || c.DUT != "gateway-nfqueue" {
		t.Errorf("column %+v", c)
	}
	v := tableValue(t, tb, 50, "Company Incr.")
	checkNear(t, "increase", v.Here.Mean, 200, 10)
	checkNear(t, "increase, published", v.Published, 148.42, 0)
}

func TestStepAndSampledTables(t *testing.T) {
	tables := study1Outcome(bandwidth(proportional, portal("coovachilli", 5))).Tables
	steps := table(t, tables, "table-5.3")
	if v := tableValue(t, steps, 100, "Net increase"); v.Here.Mean.Known() || v.Published.Known() {
		t.Errorf("the first level has no increase, got %+v", v)
	}
	net, rel := tableValue(t, steps, 400, "Net increase"), tableValue(t, steps, 400, "Relative increase")
	checkNear(t, "net", net.Here.Mean, 5*0.008*200/1.046, 0.6)
	checkNear(t, "net, published", net.Published, 3.56, 0)
	checkNear(t, "relative", rel.Here.Mean, 100, 6)
	checkNear(t, "relative, published", rel.Published, 91.05, 0)
	if steps.Columns[2].Unit != "percentage points of a core" {
		t.Errorf("unit %q", steps.Columns[2].Unit)
	}
	sampled := table(t, tables, "table-A.2")
	link := tableValue(t, sampled, 800, "Bandwidth sampled")
	checkNear(t, "link", link.Here.Mean, 800*1.046, 0.1)
	checkNear(t, "link, published", link.Published, 823.86, 0)
	checkNear(t, "CPU", tableValue(t, sampled, 800, "CPU sampled").Here.Mean, 5*6.4, 2)
	checkNear(t, "CPU, published", tableValue(t, sampled, 800, "CPU sampled").Published, 14.44, 0)
}

func TestLevelsMissingAndExtra(t *testing.T) {
	spec := bandwidthSpec(portal("coovachilli", 5))
	spec.Offered = []float64{100, 300, 400}
	tables := study1Outcome(simulate("mine", spec, proportional)).Tables
	tb := table(t, tables, "table-5.3")
	if len(tb.Rows) != 5 {
		t.Fatalf("%d rows", len(tb.Rows))
	}
	if v := tableValue(t, tb, 200, "CPU"); v.Here.Mean.Known() || v.Published != 3.91 {
		t.Errorf("level not measured: %+v", v)
	}
	// The run went from 300 to 400, the study from 200: not the same step.
	if v := tableValue(t, tb, 400, "Relative increase"); v.Here.Mean.Known() || v.Published != 91.05 {
		t.Errorf("another step: %+v", v)
	}
	for _, want := range []string{
		"CoovaChilli was not measured at 200 Mbit/s, 800 Mbit/s and 1000 Mbit/s.", "has CoovaChilli at 300 Mbit/s"} {
		if !strings.Contains(tb.Note, want) {
			t.Errorf("note %q does not say %q", tb.Note, want)
		}
	}
}

func TestFiguresAtLimitAreMarked(t *testing.T) {
	chilli := portal("coovachilli", 5)
	chilli.MaxMbps = 500
	s := bandwidth(proportional, chilli)
	tables := study1Outcome(s).Tables
	tb := table(t, tables, "table-5.1")
	want := []string{cost.FlagShortfall, result.FlagSaturated}
	if v := tableValue(t, tb, 800, "CPU Chilli"); !slices.Equal(v.Flags, want) {
		t.Errorf("flags %q", v.Flags)
	}
	if v := tableValue(t, tb, 400, "CPU Chilli"); len(v.Flags) != 0 {
		t.Errorf("flags %q below the limit", v.Flags)
	}
	if !strings.Contains(tb.Note, "CPU that was never spent") || !strings.Contains(tb.Note, "Marked dut-saturated") {
		t.Errorf("note %q", tb.Note)
	}
	// The step from a level it carries to one it does not is marked as well.
	if v := tableValue(t, table(t, tables, "table-5.3"), 800, "Net increase"); v.Here.Mean.Known() && len(v.Flags) == 0 {
		t.Errorf("step %+v is not marked", v)
	}
	// One remark in many pairs does not make a limit.
	for i := range s.Cells {
		if c := &s.Cells[i]; c.DUT() == "coovachilli" && analysis.Number(c.Number(result.OfferedMbps)) == 400 {
			c.Flags = []analysis.Tally{{Text: result.FlagSaturated, Count: 2}}
		}
	}
	if v := tableValue(t, table(t, study1Outcome(s).Tables, "table-5.1"), 400, "CPU Chilli"); len(v.Flags) != 0 {
		t.Errorf("flags %q", v.Flags)
	}
}

func TestFirstRunWithRouterCounts(t *testing.T) {
	first := bandwidth(proportional, portal("coovachilli", 5))
	second := bandwidth(proportional, portal("coovachilli", 3), portal("opennds", 2))
	second.Mode = result.ModeSolo
	tb := table(t, study1Outcome(first, second).Tables, "table-5.1")
	checkNear(t, "of the run given first", tableValue(t, tb, 100, "Chilli Incr.").Here.Mean, 400, 15)
	for i, want := range map[int]string{2: "portal-bandwidth (run 1)", 6: "portal-bandwidth (run 2), solo"} {
		if tb.Columns[i].Run != want {
			t.Errorf("%s is of run %q, want %q", tb.Columns[i].Name, tb.Columns[i].Run, want)
		}
	}
}

func TestProfiles(t *testing.T) {
	bulk := bandwidthSpec(portal("coovachilli", 3))
	bulk.Profiles = []string{"bulk"}
	s := simulate("mine", bulk, proportional)
	if note := table(t, study1Outcome(s).Tables, "table-5.3").Note; !strings.Contains(note, "measured in profile bulk") {
		t.Errorf("note %q", note)
	}
	// Where a run has both, per-packet counts.
	both := bandwidth(proportional, portal("coovachilli", 5))
	both.Sweeps = append(slices.Clone(s.Sweeps), both.Sweeps...)
	both.Cells = append(slices.Clone(s.Cells), both.Cells...)
	checkNear(t, "of both profiles",
		tableValue(t, table(t, study1Outcome(both).Tables, "table-5.1"), 100, "Chilli Incr.").Here.Mean, 400, 15)
}
