package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/internal/near"
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/profile"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
	"github.com/gateweigh/gateweigh/quote"
)

// explainFlags choose one of a device's CPU profiles by the cell that it was recorded in; zero values match any cell.
type explainFlags struct {
	clients   int
	mbps      float64
	direction string
	packets   string
	frames    string
	link      string
	functions int
	json      bool
}

func explainCommand() *cobra.Command {
	var flags explainFlags
	cmd := &cobra.Command{
		Use:   "explain RUN DEVICE",
		Short: "Show which functions a device's extra time goes to",
		Long: "explain prints, for one cell of a run made with --profile, the functions that the device's router\n" +
			"spends more or less time in than the clean router beside it, in ns per packet. Without flags it\n" +
			"takes the profile at the highest load with the most clients.",
		Example: "  gateweigh run portal-bandwidth --profile -o r\n  gateweigh explain r opennds\n  gateweigh explain r " +
			"opennds --mbps 100 -n 40",
		Args: usage(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error { return explain(cmd.Context(), args[0], args[1], flags) },
	}
	f := cmd.Flags()
	f.IntVar(&flags.clients, "clients", 0, "profile with this number of clients")
	f.Float64Var(&flags.mbps, "mbps", 0, "profile at this offered load, Mbit/s")
	f.StringVar(&flags.direction, "direction", "", "profile in this direction, up or down")
	f.StringVar(&flags.packets, "packets", "", "profile with this packet profile, per-packet or bulk")
	f.StringVar(&flags.frames, "frames", "", "profile with this size of frames: bytes, or the name of a mix or a file")
	f.StringVar(&flags.link, "link", "", "profile at this rate of the link between two gateways, Mbit/s; 0: no limit")
	f.IntVarP(&flags.functions, "functions", "n", 20, "number of functions to list; the others are one line")
	f.BoolVar(&flags.json, "json", false, "print JSON instead of the table")
	return cmd
}

// explain prints the functions in which a device's router spends more or less time than the clean router. name is a
// run's folder or a bundle.
func explain(ctx context.Context, name, dut string, flags explainFlags) error {
	run, forget, err := openOneRun(ctx, name)
	defer forget()
	if err != nil {
		return err
	}
	if torn := run.TornText(); torn != "" {
		fmt.Fprintf(os.Stderr, "in %s, %s\n", name, torn)
	}
	summary := measure.Summarise(run, analysis.Options{})
	if !measure.Uses(run, "profile_window") {
		return &exitError{
			exitUsage, fmt.Errorf("%s measures %s, and %s have no profiles", name, summary.Measure, words.Plural(summary.Noun))}
	}
	all, err := profile.ReadAll(run.Dir)
	if err != nil && len(all) == 0 {
		return err
	}
	if err != nil { // some profiles cannot be read, the others can
		fmt.Fprintln(os.Stderr, "left out:", result.OneLine(err.Error()))
	}
	p, err := chooseProfile(all, run, name, dut, flags)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	e := report.Explain(p, summary, max(flags.functions, 0))
	if flags.json {
		return report.JSON(stdout, e)
	}
	return report.ExplainText(stdout, e)
}

// chooseProfile returns the profile at the highest load with the most clients among the device's profiles that match
// the flags. Without a match its error lists the profiles there are, or says how to record some.
func chooseProfile(all []profile.Profile, run result.Run, name, dut string, flags explainFlags) (
	profile.Profile, error) {
	fits := slices.DeleteFunc(slices.Clone(all), func(p profile.Profile) bool {
		return p.Cell.Text(result.DUT) != dut || !flags.fit(p.Cell)
	})
	if len(fits) > 0 {
		return atHighestLoad(fits, name)
	}
	what := "no profile of " + dut + " as asked for"
	switch known := devicesOf(run); {
	case len(known) > 0 && !slices.Contains(known, dut):
		what = fmt.Sprintf(
			"no device %s in %s, which measured %s", dut, name, result.OneLine(words.Listed(known)+near.Suggestion(dut, known)))
	case len(all) == 0 && run.Dir != name:
		what = fmt.Sprintf("%s has no profiles, and a bundle cannot be resumed: unpack it with %s, "+
			"then record them with gateweigh run --resume FOLDER --profile", name, quote.Command("tar", "xzf", name))
	case len(all) == 0:
		what = fmt.Sprintf("%s has no profiles: record them with %s", name, resumeCommand(name, "--profile"))
	}
	for _, note := range run.Environment.Notes {
		if strings.HasPrefix(note, cost.NoProfile+dut+" ") {
			what += "\n  " + result.OneLine(note)
		}
	}
	for i, p := range all {
		if i == 0 {
			what += "; " + name + " has:"
		}
		what += "\n  " + argumentsOf(p.Cell)
	}
	return profile.Profile{}, errors.New(what)
}

// explainFilters has, for each dimension of cells, the flag that chooses by it and the flag's value; empty matches any.
var explainFilters = []struct {
	dimension result.Dimension
	flag      string
	value     func(explainFlags) string
}{
	{result.Clients, "clients", func(f explainFlags) string { return orEmpty(float64(f.clients)) }},
	{result.OfferedMbps, "mbps", func(f explainFlags) string { return orEmpty(f.mbps) }},
	{result.Direction, "direction", func(f explainFlags) string { return f.direction }},
	{result.Profile, "packets", func(f explainFlags) string { return f.packets }},
	{result.FrameSize, "frames", func(f explainFlags) string { return f.frames }},
	{result.LinkMbps, "link", func(f explainFlags) string { return f.link }},
}

func orEmpty(n float64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatFloat(n, 'f', -1, 64)
}

// fit reports whether a cell matches the flags.
func (f explainFlags) fit(c result.Cell) bool {
	for _, d := range explainFilters {
		if want := d.value(f); want != "" && c.Text(d.dimension) != want {
			return false
		}
	}
	return true
}

// argumentsOf returns the arguments with which explain takes the profile of a cell.
func argumentsOf(c result.Cell) string {
	text := c.Text(result.DUT)
	for _, d := range explainFilters {
		if c.HasDimension(d.dimension) {
			text += fmt.Sprintf(" --%s %s", d.flag, c.Text(d.dimension))
		}
	}
	return result.OneLine(text)
}

// atHighestLoad returns the profile at the highest load with the most clients. Where several at that load differ in the
// link's rate or in the size of frames, the error lists them.
func atHighestLoad(fits []profile.Profile, name string) (profile.Profile, error) {
	weight := func(a, b profile.Profile) int {
		return result.CompareCells(a.Cell, b.Cell, result.OfferedMbps, result.Clients)
	}
	most := slices.MaxFunc(fits, weight)
	what := fmt.Sprintf("%s has several profiles at this load: choose one by its arguments:", name)
	several := false
	for _, p := range fits {
		if weight(p, most) == 0 {
			several = several ||
				p.Cell.Only(result.FrameSize, result.LinkMbps) != most.Cell.Only(result.FrameSize, result.LinkMbps)
			what += "\n  " + argumentsOf(p.Cell)
		}
	}
	if several {
		return profile.Profile{}, errors.New(what)
	}
	return most, nil
}
