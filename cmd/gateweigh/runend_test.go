package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
)

// TestExitCodeOfRun: a run that measured what it was asked for exits with 0, even on a noisy machine. With --strict it
// fails when windows are missing or the machine was noisy. A run that lacks a figure says which and why.
func TestExitCodeOfRun(t *testing.T) {
	// A cell has no interval with fewer than 2 pairs of trials.
	cell := func(pairs, blocks int) analysis.Cell {
		c := analysis.Cell{
			Cell: result.NewCell(result.DUT, "allowlist", result.OfferedMbps, 100), Pairs: pairs, Blocks: blocks}
		if pairs < 2 {
			c.Rejects = []analysis.Tally{{Text: "clean router: delivered 12.0 of 100 Mbit/s, limit 98 %", Count: 3}}
		}
		return c
	}
	noise := &analysis.Noise{StealPct: 9, Windows: 4}
	for name, c := range map[string]struct {
		outcome runner.Outcome
		cells   []analysis.Cell
		noise   *analysis.Noise
		failed  []analysis.FailedBlock
		strict  bool
		code    int
		says    string
	}{
		"all there": {
			outcome: runner.Outcome{Planned: 8, Accepted: 8}, cells: []analysis.Cell{cell(4, 4), cell(4, 4)}},
		"half the windows are missing": {
			outcome: runner.Outcome{Planned: 8, Accepted: 4, Missing: 4}, cells: []analysis.Cell{cell(2, 2), cell(2, 2)}},
		"the same for CI": {
			outcome: runner.Outcome{Planned: 8, Accepted: 4, Missing: 4}, cells: []analysis.Cell{cell(2, 2)}, strict: true,
			code: exitRejected, says: "4 of 8 windows have no accepted trial"},
		"noisy": {outcome: runner.Outcome{Planned: 8, Accepted: 8}, cells: []analysis.Cell{cell(4, 4)}, noise: noise},
		"noisy, for CI": {
			outcome: runner.Outcome{Planned: 8, Accepted: 8}, cells: []analysis.Cell{cell(4, 4)}, noise: noise, strict: true,
			code: exitRejected, says: "--strict: noisy: a neighbour took 9 %"},
		"a cell without a trial": {
			outcome: runner.Outcome{Planned: 8, Accepted: 4, Missing: 4}, cells: []analysis.Cell{cell(4, 4), cell(0, 0)},
			code: exitRejected,
			says: "1 of 2 cells has no figure or no interval (allowlist, 100 Mbit/s), mostly because: clean router: delivered " +
				"12.0"},
		"a cell without an interval": {
			outcome: runner.Outcome{Planned: 8, Accepted: 5, Missing: 3}, cells: []analysis.Cell{cell(4, 4), cell(1, 1)},
			code: exitRejected, says: "1 of 2 cells has no figure"},
		"blocks of a direction failed": {
			outcome: runner.Outcome{Planned: 8, Accepted: 4, Missing: 4}, cells: []analysis.Cell{cell(4, 4)},
			failed: []analysis.FailedBlock{{Cell: result.NewCell(result.DUT, "opennds"), Error: "it ended"}},
			code:   exitRejected, says: "nothing was measured of opennds (it ended)"},
		"an A/A block failed": {outcome: runner.Outcome{Planned: 8, Accepted: 8}, cells: []analysis.Cell{cell(4, 4)},
			failed: []analysis.FailedBlock{{Cell: result.NewCell(result.DUT, "clean"), AA: true, Error: "it ended"}}},
		"nothing": {outcome: runner.Outcome{Planned: 8, Missing: 8}, cells: []analysis.Cell{cell(0, 0)}, code: exitRejected,
			says: "no trial was accepted"},
	} {
		t.Run(name, func(t *testing.T) {
			s := analysis.Summary{Primary: "cpu_ns_per_bit", Cells: c.cells, Noise: c.noise, FailedBlocks: c.failed,
				Dimensions: analysis.Dimensions{analysis.DUT, analysis.OfferedMbps}}
			err := runEnd{c.outcome, &experiment.Experiment{Blocks: 4}, "runs/x", c.strict}.code(nil, s)
			var coded *exitError
			switch {
			case c.code == 0 && err != nil:
				t.Errorf("ends with %v", err)
			case c.code != 0 && (!errors.As(err, &coded) || coded.code != c.code || !strings.Contains(err.Error(), c.says)):
				t.Errorf("ends with %v, want code %d and %q", err, c.code, c.says)
			}
		})
	}
}
