package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/archive"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/trend"
)

type trendFlags struct {
	trend.Options
	runs, html string
	csv, json  bool
}

func trendCommand() *cobra.Command {
	var flags trendFlags
	cmd := &cobra.Command{
		Use:   "trend EXPERIMENT | RUN…",
		Short: "Follow a figure over many runs of one experiment",
		Long: "Shows the course of a figure over all runs of an experiment in a folder (--runs), or over runs that are\n" +
			"named: run folders, bundles, or folders of runs. Runs of another machine, kernel or mode are set apart.\n" +
			"What differs between a run and the one before it is listed.",
		Example: "  gateweigh trend quick\n  gateweigh trend runs/before runs/after base.tar.gz --html course.html\n" +
			"  gateweigh trend quick --metric rtt_p99_us --by version --csv",
		Args: usage(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return followRuns(cmd.Context(), args, flags) },
	}
	f := cmd.Flags()
	f.Var((*pathFlag)(&flags.runs), "runs", "folder that the runs of an EXPERIMENT are in (default "+runsFolder+")")
	f.StringVar(&flags.Metric, "metric", "", "the figure, by its `NAME` (default the one that verdicts are on)")
	f.StringArrayVar(&flags.Devices, "device", nil, "a `DEVICE` to show (default all); may be repeated")
	f.StringVar(&flags.By, "by", trend.ByDate, "what runs are called on the axis: date, or version of gateweigh")
	f.Var((*pathFlag)(&flags.html), "html", "write the course as a page to `FILE`")
	f.BoolVar(&flags.csv, "csv", false, "print CSV instead of the table")
	f.BoolVar(&flags.json, "json", false, "print JSON instead of the table")
	return cmd
}

// followRuns prints the course of a figure over the runs that args name. A run that cannot be read is left out, with
// its reason.
func followRuns(ctx context.Context, args []string, flags trendFlags) error {
	if flags.csv && flags.json {
		return &exitError{exitUsage, errors.New("--csv and --json would both be standard output: give one")}
	}
	var digests []trend.Digest
	left := []trend.Left{}
	names, experiment, err := runsOf(args, flags)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	for _, name := range names {
		run, forget, err := measure.Open(ctx, name)
		defer forget()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			left = append(left, trend.Left{Name: name, Reason: err.Error()})
			continue
		}
		digests = append(digests, trend.DigestOf(name, run, measure.Summarise(run, analysis.Options{})))
	}
	if len(digests) == 0 && len(left) > 0 {
		return fmt.Errorf("no run can be read: %s", left[0].Reason)
	}
	if err := oneExperiment(digests, experiment); err != nil {
		return &exitError{exitUsage, err}
	}
	t, err := trend.TrendOf(digests, flags.Options)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	t.LeftOut = append(t.LeftOut, left...)
	return flags.print(&t)
}

// print writes the course in every form that flags name.
func (f trendFlags) print(t *trend.Trend) error {
	show := t.Text
	switch {
	case f.json:
		show = func(w io.Writer) error { return report.JSON(w, t) }
	case f.csv:
		show = t.CSV
	}
	if err := show(stdout); err != nil || f.html == "" {
		return err
	}
	var page bytes.Buffer
	if err := t.HTML(&page, nil, func(string) string { return "" }); err != nil {
		return err
	}
	if err := os.WriteFile(f.html, page.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the course: %w", err)
	}
	return nil
}

// runsOf returns the folders and bundles of the runs that the arguments name. A single argument that is no file is the
// name of an experiment: then all its runs in the folder of --runs are meant, and experiment is that name.
func runsOf(args []string, flags trendFlags) (names []string, experiment string, err error) {
	if len(args) == 1 && !strings.ContainsRune(args[0], filepath.Separator) {
		if _, err := os.Stat(args[0]); err != nil {
			experiment, names = args[0], []string{}
		}
	}
	if experiment == "" {
		if flags.runs != "" {
			return nil, "", errors.New("--runs is where the runs of an EXPERIMENT are: these were named themselves")
		}
		for _, name := range args {
			more, err := runsIn(name)
			if err != nil {
				return nil, "", err
			}
			names = append(names, more...)
		}
		return names, "", nil
	}
	dir := runsFolder
	if flags.runs != "" {
		dir = flags.runs
	}
	entries, err := archived(dir)
	if err != nil {
		return nil, "", fmt.Errorf("runs of %s: %w", experiment, err)
	}
	var others []string
	for _, e := range entries {
		if e.Environment.Experiment == experiment {
			names = append(names, e.Dir)
		} else if !slices.Contains(others, e.Environment.Experiment) && e.Environment.Experiment != "" {
			others = append(others, e.Environment.Experiment)
		}
	}
	if len(names) == 0 {
		slices.Sort(others)
		return nil, "", fmt.Errorf("%s has no run of an experiment %q, and nothing else is called so; its runs are of: %s",
			dir, experiment, strings.Join(others, ", "))
	}
	return names, experiment, nil
}

// archived lists the runs in a folder of runs.
func archived(dir string) ([]archive.Entry, error) {
	a, err := archive.Open(dir)
	if err != nil {
		return nil, err
	}
	return a.Look()
}

// runsIn returns the runs in a folder of runs. For the folder of a run, or a bundle, it returns that alone.
func runsIn(name string) (names []string, err error) {
	info, err := os.Stat(name)
	if err != nil || !info.IsDir() || isFile(filepath.Join(name, result.TrialsFile)) ||
		isFile(filepath.Join(name, result.EnvironmentFile)) {
		return []string{name}, nil // where it cannot be read, measure.Open says why
	}
	entries, err := archived(name)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		names = append(names, e.Dir)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s holds no run", name)
	}
	return names, nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// oneExperiment refuses runs of several experiments, unless the user named one (named).
func oneExperiment(digests []trend.Digest, named string) error {
	var names []string
	for _, d := range digests {
		if !slices.Contains(names, d.Summary.Experiment) {
			names = append(names, d.Summary.Experiment)
		}
	}
	if named != "" || len(names) < 2 {
		return nil
	}
	slices.Sort(names)
	return fmt.Errorf("these are runs of several experiments (%s): a figure is followed over runs of one; name it: "+
		"gateweigh trend EXPERIMENT --runs FOLDER", strings.Join(names, ", "))
}
