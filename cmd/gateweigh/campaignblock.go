package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/lab/campaign"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/words"
)

func campaignCollect() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "collect DIR",
		Short: "Make one run folder of what a campaign has measured",
		Long: "Makes a run folder of each experiment, with its report, which every other command takes. It may be\n" +
			"called while the campaign goes on, and again later.",
		Args: usage(cobra.ExactArgs(1)),
		RunE: withCampaign(func(_ context.Context, c *campaign.Campaign) error {
			if out == "" {
				out = filepath.Join(c.Dir, "run")
			}
			return collectCampaign(c, out)
		}),
	}
	cmd.Flags().VarP((*pathFlag)(&out), "out", "o",
		"folder of the run (default DIR/run); of several experiments a folder with one for each")
	return cmd
}

// collectCampaign makes a run folder, with its report, of each experiment of a campaign. An experiment that cannot be
// collected does not keep the others from it.
func collectCampaign(c *campaign.Campaign, out string) error {
	var errs []error
	for i, p := range c.Parts {
		dir := out
		if len(c.Parts) > 1 {
			dir = filepath.Join(out, p.Name)
		}
		got, err := c.Collect(i, dir, measure.Catalogue(), runner.WriteExperiment)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		summary, err := rebuildReport(dir, report.Options{})
		if err == nil {
			err = printSummary(stdout, dir, summary, false)
		}
		if got.Left > 0 {
			fmt.Fprintf(stdout, "%s left out: another attempt at the same share counts; all are below %s\n",
				words.Agreed(got.Left, "attempt is", "attempts are"), c.Dir)
		}
		if got.Missing > 0 {
			fmt.Fprintf(stdout, "%s not done: %s\n", words.Agreed(got.Missing, "share is", "shares are"),
				campaignVerb("resume", c))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// blockFlags say which share a process carries out. A job of Slurm's gives its submission and its task, the number
// within the submission; a local process gives the experiment (part) and the share's number within it.
type blockFlags struct {
	submission, task, part, share int
	node                          string
}

// campaignBlock is the command that jobs run; people do not call it.
func campaignBlock() *cobra.Command {
	var flags blockFlags
	cmd := &cobra.Command{
		Use: "block DIR", Short: "Carry out a share of a campaign, as its jobs do", Hidden: true,
		Args: usage(cobra.ExactArgs(1)),
		RunE: withCampaign(func(ctx context.Context, c *campaign.Campaign) error { return carryOutShare(ctx, c, flags) }),
	}
	f := cmd.Flags()
	f.IntVar(&flags.submission, "submission", -1, "number of the submission")
	f.IntVar(&flags.task, "task", -1, "its job")
	f.IntVar(&flags.part, "part", -1, "experiment")
	f.IntVar(&flags.share, "share", -1, "its share")
	f.StringVar(&flags.node, "node", os.Getenv("SLURMD_NODENAME"), "name of this node")
	return cmd
}

// carryOutShare finds out which share the flags mean, measures it, and records on which node and in which process.
func carryOutShare(ctx context.Context, c *campaign.Campaign, flags blockFlags) error {
	share := campaign.Share{Part: flags.part, Number: flags.share}
	if flags.submission >= 0 {
		var err error
		if share, err = c.Task(flags.submission, flags.task); err != nil {
			return err
		}
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	if flags.node == "" {
		flags.node = host
	}
	return c.CarryOut(ctx, share, measure.Catalogue(), campaign.Attempt{
		Node: flags.node, Host: host, PID: os.Getpid(), Job: os.Getenv("SLURM_JOB_ID"), Begun: time.Now().UTC(),
	}, func(ctx context.Context, w campaign.Work) (campaign.End, error) { return measureShare(ctx, c, w) })
}

// measureShare measures the blocks of a share, once no other run measures on this machine.
func measureShare(ctx context.Context, c *campaign.Campaign, w campaign.Work) (end campaign.End, err error) {
	line := newStatusLine(os.Stderr)
	defer line.clear()
	measured := measure.All().Of(w.Experiment)
	var o runner.Outcome
	err = runFlags{wait: true}.whenFree(ctx, func() (err error) {
		o, err = runner.Run(ctx, runner.Config{
			Measure: measured.Run(), Records: measured.Records(), Experiment: w.Experiment, Dir: w.Dir, Version: version,
			Command: c.Command, Status: line.show, Blocks: w.Blocks, Node: w.Node, Sitting: w.Sitting,
		})
		return err
	})
	end = campaign.End{Accepted: o.Accepted, Missing: o.Missing, Skipped: o.Skipped}
	switch {
	case errors.Is(err, context.Canceled):
		return end, errors.New("ended by a signal in the middle of it")
	case errors.Is(err, runner.ErrNothingRan):
		return end, skipText(fmt.Errorf("it cannot run on %s", w.Node), o)
	case err != nil:
		return end, err
	case len(o.Failed) > 0:
		return end, skipText(errors.New("it did not work"), runner.Outcome{Failed: slices.Clone(o.Failed)})
	case o.Open > 0:
		return end, fmt.Errorf("%s not measured", words.Agreed(o.Open, "window was", "windows were"))
	}
	return end, nil
}
