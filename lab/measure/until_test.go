package measure_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
)

// The tests of this file check the key until: a cell is measured block by block until its interval is narrow enough
// ("±4 %"). After some numbers of blocks (looks) the run decides which cells are exact enough. The tests use a measure
// of their own, "drawn", that needs no lab.

// drawn is a measure whose figures are random numbers. The seed is the block and the length of the device's name.
type drawn struct{}

// draw is the record of one window.
type draw struct {
	result.Head
	Cell   result.Cell `json:"cell"`
	Window int         `json:"window"`
	Value  float64     `json:"value"`
}

// spreads are the standard deviations of a device's values, as shares.
var spreads = map[string]float64{"steady": 0.01, "uneven": 0.065, "wild": 0.3}

// drawnFile is an experiment of the measure "drawn" with at most 20 blocks a device.
const drawnFile = `measure = "drawn"
duts = ["steady", "uneven", "wild"]
clients = [1]
windows = 1
blocks = 20
until = "±4 %"

[dut.steady]
daemon = ["sleep", "9"]
ready = "true"
[dut.uneven]
daemon = ["sleep", "9"]
ready = "true"
[dut.wild]
daemon = ["sleep", "9"]
ready = "true"
`

// drawnTable returns the table of measures with "drawn" in addition.
func drawnTable() measure.Table { return append(measure.All(), drawn{}) }

func (drawn) Rules() experiment.Measure {
	return experiment.Measure{
		Name: "drawn", Alone: true, Why: "nothing is measured",
		Uses: slices.Concat([]string{"windows"}, experiment.ClientKeys, experiment.UntilKeys),
		Settings: func(e *experiment.Experiment) []experiment.Setting {
			cell := result.NewCell(result.Clients, e.Clients[0])
			return []experiment.Setting{{Cell: cell, Cells: []result.Cell{cell}}}
		},
		Duration: func(_ *experiment.Experiment, g experiment.Group) time.Duration {
			return time.Duration(g.Blocks) * time.Second
		},
		Describe: func(*experiment.Experiment) experiment.Description { return experiment.Description{Block: "block"} },
	}
}

func (drawn) Records() []result.Kind {
	return []result.Kind{{Name: "draw", New: func() any { return new(draw) }}}
}

func (drawn) Run() runner.Measure {
	return runner.Measure{Block: func(ctx context.Context, s *runner.Session, b experiment.Block) (*result.Block, error) {
		s.Status("draw %d", b.Index)
		cell := b.Cells[0]
		for _, w := range s.Todo(b, cell) {
			err := s.MeasureWindow(b, cell, w, "draw", func(runner.Attempt) (result.Record, []string, error) {
				chance := rand.New(rand.NewPCG(uint64(b.Index), uint64(len(b.DUT())))).NormFloat64()
				return &draw{Cell: cell, Window: w, Value: 100 * (1 + spreads[b.DUT()]*chance)}, nil, ctx.Err()
			})
			if err != nil {
				return nil, err
			}
		}
		return &result.Block{}, nil
	}}
}

func (drawn) Summarise(run result.Run, opts analysis.Options) analysis.Summary {
	input := analysis.Input{
		Run: run, Measure: "drawn", Dimensions: analysis.Dimensions{analysis.DUT, analysis.Clients}, Noun: "window",
		Metrics: []analysis.Metric{{Name: "value", Better: analysis.More, Per: analysis.PerWindow,
			Range: analysis.Amounts, Value: analysis.Field("value")}},
		Compare: func(a, b result.Cell) int { return result.CompareCells(a, b, result.DUT) },
	}
	for _, r := range result.RecordsOf[draw](run.MeasureRecords) {
		input.Trials = append(input.Trials, analysis.TrialOf(r.Head, r.Cell, r.Window, r))
	}
	return analysis.Summarise(input, opts)
}

// drawnConfig returns the configuration of a run of drawnFile in folder dir.
func drawnConfig(t *testing.T, dir string) runner.Config {
	t.Helper()
	e, err := drawnTable().Catalogue().Parse("drawn.toml", []byte(drawnFile))
	if err != nil {
		t.Fatal(err)
	}
	m := drawnTable().Of(e)
	return runner.Config{Measure: m.Run(), Records: m.Records(), Experiment: e, Dir: dir, Widths: drawnTable().Widths}
}

