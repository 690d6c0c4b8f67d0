package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
)

func reportCommand() *cobra.Command {
	var asJSON bool
	var out string
	var with []string
	cmd := &cobra.Command{
		Use:   "report RUN | BUNDLE",
		Short: "Rebuild summary, CSV and report of a run from its trials",
		Long: "Rebuild summary, CSV and report of a run from its trials. A bundle is verified and\n" +
			"unpacked into a run folder of the same name beside it. Of a run under several kernels\n" +
			"the reports of all are rebuilt, without -o and --with.",
		Example: "  gateweigh report runs/20260101T120000Z-quick\n  gateweigh report quick.tar.gz -o quick",
		Args:    usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "-" || strings.HasSuffix(out, ".html") || strings.HasSuffix(out, result.BundleSuffix) {
				return &exitError{exitUsage, fmt.Errorf("-o %s: report writes several files and wants a folder", out)}
			}
			plan, several, err := readKernelsPlan(args[0])
			if err == nil && several && (out != "" || len(with) > 0) {
				err = oneRun(args[0])
			}
			if err != nil {
				return err
			}
			if several {
				return reportKernels(filepath.Clean(args[0]), plan, asJSON)
			}
			opts := report.Options{Dir: out}
			if len(with) > 0 {
				if opts.With, err = companions(cmd.Context(), append(args, with...)); err != nil {
					return err
				}
			}
			return reportRun(cmd.Context(), args[0], opts, asJSON)
		},
	}
	cmd.Flags().VarP((*pathFlag)(&out), "out", "o",
		"folder to write into (default the run's; for a bundle, its name without "+result.BundleSuffix+")")
	cmd.Flags().StringArrayVar(
		&with, "with", nil, "another `RUN` for the comparison with published studies; may be repeated")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print summary.json instead of the table")
	return cmd
}

// companions returns the summaries of the runs names[1:]. Together with the first run they are compared with published
// studies, which may have measured more devices or loads than one run has. Runs whose figures cannot stand in one table
// with those of the first are refused.
func companions(ctx context.Context, names []string) (all []analysis.Summary, err error) {
	for i, name := range names {
		if i > 0 && sameFile(name, names[0]) {
			return nil, &exitError{exitUsage, fmt.Errorf("--with %s: that is the run itself", name)}
		}
		run, forget, err := openOneRun(ctx, name)
		forget()
		if err != nil {
			return nil, err
		}
		all = append(all, measure.Summarise(run, analysis.Options{}))
		if all[i].Sides != nil {
			return nil, &exitError{exitUsage, fmt.Errorf(
				"--with compares runs with published studies, and the labs of %s differ in more than the device: its ratios are "+
					"of no study", name)}
		}
		if all[i].Speed() != all[0].Speed() {
			return nil, &exitError{exitUsage, fmt.Errorf(
				"--with %s: its routers had %g of their CPU, and those of %s %g: such figures do not go into one table", name,
				all[i].Speed(), names[0], all[0].Speed())}
		}
		if mark := cmp.Or(all[0].Mark, all[i].Mark); i > 0 && mark != "" {
			return nil, &exitError{
				exitUsage, fmt.Errorf("--with %s: %s: these figures cannot stand in one table with another run's", name, mark)}
		}
		if measure := all[0].Measure; all[i].Measure != measure {
			return nil, &exitError{
				exitUsage, fmt.Errorf("--with %s: it measures %s, and %s measures %s", name, all[i].Measure, names[0], measure)}
		}
	}
	return all[1:], nil
}

// reportRun rebuilds the report of a run folder or of a bundle, which it unpacks into a run folder first. It prints the
// table even when the files cannot be written.
func reportRun(ctx context.Context, name string, opts report.Options, asJSON bool) error {
	info, err := os.Stat(name)
	if err != nil { // result.Open has the message that all commands give
		_, forget, err := result.Open(ctx, name)
		forget()
		return err
	}
	dir := name
	switch {
	case !info.IsDir():
		if dir = opts.Dir; dir == "" {
			dir = unpackedName(name)
		}
		opts.Dir = ""
		if err := result.UnpackBundle(ctx, name, dir); err != nil {
			return err
		}
	case opts.Dir != "" && holdsAnotherRun(opts.Dir, name):
		return &exitError{exitUsage, fmt.Errorf("%s holds another run: choose another folder with -o", opts.Dir)}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	summary, err := rebuildReport(dir, opts)
	if err != nil {
		return withoutFiles(summary, err, asJSON)
	}
	return printSummary(stdout, cmp.Or(opts.Dir, dir), summary, asJSON)
}

// rebuildReport writes a run's report with little memory. The heap may grow to one and a half times what is in use
// instead of twice. A report of 10,000 blocks then needs 470 MiB instead of 600, for a fifth more CPU time.
func rebuildReport(dir string, opts report.Options) (analysis.Summary, error) {
	defer debug.SetGCPercent(debug.SetGCPercent(50))
	return report.WriteWith(dir, opts)
}

// withoutFiles prints a summary whose files could not be written, and returns an error that says so.
func withoutFiles(s analysis.Summary, err error, asJSON bool) error {
	if s.Version == 0 { // the run could not even be read
		return err
	}
	return errors.Join(printTable(stdout, s, asJSON),
		fmt.Errorf("the figures above are complete, but their files are not written: %w; choose another folder with "+
			"gateweigh report RUN -o DIR", err))
}

// unpackedName returns the folder that a bundle is unpacked into: its path without the suffix.
func unpackedName(bundle string) string {
	for _, suffix := range []string{result.BundleSuffix, ".tgz"} {
		if name, cut := strings.CutSuffix(bundle, suffix); cut && filepath.Base(bundle) != suffix {
			return name
		}
	}
	return bundle + ".run"
}

// holdsAnotherRun reports whether dir is the folder of a run other than run.
func holdsAnotherRun(dir, run string) bool {
	if sameFile(dir, run) {
		return false
	}
	for _, name := range []string{result.TrialsFile, result.EnvironmentFile} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	return false
}

// sameFile reports whether two paths lead to the same existing file or folder.
func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}
