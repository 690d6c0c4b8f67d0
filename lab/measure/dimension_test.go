package measure_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/compare"
	"github.com/gateweigh/gateweigh/lab/measure/logins"
	"github.com/gateweigh/gateweigh/lab/measure/throughput"
	"github.com/gateweigh/gateweigh/lab/measure/transfer"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
)

// The tests of this file use the measure "idle" of idle_test.go. It has a dimension of its own, idle_ms, records of its
// own kind ("lull", type idleTrial) and figures of its own (idleFigures). tableWithIdle is the table of measures with
// it.

// TestDimensionOfItsOwn: a dimension that only its measure names gets from the records into summary, labels, CSV,
// terminal, page and comparison, none of which names it in its code.
func TestDimensionOfItsOwn(t *testing.T) {
	dir := t.TempDir()
	writeLulls(t, dir)
	run, err := tableWithIdle().ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := tableWithIdle().Summarise(run, analysis.Options{})
	if len(s.Cells) != 2 {
		t.Fatalf("%d cells, want 2", len(s.Cells))
	}
	if label := s.Dimensions.Label(s.Cells[0].Cell); label != "daemon, 2 clients, idle for 100 ms" {
		t.Errorf("the first cell is called %q", label)
	}
	input, opts := compare.Input{Name: "a", Run: run}, compare.Defaults()
	opts.Measures = tableWithIdle()
	var csv, terminal, page, compared bytes.Buffer
	if err := errors.Join(report.CSV(&csv, s), report.Terminal(&terminal, s, 0), report.HTML(&page, run, s),
		compare.Text(&compared, compare.Runs(input, input, opts))); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		text  string
		parts []string
	}{
		"CSV":      {csv.String(), []string{"dut,clients,idle_ms,", "daemon,2,100,", "daemon,2,300,"}},
		"terminal": {terminal.String(), []string{"window ms", "100", "300"}},
		"page": {page.String(), []string{`data-field="dimensions.idle_ms">Window <small>ms</small>`,
			`data-cell="dut=daemon clients=2 idle_ms=300"`}},
		"comparison": {compared.String(), []string{"idle for 100 ms", "idle for 300 ms"}},
	} {
		for _, part := range want.parts {
			if !strings.Contains(want.text, part) {
				t.Errorf("%s lacks %q:\n%s", name, part, want.text)
			}
		}
	}
}

// TestFiguresOfItsOwn: trials and blocks are read with the figures of the measure that the run names, although the
// measure "cost" has other figures for the same kinds of record. Comparing such runs does not fail.
func TestFiguresOfItsOwn(t *testing.T) {
	dir := t.TempDir()
	writeLulls(t, dir)
	w, _, err := result.OpenWriter(dir)
	if err != nil {
		t.Fatal(err)
	}
	cell := result.NewCell(result.DUT, "daemon", result.Clients, 2, idleMs, 100)
	if err := errors.Join(w.AppendTrial(result.Trial{Cell: cell, Accepted: true, Figures: &idleFigures{"trial"}}),
		w.AppendBlock(result.Block{DUT: "daemon", Figures: &idleFigures{"block"}}), w.Close()); err != nil {
		t.Fatal(err)
	}
	run, err := tableWithIdle().ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	for want, figures := range map[string]any{"trial": run.Trials[0].Figures, "block": run.Blocks[0].Figures} {
		if own, is := figures.(*idleFigures); !is || own.Stretches != want {
			t.Errorf("figures of a %s: %#v", want, figures)
		}
	}
	opts := compare.Defaults()
	opts.Measures = tableWithIdle()
	compare.Runs(compare.Input{Name: "a", Run: run}, compare.Input{Name: "b", Run: run}, opts)
}

// TestNewDimensionOfOldRecords: records of early measures have a key for each dimension, such as "clients". With a new
// dimension ("uplinks") they have the whole cell in a further key, "cell". Without it they have no such key.
func TestNewDimensionOfOldRecords(t *testing.T) {
	type recorded interface {
		result.Record
		SetCell(result.Cell)
		Cell() result.Cell
	}
	for kind, r := range map[string]struct {
		cell  result.Cell
		make  func() recorded
		kinds []result.Kind
	}{
		logins.KindStorm: {result.NewCell(result.DUT, "daemon", result.Clients, 2, logins.LoginRate, 5),
			func() recorded { return &logins.Storm{} }, logins.Measure{}.Records()},
		throughput.KindSearch: {result.NewCell(result.DUT, "daemon", result.Clients, 2, result.Direction, result.Up,
			result.Profile, result.Bulk, result.FrameSize, "64"), func() recorded { return &throughput.Search{} },
			throughput.Measure{}.Records()},
		transfer.KindTransfer: {result.NewCell(result.DUT, "daemon", result.Clients, 2, transfer.RouterSpeed, 0.5),
			func() recorded { return &transfer.Transfer{} }, transfer.Measure{}.Records()},
	} {
		for name, cell := range map[string]result.Cell{"old": r.cell, "new": r.cell.With("uplinks", 2)} {
			record := r.make()
			record.SetCell(cell)
			head := result.HeadOf(record)
			head.Version, head.Kind = result.Version, kind
			text, err := json.Marshal(record)
			if err != nil {
				t.Fatal(err)
			}
			got, err := result.ReadRecords(bytes.NewReader(append(text, '\n')), "f", r.kinds...)
			if err != nil || len(got.MeasureRecords) != 1 || got.MeasureRecords[0].Cell != cell ||
				got.MeasureRecords[0].Record.(recorded).Cell() != cell {
				t.Errorf("%s of the %s cell: %+v, %v", kind, name, got.MeasureRecords, err)
			}
			if bytes.Contains(text, []byte(`"cell"`)) != (name == "new") {
				t.Errorf("%s of the %s cell: %s", kind, name, text)
			}
		}
	}
}

// writeLulls writes a run of the measure "idle" into dir: two blocks, each with a window of 100 ms and one of 300 ms.
func writeLulls(t *testing.T, dir string) {
	t.Helper()
	if err := result.WriteEnvironment(dir, result.Environment{Measure: "idle", Mode: result.ModeDuet}); err != nil {
		t.Fatal(err)
	}
	w, _, err := result.OpenWriter(dir)
	if err != nil {
		t.Fatal(err)
	}
	for block := range 2 {
		for _, ms := range []float64{100, 300} {
			r := idleTrial{
				Head:   result.Head{Block: block, Start: time.Unix(int64(block), 0), Seconds: 1, Accepted: true},
				Cell:   result.NewCell(result.DUT, "daemon", result.Clients, 2, idleMs, ms),
				Device: routerUse{Seconds: ms / 1e3, ProcessNs: int64(1e6 * ms / (1 + float64(block)))},
				Clean:  routerUse{Seconds: ms / 1e3},
			}
			if err := w.Append("lull", &r); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}