// TestUntilExactEnough: each cell ends at the first look at which it is exact enough: "steady" after 10 blocks,
// "uneven" after 16, and "wild" never, after all 20. A resumed run keeps the looks that were taken before. Summary and
// table say how each cell ended.
func TestUntilExactEnough(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	config := drawnConfig(t, dir)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	config.Status = func(p runner.Progress) {
		if p.Text == "draw 12" {
			interrupt()
		}
	}
	if _, err := runner.Run(ctx, config); !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted: %v", err)
	}
	config.Status = nil
	out, err := runner.Run(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	const windows = 10 + 16 + 20
	if out.Planned != windows || out.Accepted != windows || out.Open != 0 {
		t.Errorf("%+v, want %d windows", out, windows)
	}
	run, err := drawnTable().ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := drawnTable().Summarise(run, analysis.Options{})
	if len(run.MeasureRecords) != windows || run.Unrecorded != 0 || !slices.Equal(s.Until.Looks, []int{10, 16, 20}) {
		t.Errorf("%d records, %d missing, looks %v", len(run.MeasureRecords), run.Unrecorded, s.Until.Looks)
	}
	for i, want := range []analysis.Ended{{Blocks: 10}, {Blocks: 16}, {Blocks: 20, Bound: result.BoundBlocks}} {
		end := s.Cells[i].Ended
		if end == nil || end.Blocks != want.Blocks || end.Bound != want.Bound || s.Cells[i].Blocks < want.Blocks ||
			end.Exact() != (end.WidthPct <= 4) {
			t.Errorf("%s of %d blocks ended as %+v, want %+v", s.Cells[i].DUT(), s.Cells[i].Blocks, end, want)
		}
	}
	var text strings.Builder
	if err := report.Terminal(&text, s, 0); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"95 % intervals",
		"Measured until ±4 %: 2 of 3 cells are exact enough, 1 had all blocks before. Looked at after 10, 16 and 20 blocks",
		"  wild, 1 client: all blocks were measured at ±"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, text.String())
		}
	}
}

// TestUntilTheTimeIsOver: a run whose time (AtMost) is over ends after the first window, without an error. A resume
// measures nothing.
func TestUntilTheTimeIsOver(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	for range 2 {
		config := drawnConfig(t, dir)
		config.Experiment.AtMost = time.Nanosecond
		out, err := runner.Run(t.Context(), config)
		if err != nil || out.Planned != 1 || out.Accepted != 1 || out.Open != 0 {
			t.Errorf("%+v, %v: want the first window alone", out, err)
		}
	}
	env, err := result.ReadEnvironment(filepath.Join(dir, result.EnvironmentFile))
	if err != nil || env.Interrupted || len(env.Until.Looks) != 1 || env.Until.Looks[0].Bound != result.BoundTime {
		t.Errorf("%+v, %v: want one look, by the time", env.Until, err)
	}
}

// TestUntilIsRefused: measures whose cells cannot end one by one refuse the rule, with key, line and reason.
func TestUntilIsRefused(t *testing.T) {
	for name, reason := range map[string]string{
		"capture":    "one generator sends frames, and nobody logs in or compares with a clean router",
		"transition": "its figures are times of single packets, and no second lab stands beside the device's",
		"failover":   "clients send little, and no clean router stands beside the device",
	} {
		for n, line := range []string{`until = "±2 %"`, `at_most = "30m"`} {
			_, err := measure.All().Catalogue().Parse("x.toml", []byte("measure = \""+name+"\"\nblocks = 20\n"+line+"\n"))
			key := experiment.UntilKeys[n]
			want := "x.toml:3: " + key + ": has no meaning with measure = \"" + name + "\": " + reason
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s with %s: %v, want %s", name, key, err, want)
			}
		}
	}
}

// TestUntilIsTakenOrRefused: all measures have the keys until and at_most, except those that say why not.
func TestUntilIsTakenOrRefused(t *testing.T) {
	for _, m := range measure.All().Catalogue().Measures {
		takes := slices.Contains(m.Uses, "until")
		refuses := slices.Contains([]string{"capture", "transition", "failover", "roaming"}, m.Name)
		if takes == refuses || slices.Contains(m.Uses, "at_most") != takes {
			t.Errorf("%s: takes until: %v", m.Name, takes)
		}
	}
}
