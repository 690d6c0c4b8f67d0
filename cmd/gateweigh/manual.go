package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/manual"
)

//go:generate go run . manual --markdown ../../docs/reference/commands.md

// book is the content of the man pages, the completion scripts and the reference page of commands.
func book(root *cobra.Command) manual.Book {
	return manual.Book{
		Root: root, Section: 1, Title: "Gateweigh", Version: version,
		Exit:        exitStatus(),
		Environment: environment,
		Files:       files,
		Others:      []*cobra.Command{agentProgram()},
		SeeAlso:     []string{"gatewayd(8)"},
	}
}

func exitStatus() []manual.Entry {
	status := func(code int, text string, commands ...string) manual.Entry { // without commands: of all
		return manual.Entry{Name: strconv.Itoa(code), Text: text, Commands: commands}
	}
	return []manual.Entry{
		status(exitFailed, "something did not work"),
		status(exitFailed, "a cell is beyond its limit, or a device does not manage in B what it did in A", "compare"),
		status(exitUsage, "bad command line or experiment file"),
		status(exitNothingRan, "no device can run here", "run", "doctor", "kernel check"),
		status(exitRejected, "a cell has no figure or no interval, and the last line says why; with `--strict` also: the "+
			"run was noisy, or more than a fifth of the windows are missing. A noisy run that has its answer exits with 0",
			"run"),
		status(exitUnanswered, "no cell is beyond the limit, and some have no answer", "compare"),
	}
}

var environment = []manual.Entry{
	{Name: "XDG_CACHE_HOME", Text: "the folder below which fetched kernels are, ~/.cache without it",
		Commands: []string{"run", "kernel", "kernel list", "kernel fetch", "kernel check", "kernel exec", "kernel remove"}},
	{Name: "SHELL", Text: "the shell that is opened in the lab, /bin/sh without it", Commands: []string{"shell"}},
	{Name: "SOURCE_DATE_EPOCH", Text: "the date of the man pages, seconds since 1970; without it they have none",
		Commands: []string{"manual"}},
}

var files = []manual.Entry{
	{Name: "runs/<UTC>-<experiment>/", Text: "a run's folder: report.html is the report, summary.json and summary.csv " +
		"its figures, trials.jsonl, environment.json and experiment.toml what they are computed from",
		Commands: []string{"run", "report", "bundle", "compare", "explain"}},
	{Name: "~/.cache/gateweigh/kernels/", Text: "kernels that were fetched",
		Commands: []string{"run", "kernel", "kernel list", "kernel fetch", "kernel check", "kernel exec", "kernel remove"}},
}

// agentProgram describes gateweigh-agent for its man page. That program parses its flags without cobra, to be small, so
// it has no command to describe itself by.
func agentProgram() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gateweigh-agent",
		Short: "The agent of gateweigh's lab alone, for boxes that are measured",
		Long: "An agent does a lab's work on one of its hosts. It is one static program without the lab, and the same as " +
			"`gateweigh agent`. The lab starts its agents itself; by hand it is tried whether a box can be one.",
		Example: "  gateweigh-agent --self-test",
		Run:     func(*cobra.Command, []string) {},
	}
	cmd.Flags().Bool("self-test", false, "try on this machine what agents do; exit status 1 when something fails")
	return cmd
}
