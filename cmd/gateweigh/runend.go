package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/words"
)

// runEnd is how a run ended, and what its exit code depends on.
type runEnd struct {
	runner.Outcome
	exp    *experiment.Experiment
	dir    string
	strict bool
}

// code returns the error whose exit code tells how the run ended; nil is success. err is the run's own error, s its
// summary.
func (e runEnd) code(err error, s analysis.Summary) error {
	o, dir := e.Outcome, e.dir
	page := filepath.Join(dir, report.HTMLFile)
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("interrupted; finished trials are kept: continue with %s", resumeCommand(dir))
	case errors.Is(err, runner.ErrNothingRan):
		return &exitError{exitNothingRan, skipText(err, o)}
	case errors.Is(err, syscall.ENOSPC) && o.Started:
		return fmt.Errorf("%w; finished trials are kept: free some space, then continue with %s", err, resumeCommand(dir))
	case err != nil:
		return err
	case len(o.Failed) > 0:
		return withMissing(skipText(errors.New("not everything could be measured"), o), o, dir)
	case o.Accepted == 0:
		return &exitError{
			exitRejected, withMissing(fmt.Errorf("no trial was accepted%s: see %s", mainReason(s.Rejects), page), o, dir)}
	}
	if lost := lostBlocks(s); len(lost) > 0 {
		return &exitError{
			exitRejected, withMissing(fmt.Errorf("nothing was measured of %s: see %s", words.Listed(lost), page), o, dir)}
	}
	if empty := e.withoutFigure(s); len(empty) > 0 {
		var rejects analysis.Tallies
		var names []string
		for _, c := range empty {
			names = append(names, s.Dimensions.Label(c.Cell))
			for _, r := range c.Rejects {
				rejects.Add(r.Text, r.Count)
			}
		}
		return &exitError{exitRejected, withMissing(fmt.Errorf("%d of %s %s no figure or no interval (%s)%s: see %s",
			len(empty), words.Counted(len(s.Cells), "cell"), words.Either(len(empty), "has", "have"), words.Listed(names),
			mainReason(rejects.Sorted()), page), o, dir)}
	}
	if e.strict && float64(o.Missing) > maxMissing*float64(o.Planned) {
		return &exitError{exitRejected, withMissing(fmt.Errorf("--strict: %d of %s %s no accepted trial%s: see %s", o.Missing,
			words.Counted(o.Planned, "window"), words.Either(o.Missing, "has", "have"), mainReason(s.Rejects), page), o, dir)}
	}
	if e.strict && s.Noise != nil {
		return &exitError{exitRejected, fmt.Errorf("--strict: %s", s.Noise)}
	}
	return nil
}

// lostBlocks names, each once, the devices and loads whose blocks all failed, so that they have no trial.
func lostBlocks(s analysis.Summary) (names []string) {
	for _, f := range s.FailedBlocks {
		found := slices.ContainsFunc(s.Cells, func(c analysis.Cell) bool { return f.Covers(c.Cell) })
		name := fmt.Sprintf("%s (%s)", s.Dimensions.Label(f.Cell), result.OneLine(f.Error))
		if !f.AA && !f.Measured && !found && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// withoutFigure returns the cells without an accepted trial. In a run of several blocks it adds those with trials of
// one block only, because they have no interval.
func (e runEnd) withoutFigure(s analysis.Summary) (list []analysis.Cell) {
	for _, c := range s.Cells {
		if c.Pairs == 0 || e.exp.Blocks > 1 && s.Primary != "" && c.Blocks < 2 {
			list = append(list, c)
		}
	}
	return list
}

// mainReason returns a clause with the reason for which most trials were rejected; empty when none was.
func mainReason(rejects []analysis.Tally) string {
	if len(rejects) == 0 {
		return ""
	}
	return ", mostly because: " + rejects[0].Text
}

// withMissing adds to an error how many windows were not measured and the command that measures them.
func withMissing(err error, o runner.Outcome, dir string) error {
	if o.Open == 0 {
		return err
	}
	return fmt.Errorf("%w\n%s not measured; to measure what is missing: %s", err, words.Agreed(o.Open, "window was",
		"windows were"), resumeCommand(dir))
}

func skipText(err error, o runner.Outcome) error {
	for _, s := range append(o.Skipped, o.Failed...) {
		err = fmt.Errorf("%w\n  %s: %s", err, s.DUT, s.Reason)
	}
	return err
}
