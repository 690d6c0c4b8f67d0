package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/compare"
	"github.com/gateweigh/gateweigh/lab/report"
)

type compareFlags struct {
	maxRegression, maxOverhead percent
	delta, confidence          percent
	allowUnknown, strict, json bool
	junit, markdown            string
}

func compareCommand() *cobra.Command {
	defaults := compare.Defaults()
	flags := compareFlags{
		delta:      percent{share: defaults.Delta, given: true, above: 0, below: 1},
		confidence: percent{share: defaults.Confidence, given: true, above: 0.5, below: 1},
	}
	cmd := &cobra.Command{
		Use:   "compare RUN_A RUN_B | compare --max-overhead 5% RUN",
		Short: "Compare two runs cell by cell, or a run with limits",
		Long: "Compare two runs cell by cell: does a device cost more in B than in A? With a limit it is a gate for CI:\n" +
			"exit code 0 when every cell is within the limit, 1 when one is beyond it with confidence or a device does not\n" +
			"manage in B what it did in A, and 5 when no cell is beyond it and some have no answer (see --allow-unknown).\n" +
			"Runs are run folders or bundles.",
		Example: "  gateweigh compare runs/before runs/after\n" +
			"  gateweigh compare --max-regression 5% --junit gate.xml base.tar.gz runs/after\n" +
			"  gateweigh compare --max-overhead 20% runs/after",
		Args: usage(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error { return compareRuns(cmd.Context(), args, flags) },
	}
	f := cmd.Flags()
	f.Var(&flags.maxRegression, "max-regression", "gate: how much more than A a cell of B may cost, such as 5%")
	f.Var(&flags.maxOverhead, "max-overhead", "gate: how much more than a clean router a cell of B may cost, such as 5%")
	f.BoolVar(&flags.allowUnknown, "allow-unknown", false,
		"the gate also passes with cells without an answer, if one cell is within the limit")
	f.BoolVar(&flags.strict, "strict", false, "") // of older versions: check says what to use instead
	_ = f.MarkHidden("strict")
	f.Var(&flags.delta, "delta", "largest change that does not matter")
	f.Var(&flags.confidence, "confidence", "confidence of intervals and verdicts")
	f.StringVar(&flags.junit, "junit", "", "write the gate's decisions as JUnit XML to `FILE`")
	f.StringVar(&flags.markdown, "markdown", "",
		"write the comparison as Markdown to `FILE`; - is standard output, in place of the table")
	f.BoolVar(&flags.json, "json", false, "print the comparison as JSON instead of the table")
	return cmd
}

// compareRuns compares the runs that args name, one or two, and prints the outcome. A gate that did not pass is an
// error with its exit code.
func compareRuns(ctx context.Context, args []string, flags compareFlags) error {
	if err := flags.check(args); err != nil {
		return &exitError{exitUsage, err}
	}
	var inputs []compare.Input
	for _, name := range args {
		run, forget, err := openOneRun(ctx, name)
		defer forget()
		if err != nil {
			return err
		}
		inputs = append(inputs, compare.Input{Name: name, Run: run})
	}
	var c compare.Comparison
	if len(inputs) == 1 {
		c = compare.Single(inputs[0], flags.options())
	} else {
		c = compare.Runs(inputs[0], inputs[1], flags.options())
	}
	if err := flags.print(c); err != nil {
		return err
	}
	switch {
	case c.Gate != nil && c.Gate.Unanswered:
		return &exitError{exitUnanswered, errors.New(c.Gate.Sentence)}
	case c.Gate != nil && !c.Gate.Passed:
		return &exitError{exitFailed, errors.New(c.Gate.Sentence)}
	case c.Gate == nil && len(c.Cells) == 0:
		return &exitError{exitFailed, errors.New("no cell is in both runs: there is nothing to compare")}
	}
	return nil
}

func (f compareFlags) check(args []string) error {
	gate := f.maxRegression.given || f.maxOverhead.given
	switch {
	case f.strict:
		return errors.New(
			"--strict is what a gate does by itself now: without enough answers it fails (exit code 5). Leave it out; " +
				"--allow-unknown is the opposite")
	case len(args) == 1 && f.maxRegression.given:
		return errors.New("--max-regression compares two runs: give RUN_A and RUN_B")
	case len(args) == 1 && !f.maxOverhead.given:
		return errors.New("one run alone is held against --max-overhead: give that limit, or a second run")
	case f.allowUnknown && !gate, f.junit != "" && !gate:
		return errors.New("--allow-unknown and --junit are about a gate: give --max-regression or --max-overhead")
	case f.junit == "-":
		return errors.New("--junit wants a file")
	case f.junit != "" && f.junit == f.markdown:
		return errors.New("--junit and --markdown name the same file: give each its own")
	case f.json && f.markdown == "-":
		return errors.New("--json and --markdown - would both be standard output: give --markdown a file")
	}
	return nil
}

func (f compareFlags) options() compare.Options {
	return compare.Options{
		Delta: f.delta.share, Confidence: f.confidence.share, AllowUnknown: f.allowUnknown,
		MaxRegression: f.maxRegression.number(), MaxOverhead: f.maxOverhead.number(),
	}
}

// number returns the flag's share, or an absent number where the flag was not given.
func (p percent) number() analysis.Number {
	if !p.given {
		return analysis.Absent()
	}
	return analysis.Number(p.share)
}

// print writes the comparison in every form that flags name.
func (f compareFlags) print(c compare.Comparison) error {
	show := compare.Text
	switch {
	case f.json:
		show = func(w io.Writer, c compare.Comparison) error { return report.JSON(w, c) }
	case f.markdown == "-":
		show = compare.Markdown
	}
	shown := show(stdout, c)
	for _, file := range []struct {
		name  string
		write func(io.Writer, compare.Comparison) error
	}{{f.junit, compare.JUnit}, {f.markdown, compare.Markdown}} {
		if file.name == "" || file.name == "-" {
			continue
		}
		var b bytes.Buffer
		if err := file.write(&b, c); err != nil {
			return err
		}
		if err := os.WriteFile(file.name, b.Bytes(), 0o644); err != nil {
			return errors.Join(shown, fmt.Errorf("write the comparison: %w", err))
		}
	}
	return shown
}
