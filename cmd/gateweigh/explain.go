package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/profile"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// explainFlags choose among a device's profiles; zero values leave the choice open.
type explainFlags struct {
	clients   int
	mbps      float64
	direction string
	packets   string
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
		Example: "  gateweigh run portal-bandwidth --profile -o r\n  gateweigh explain r opennds\n  gateweigh explain r opennds --mbps 100 -n 40",
		Args:    usage(cobra.ExactArgs(2)),
		RunE:    func(cmd *cobra.Command, args []string) error { return explain(cmd.Context(), args[0], args[1], flags) },
	}
	f := cmd.Flags()
	f.IntVar(&flags.clients, "clients", 0, "profile with this number of clients")
	f.Float64Var(&flags.mbps, "mbps", 0, "profile at this offered load, Mbit/s")
	f.StringVar(&flags.direction, "direction", "", "profile in this direction, up or down")
	f.StringVar(&flags.packets, "packets", "", "profile with this packet profile, per-packet or bulk")
	f.IntVarP(&flags.functions, "functions", "n", 20, "number of functions to list; the others are one line")
	f.BoolVar(&flags.json, "json", false, "print JSON instead of the table")
	return cmd
}

func explain(ctx context.Context, name, dut string, flags explainFlags) error {
	if err := oneRun(name); err != nil {
		return err
	}
	run, forget, err := measure.Open(ctx, name)
	defer forget()
	if err != nil {
		return err
	}
	summary := measure.Summarise(run, analysis.Options{})
	if !measure.Uses(run, "profile_window") {
		return &exitError{exitUsage, fmt.Errorf("%s measures %s, and %s have no profiles", name, summary.Measure, words.Plural(summary.Noun))}
	}
	all, err := profile.ReadAll(run.Dir)
	if err != nil && len(all) == 0 {
		return err
	}
	if err != nil { // the others can be explained
		fmt.Fprintln(os.Stderr, "left out:", result.OneLine(err.Error()))
	}
	p, err := chooseProfile(all, run, name, dut, flags)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	e := report.Explain(p, summary, max(flags.functions, 0))
	if flags.json {
		return report.JSON(os.Stdout, e)
	}
	return report.ExplainText(os.Stdout, e)
}

// chooseProfile takes the device's profile at the highest load with the most
// clients among those the flags allow. When there is none the error lists what
// there is, or says how to record one.
func chooseProfile(all []profile.Profile, run result.Run, name, dut string, flags explainFlags) (profile.Profile, error) {
	fits := slices.DeleteFunc(slices.Clone(all), func(p profile.Profile) bool {
		c := p.Cell
		return c.Text(result.DUT) != dut || flags.clients != 0 && c.Int(result.Clients) != flags.clients || flags.mbps != 0 && c.Number(result.OfferedMbps) != flags.mbps ||
			flags.direction != "" && c.Text(result.Direction) != flags.direction || flags.packets != "" && c.Text(result.Profile) != flags.packets
	})
	if len(fits) > 0 {
		return slices.MaxFunc(fits, func(a, b profile.Profile) int {
			return result.CompareCells(a.Cell, b.Cell, result.OfferedMbps, result.Clients)
		}), nil
	}
	devices := map[string]bool{}
	for _, t := range run.Trials {
		if !t.AA {
			devices[t.Cell.Text(result.DUT)] = true
		}
	}
	what := "no profile of " + dut + " as asked for"
	switch known := slices.Sorted(maps.Keys(devices)); {
	case len(known) > 0 && !devices[dut]:
		what = fmt.Sprintf("no device %s in %s, which measured %s", dut, name, result.OneLine(words.Listed(known)))
	case len(all) == 0 && run.Dir != name:
		what = fmt.Sprintf("%s has no profiles, and a bundle cannot be resumed: unpack it with tar xzf %s, "+
			"then record them with gateweigh run --resume FOLDER --profile", name, name)
	case len(all) == 0:
		what = fmt.Sprintf("%s has no profiles: record them with gateweigh run --resume %s --profile", name, name)
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
		c := p.Cell
		what += "\n  " + result.OneLine(fmt.Sprintf("%s --clients %d --mbps %g --direction %s --packets %s", c.Text(result.DUT), c.Int(result.Clients), c.Number(result.OfferedMbps), c.Text(result.Direction), c.Text(result.Profile)))
	}
	return profile.Profile{}, errors.New(what)
}
