package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/profile"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
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
		Use:   "explain RUN DUT",
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
	run, forget, err := measure.Open(ctx, name)
	defer forget()
	if err != nil {
		return err
	}
	summary := measure.Summarise(run, analysis.Options{})
	if !measure.Uses(run, "profile_window") {
		return &exitError{exitUsage, fmt.Errorf("%s measures %s, and %ss have no profiles", name, summary.Measure, summary.Noun)}
	}
	all, err := profile.ReadAll(run.Dir)
	if err != nil && len(all) == 0 {
		return err
	}
	if err != nil { // the others can be explained
		fmt.Fprintln(os.Stderr, "left out:", result.OneLine(err.Error()))
	}
	p, err := chooseProfile(all, name, dut, flags)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	e := report.Explain(p, summary, max(flags.functions, 0))
	if flags.json {
		return report.ExplainJSON(os.Stdout, e)
	}
	return report.ExplainText(os.Stdout, e)
}

// chooseProfile takes the device's profile at the highest load with the most
// clients among those the flags allow. When there is none the error lists what
// there is, or says how to record one.
func chooseProfile(all []profile.Profile, dir, dut string, flags explainFlags) (profile.Profile, error) {
	if len(all) == 0 {
		return profile.Profile{}, fmt.Errorf("%s has no profiles: record them with gateweigh run --resume %s --profile", dir, dir)
	}
	fits := slices.DeleteFunc(slices.Clone(all), func(p profile.Profile) bool {
		c := p.Cell
		return c.Text(result.DUT) != dut || flags.clients != 0 && c.Int(result.Clients) != flags.clients || flags.mbps != 0 && c.Number(result.OfferedMbps) != flags.mbps ||
			flags.direction != "" && c.Text(result.Direction) != flags.direction || flags.packets != "" && c.Text(result.Profile) != flags.packets
	})
	if len(fits) == 0 {
		var there []string
		for _, p := range all {
			c := p.Cell
			there = append(there, "\n  "+result.OneLine(fmt.Sprintf("%s --clients %d --mbps %g --direction %s --packets %s", c.Text(result.DUT), c.Int(result.Clients), c.Number(result.OfferedMbps), c.Text(result.Direction), c.Text(result.Profile))))
		}
		return profile.Profile{}, fmt.Errorf("no profile of %s as asked for; %s has:%s", dut, dir, strings.Join(there, ""))
	}
	return slices.MaxFunc(fits, func(a, b profile.Profile) int {
		return cmp.Or(cmp.Compare(a.Cell.Number(result.OfferedMbps), b.Cell.Number(result.OfferedMbps)), cmp.Compare(a.Cell.Int(result.Clients), b.Cell.Int(result.Clients)))
	}), nil
}
