package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/words"
)

func checkCommand() *cobra.Command {
	var flags runFlags
	cmd := &cobra.Command{
		Use:   "check [EXPERIMENT | FILE.toml]",
		Short: "Say what a run would measure and need, and start nothing",
		Long: "Reads an experiment as run does, and prints its cells, blocks and time, what each host and device\n" +
			"needs, what is missing here, and how far the machine's limits go. It starts no lab and needs no root.\n" +
			"Exit code 0: a run would measure, as root; 2: the experiment has a mistake; 3: nothing of it can run here.",
		Example: "  gateweigh check my-gateway.toml\n  gateweigh check portal-bandwidth --set clients=500 --json",
		Args:    usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return checkExperiment(cmd.Context(), args, flags)
		},
	}
	cmd.Flags().StringArrayVar(&flags.set, "set", nil, "change a key of the experiment, `KEY=VALUE`; lists with commas")
	cmd.Flags().BoolVar(&flags.json, "json", false, "print it as JSON")
	return cmd
}

// checkExperiment prints what a run of the experiment would measure and need. It is an error when that is nothing.
func checkExperiment(ctx context.Context, args []string, flags runFlags) error {
	exp, _, err := chooseExperiment(args, &flags)
	if err == nil {
		err = dut.CheckVariants(exp)
	}
	if err != nil {
		return &exitError{exitUsage, err}
	}
	p, err := runner.PreviewOf(ctx, measure.All().Of(exp).Run(), exp, nil)
	if err != nil {
		return err
	}
	if flags.json {
		err = report.JSON(stdout, p)
	} else {
		writePreview(stdout, p, exp, beginning(args, flags, ""), terminalWidth(os.Stdout))
	}
	if err == nil && (p.Cells == 0 || len(p.Problems) > 0) {
		return &exitError{exitNothingRan, errors.New("a run would measure nothing here: see above")}
	}
	return err
}

// checkColumn is where the text beside a heading begins.
const checkColumn = 12

func writePreview(w io.Writer, p runner.Preview, e *experiment.Experiment, command string, width int) {
	line := func(head string, text ...string) { writeWrapped(w, head, checkColumn, width, text...) }
	line(p.Experiment, p.Description)
	plan := e.Describe()
	line("measures", fmt.Sprintf("%s, topology %s: %s in %s%s", p.Measure, p.Topology, words.Counted(p.Cells, "cell"),
		words.Counted(p.Blocks, plan.Block), plan.Contents))
	for _, d := range p.Dimensions {
		if len(d.Values) > 1 {
			line("", fmt.Sprintf("%s %d: %s", d.Dimension, len(d.Values), strings.Join(d.Values, ", ")))
		}
	}
	line("takes", durationText(p.Seconds)+", and about "+megabytes(p.FolderMiB)+" in the run's folder")
	for _, d := range p.Devices {
		line("device", deviceText(d, command))
	}
	for _, h := range p.Hosts {
		line("host", hostText(h))
	}
	for _, l := range p.Limits {
		line("limit", limitText(l))
	}
	line("machine", p.Outlook)
	if p.Mode != "" {
		line("mode", p.Mode)
	}
	for _, problem := range p.Problems {
		line("refused", problem)
	}
	if len(p.Problems) == 0 && p.Cells > 0 {
		line("run it", "sudo "+command)
	}
}

// durationText returns how long a run takes: "about 5 minutes", or with bounds "2 minutes to 1 hour".
func durationText(s runner.Seconds) string {
	text := func(seconds float64) string { return roundedText(time.Duration(seconds * float64(time.Second))) }
	if s.Most > s.Least {
		return text(s.Least) + " to " + text(s.Most)
	}
	return "about " + text(s.About)
}

// megabytes returns a size in MiB as text in MB, at least "1 MB".
func megabytes(mib float64) string {
	if mib < 1 {
		return "1 MB"
	}
	return fmt.Sprintf("%.0f MB", mib*1.048576)
}

func deviceText(d runner.DeviceHere, command string) string {
	text := words.Joined(", ", d.Name+" runs here", d.Without)
	if !d.Here {
		text = d.Name + " not here: " + d.Reason
	}
	if d.Kernel != "" {
		text += "; runs with --kernel " + d.Kernel + ": " + dut.Command(d.Kernel, command, d.Name)
	}
	return text
}

func hostText(h runner.HostNeeds) string {
	text := words.Counted(h.Count, h.Host)
	if len(h.Needs) > 0 {
		text += " with " + programs(h.Needs)
	}
	if len(h.Lacks) > 0 {
		text += "; missing: " + strings.Join(h.Lacks, ", ")
	}
	return text
}

func limitText(l runner.LimitHere) string {
	text := strings.TrimSpace(fmt.Sprintf("%s: %d of %d %s", l.What, l.Need, l.Have, l.Unit))
	if !l.Enough {
		text += ", too few: " + l.Raise
	}
	return text
}
