package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/lab/campaign"
	"github.com/gateweigh/gateweigh/lab/doctor"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/words"
	"github.com/gateweigh/gateweigh/quote"
)

// startFlags are the flags of campaign start.
type startFlags struct {
	out    string
	set    []string
	local  bool
	nodes  int
	detach bool
}

func campaignStart() *cobra.Command {
	var flags startFlags
	cmd := &cobra.Command{
		Use:   "start EXPERIMENT | FILE.toml …",
		Short: "Hand out the blocks of experiments, or of a campaign file",
		Long: "Makes the campaign's folder, hands its blocks to Slurm, and waits until they are done. Ctrl-C ends the\n" +
			"waiting, not the jobs; with --local it ends them. A block whose node dies is done again elsewhere.",
		Example: "  gateweigh campaign start quick\n  gateweigh campaign start --local quick\n" +
			"  gateweigh campaign start --out /shared/c1 --detach campaign.toml",
		Args: usage(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return startCampaign(cmd.Context(), args, flags)
		},
	}
	f := cmd.Flags()
	f.VarP((*pathFlag)(&flags.out), "out", "o", "folder of the campaign, on a disk that all nodes share (default "+
		"campaigns/<UTC>-<experiment>)")
	f.StringArrayVar(&flags.set, "set", nil, "change a key of every experiment, `KEY=VALUE`; lists with commas")
	f.BoolVar(&flags.local, "local", false, "without Slurm: processes of this machine take the blocks")
	f.IntVar(&flags.nodes, "nodes", 1, "with --local: how many processes; their blocks wait for each other where they "+
		"measure in one network")
	f.BoolVar(&flags.detach, "detach", false, "return once the blocks are handed out; gateweigh campaign wait waits")
	return cmd
}

// startCampaign makes the campaign's folder and hands out its shares.
func startCampaign(ctx context.Context, args []string, flags startFlags) error {
	if flags.local && flags.detach {
		return &exitError{exitUsage, errors.New("--detach is for Slurm: --local carries the blocks out itself")}
	}
	if flags.nodes < 1 || flags.nodes > 1 && !flags.local {
		return &exitError{exitUsage, errors.New("--nodes is 1 or more, and for --local; for Slurm set nodes in [slurm]")}
	}
	list, options, err := campaignExperiments(args, flags.set)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	if flags.local {
		if err := allCanRun(ctx, list); err != nil {
			return err
		}
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	dir := flags.out
	if dir == "" {
		dir = filepath.Join("campaigns", time.Now().UTC().Format("20060102T150405Z")+"-"+list[0].Name)
	}
	command := []string{"gateweigh", "campaign", "start"}
	for _, s := range flags.set {
		command = append(command, "--set", s)
	}
	n := campaign.New{Dir: dir, Experiments: list, Slurm: options, Program: program,
		Command: quote.Command(append(command, args...)...), WriteExperiment: runner.WriteExperiment}
	if flags.local {
		n.Local = flags.nodes
	}
	c, err := campaign.Create(n)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	s, err := c.Survey(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "campaign %s: %s in %s\n", dir, words.Counted(s.Blocks, "block"),
		words.Counted(s.Shares, "share"))
	return handOut(ctx, c, s, flags.detach)
}

// allCanRun refuses a campaign of this machine's processes before it begins, where every block of an experiment would
// fail for the same reason: it asks the machines as doctor --experiment does, and prints what they lack.
func allCanRun(ctx context.Context, list []*experiment.Experiment) error {
	line := newStatusLine(os.Stderr)
	defer line.clear()
	for _, e := range list {
		found, err := doctor.ExamineFor(ctx, e, doctor.Options{
			Quick: true, Version: version, Status: func(text string) { line.say(text) }})
		if err != nil {
			return err
		}
		if !found.CanRun {
			line.clear()
			writeReport(os.Stderr, found, terminalWidth(os.Stderr), false)
			return &exitError{exitNothingRan, errors.New(found.Verdict)}
		}
	}
	return nil
}

// campaignExperiments returns the experiments that the arguments name, and the options for Slurm. An argument is a
// built-in experiment, an experiment's file, or a campaign file, which lists experiments and may have options.
func campaignExperiments(args, set []string) (list []*experiment.Experiment, options experiment.Slurm, err error) {
	var names []string
	for _, arg := range args {
		if filepath.Ext(arg) != ".toml" {
			names = append(names, arg)
			continue
		}
		file, isCampaign, err := experiment.ReadCampaign(arg)
		switch {
		case err != nil:
			return nil, options, err
		case isCampaign:
			names, options = append(names, file.Experiments...), file.Slurm.WithDefaults(options)
		default:
			names = append(names, arg)
		}
	}
	for _, name := range names {
		e, err := loadExperiment(name)
		if err == nil {
			err = override(e, set)
		}
		if err == nil {
			err = dut.CheckVariants(e)
		}
		if err == nil && e.Until > 0 {
			err = e.Blame("until",
				"a campaign decides beforehand which blocks its nodes measure: leave it out, or use gateweigh run")
		}
		if err != nil {
			return nil, options, err
		}
		list = append(list, e)
	}
	return list, options, nil
}

// handOut starts jobs, or local processes, for the shares that are missing. It waits for them, except with detach.
func handOut(ctx context.Context, c *campaign.Campaign, s campaign.Status, detach bool) error {
	if c.Local > 0 {
		watching, stop := context.WithCancel(ctx)
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			_, _ = watch(watching, c) // only shows the progress: RunLocal returns the error
		}()
		err := c.RunLocal(ctx, s.Missing())
		stop()
		<-watched
		if errors.Is(err, context.Canceled) {
			return fmt.Errorf("interrupted; finished blocks are kept: continue with %s", campaignVerb("resume", c))
		}
		if err != nil {
			return err
		}
		return campaignEnd(ctx, c)
	}
	if err := c.Submit(ctx, s.Missing(), s.Avoid()); err != nil {
		return err
	}
	if detach {
		fmt.Fprintf(stdout, "%s handed out; %s tells how far it is\n", words.Counted(len(s.Missing()), "share"),
			campaignVerb("status", c))
		return nil
	}
	return waitCampaign(ctx, c)
}
