package measure_test

import (
	"context"
	"fmt"
	"time"

	"github.com/gateweigh/gateweigh/internal/strict"
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
)

// idle is a measure that only tests have: the CPU time of a device's router while no client sends. It shows that a
// measure is added by one file like this one, and a line of the table of measures.
type idle struct{}

// idleMs is the dimension in which cells differ: the length of their windows, ms. It shows that a dimension is added by
// its name, and a line of the measure's list.
const idleMs result.Dimension = "idle_ms"

var idleDimensions = analysis.Dimensions{
	analysis.DUT, analysis.Clients,
	{Name: idleMs, Text: "length of a window", Heading: "Window", Short: "window ms", Unit: "ms",
		Words: func(v result.Value) string { return "idle for " + v.Text + " ms" }},
}

// windowLengths is the experiment's key for the lengths of windows.
var windowLengths = experiment.Key[[]float64]{
	Name: "idle_ms", Parse: experiment.List(strict.Within(100, 10_000, "milliseconds")), Default: []float64{200}}

func (idle) Rules() experiment.Measure {
	return experiment.Measure{
		Name: "idle", Keys: []experiment.Field{windowLengths.Field()},
		Uses: append([]string{"aa_blocks", "windows", "beside.client", "beside.clients"}, experiment.ClientKeys...),
		Why:  "no client sends",
		Settings: func(e *experiment.Experiment) (list []experiment.Setting) {
			for _, n := range e.Clients {
				s := experiment.Setting{Cell: result.NewCell(result.Clients, n)}
				for _, ms := range windowLengths.Value(e) {
					s.Cells = append(s.Cells, s.Cell.With(idleMs, ms))
				}
				list = append(list, s)
			}
			return list
		},
		Duration: func(_ *experiment.Experiment, g experiment.Group) time.Duration {
			return time.Duration(g.Blocks) * time.Second
		},
		Describe: func(*experiment.Experiment) experiment.Description {
			return experiment.Description{Block: "block", Doing: "send nothing"}
		},
	}
}

func (idle) Run() runner.Measure { return runner.Measure{Block: runIdleBlock} }

// idleTrial is a window of an idle pair, in a record of the measure's own kind.
type idleTrial struct {
	result.Head
	Cell   result.Cell `json:"cell"`
	AA     bool        `json:"aa"`
	Window int         `json:"window"`
	DUTLab string      `json:"dut_lab"`
	Device routerUse   `json:"device"`
	Clean  routerUse   `json:"clean"`
}

// routerUse is what one router used in a window.
type routerUse struct {
	Seconds   float64 `json:"seconds"`
	ProcessNs int64   `json:"process_ns"`
}

// idleFigures are the figures that blocks and trials of this measure have besides the common ones. Blocks of the
// measure "cost" have the same key with another type: each measure's records are read by its own types.
type idleFigures struct {
	Stretches string `json:"stretches"`
}

func (idle) Records() []result.Kind {
	return []result.Kind{{Name: "lull", New: func() any { return new(idleTrial) }},
		{Name: result.KindTrial, New: func() any { return new(idleFigures) }},
		{Name: result.KindBlock, New: func() any { return new(idleFigures) }}}
}

// spentBetween returns what a router used between two snapshots.
func spentBetween(a, b bench.Snapshot) routerUse {
	return routerUse{Seconds: float64(b.Router.MonotonicNs-a.Router.MonotonicNs) / 1e9,
		ProcessNs: bench.UsageOf(a.Router, b.Router).ProcessNs}
}

// Summarise computes the measure's only metric: CPU of the device's processes while the router forwards nothing.
func (idle) Summarise(run result.Run, opts analysis.Options) analysis.Summary {
	input := analysis.Input{
		Run: run, Measure: "idle", Dimensions: idleDimensions, Noun: "window", Load: []result.Dimension{idleMs},
		Metrics: []analysis.Metric{{
			Name: "process_core_pct", Unit: "% of a core", Better: analysis.Less, Against: analysis.AsDifference, Host: "router",
			Per: analysis.PerWindow, Both: true, Range: analysis.Amounts,
			Value: func(r analysis.MetricInput) float64 { return r.Get("process_ns") / 1e7 / r.Get("seconds") },
		}},
		Compare: func(a, b result.Cell) int { return result.CompareCells(a, b, result.DUT, result.Clients, idleMs) },
	}
	for _, r := range result.RecordsOf[idleTrial](run.MeasureRecords) {
		t := analysis.TrialOf(r.Head, r.Cell, r.Window, r.Device)
		t.AA, t.Clean = r.AA, result.ValuesOf(r.Clean)
		input.Trials = append(input.Trials, t)
	}
	return analysis.Summarise(input, opts)
}

// runIdleBlock measures all windows of one block, on a pair of labs: one with the device, one with a clean router.
func runIdleBlock(ctx context.Context, s *runner.Session, b experiment.Block) (*result.Block, error) {
	rec := &result.Block{Figures: &idleFigures{Stretches: "none"}}
	return rec, s.Labs(b).Pair(ctx, func(device, clean *bench.Bench) error {
		rec.SetupSeconds = device.Setup.Seconds()
		for _, cell := range b.Cells {
			for _, w := range s.Todo(b, cell) {
				if err := window(ctx, s, b, cell, w, device, clean); err != nil {
					return fmt.Errorf("window %d: %w", w+1, err)
				}
			}
		}
		return nil
	})
}

// window measures window w of a cell in both labs (the device's, the clean router's), and again while it is rejected.
// It writes a record of the kind "lull".
func window(ctx context.Context, s *runner.Session, b experiment.Block, cell result.Cell, w int,
	labs ...*bench.Bench) error {
	s.Status("%s: %g ms", s.Name(b), cell.Number(idleMs))
	return s.MeasureWindow(b, cell, w, "lull", func(runner.Attempt) (result.Record, []string, error) {
		read := func() ([]bench.Snapshot, error) {
			return bench.Each(labs, func(_ int, l *bench.Bench) (bench.Snapshot, error) { return l.ReadMeters(ctx) })
		}
		before, err := read()
		if err == nil {
			err = bench.Sleep(ctx, time.Duration(cell.Number(idleMs))*time.Millisecond)
		}
		if err != nil {
			return nil, nil, err
		}
		after, err := read()
		if err != nil {
			return nil, nil, err
		}
		rejects, err := labs[0].Judge(ctx, labs[0].Proof(ctx))
		return &idleTrial{
			Cell: cell, AA: b.AA, Window: w, DUTLab: b.DUTLab,
			Device: spentBetween(before[0], after[0]), Clean: spentBetween(before[1], after[1]),
		}, rejects, err
	})
}
