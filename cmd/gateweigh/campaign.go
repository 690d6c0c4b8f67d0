package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/lab/campaign"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/words"
	"github.com/gateweigh/gateweigh/quote"
)

// pollEvery is how often a campaign's scheduler is asked at most. Asking takes longer the more jobs there are: the
// pause is then pollShare times as long as the question.
const (
	pollEvery = time.Second
	pollShare = 5
)

func campaignCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "campaign",
		Short: "Spread the blocks of experiments over the nodes of Slurm",
		Long: "Spreads the blocks of one or several experiments over the nodes of Slurm, one block a job, and makes\n" +
			"one run of what they measured. All nodes share the campaign's folder. docs/campaigns.md",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(campaignStart(), campaignStatus(), campaignWait(), campaignStop(), campaignResume(),
		campaignCollect(), campaignBlock())
	return cmd
}

// startFlags are those of campaign start.
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
	f.VarP((*place)(&flags.out), "out", "o", "folder of the campaign, on a disk that all nodes share (default "+
		"campaigns/<UTC>-<experiment>)")
	f.StringArrayVar(&flags.set, "set", nil, "change a key of every experiment, `KEY=VALUE`; lists with commas")
	f.BoolVar(&flags.local, "local", false, "without Slurm: processes of this machine take the blocks")
	f.IntVar(&flags.nodes, "nodes", 1, "with --local: how many processes; their blocks wait for each other where they "+
		"measure in one network")
	f.BoolVar(&flags.detach, "detach", false, "return once the blocks are handed out; gateweigh campaign wait waits")
	return cmd
}

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

// campaignExperiments are the experiments that arguments name: shipped ones, files, and those of campaign files.
func campaignExperiments(args, set []string) (list []*experiment.Experiment, options experiment.Slurm, err error) {
	var names []string
	for _, arg := range args {
		if filepath.Ext(arg) != ".toml" {
			names = append(names, arg)
			continue
		}
		file, is, err := experiment.ReadCampaign(arg)
		switch {
		case err != nil:
			return nil, options, err
		case is:
			names, options = append(names, file.Experiments...), file.Slurm.Under(options)
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

// handOut hands out what a campaign lacks, and waits for it unless told otherwise.
func handOut(ctx context.Context, c *campaign.Campaign, s campaign.Status, detach bool) error {
	if c.Local > 0 {
		watching, stop := context.WithCancel(ctx)
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			_, _ = watch(watching, c) // RunLocal says how it ended
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

// campaignVerb is a command about a campaign, for readers to copy.
func campaignVerb(verb string, c *campaign.Campaign) string {
	return quote.Command("gateweigh", "campaign", verb, c.Dir)
}

func campaignWait() *cobra.Command {
	return &cobra.Command{
		Use:   "wait DIR",
		Short: "Wait until a campaign's jobs have ended",
		Long: "Shows how far a campaign is until none of its jobs runs or waits. Meanwhile blocks whose node was lost\n" +
			"begin at once on another one; without it Slurm has them wait for two minutes.",
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := openCampaign(args[0])
			if err != nil {
				return err
			}
			return waitCampaign(cmd.Context(), c)
		},
	}
}

func waitCampaign(ctx context.Context, c *campaign.Campaign) error {
	_, err := watch(ctx, c)
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf(
			"not waiting any longer; the jobs go on: %s, or %s", campaignVerb("wait", c), campaignVerb("stop", c))
	}
	if err != nil {
		return err
	}
	return campaignEnd(ctx, c)
}

// watch shows how far a campaign is until none of its jobs runs or waits, and lets jobs of lost nodes begin at once.
func watch(ctx context.Context, c *campaign.Campaign) (s campaign.Status, err error) {
	line := newStatusLine(os.Stderr)
	defer line.clear()
	unanswered := false
	for {
		began := time.Now()
		if s, err = c.Survey(ctx); err != nil {
			return s, err
		}
		if s.Unanswered != "" && !unanswered {
			line.show(runner.Progress{Text: "the scheduler does not answer; finished blocks are kept, and it is asked " +
				"again: " + s.Unanswered, Notice: true})
		}
		unanswered = s.Unanswered != ""
		if s.Finished() && (c.Local == 0 || s.Complete()) {
			return s, nil
		}
		if !unanswered && c.Local == 0 {
			if err := c.Release(ctx, s.Jobs()); err != nil {
				line.show(runner.Progress{Text: err.Error(), Notice: true})
			}
		}
		line.say(campaignLine(s))
		select {
		case <-ctx.Done():
			return s, context.Cause(ctx)
		case <-time.After(max(pollEvery, pollShare*time.Since(began))):
		}
	}
}

// campaignLine is a status in one line.
func campaignLine(s campaign.Status) string {
	text := fmt.Sprintf("%3.0f %%  %d of %s done, %d running, %d waiting", 100*float64(s.Done)/float64(max(1, s.Shares)),
		s.Done, words.Counted(s.Shares, "share"), s.Running, s.Waiting)
	if s.Failed+s.Open > 0 {
		text += fmt.Sprintf(", %d failed, %d open", s.Failed, s.Open)
	}
	return text
}

// campaignEnd collects what a campaign has measured, and says what is missing.
func campaignEnd(ctx context.Context, c *campaign.Campaign) error {
	s, err := c.Survey(ctx)
	if err != nil {
		return err
	}
	writeCampaign(stdout, s)
	if s.Complete() {
		fmt.Fprintf(stdout, "to make one run of it: %s\n", campaignVerb("collect", c))
		return nil
	}
	return fmt.Errorf("%s not done: once its cause is mended, %s hands %s out again", words.Agreed(s.Shares-s.Done,
		"share is", "shares are"), campaignVerb("resume", c), words.Either(s.Shares-s.Done, "it", "them"))
}

func campaignStatus() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status DIR",
		Short: "Say how far a campaign is, and what is wrong with it",
		Long: "Reads the campaign's folder and asks Slurm for its jobs. A block whose node was lost begins at once on\n" +
			"another one.",
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := openCampaign(args[0])
			if err != nil {
				return err
			}
			s, err := c.Survey(cmd.Context())
			if err != nil {
				return err
			}
			if s.Unanswered == "" && c.Local == 0 {
				err = c.Release(cmd.Context(), s.Jobs())
			}
			if asJSON {
				return errors.Join(err, report.JSON(stdout, s))
			}
			writeCampaign(stdout, s)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print it as JSON")
	return cmd
}

// problemsShown bounds the problems of a status; --json has all.
const problemsShown = 10

func writeCampaign(w io.Writer, s campaign.Status) {
	width := terminalWidth(os.Stdout)
	fmt.Fprintln(w, campaignLine(s))
	for _, n := range s.Nodes {
		text := words.Counted(n.Done, "share") + " done"
		if n.Broken > 0 {
			text += fmt.Sprintf(", %d broken off or failed", n.Broken)
		}
		if n.Running != "" {
			text += ", now at " + n.Running
		}
		writeWrapped(w, n.Name, checkColumn, width, text)
	}
	for i, p := range s.Problems {
		if i == problemsShown {
			writeWrapped(w, "", checkColumn, width, words.Counted(len(s.Problems)-i, "problem")+" more: --json has all")
			break
		}
		writeWrapped(w, words.Counted(p.Shares, "share"), checkColumn, width, p.Text)
	}
	if s.Unanswered != "" {
		writeWrapped(w, "scheduler", checkColumn, width,
			"does not answer, so what runs and waits is not known: "+s.Unanswered)
	}
}

func campaignStop() *cobra.Command {
	return &cobra.Command{
		Use:   "stop DIR",
		Short: "End a campaign's jobs; what is finished stays",
		Args:  usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := openCampaign(args[0])
			if err != nil {
				return err
			}
			return stopCampaign(cmd.Context(), c)
		},
	}
}

func stopCampaign(ctx context.Context, c *campaign.Campaign) error {
	if c.Local > 0 {
		if _, err := c.StopLocal(); err != nil {
			return err
		}
	}
	for {
		s, err := c.Survey(ctx)
		if err != nil {
			return err
		}
		if s.Unanswered != "" {
			return fmt.Errorf("the jobs go on, for the scheduler does not answer: %s", s.Unanswered)
		}
		if s.Finished() {
			fmt.Fprintf(stdout, "stopped: %s; %s continues\n", campaignLine(s), campaignVerb("resume", c))
			return nil
		}
		if c.Local == 0 {
			if err := c.Cancel(ctx, s.Jobs()); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pollEvery):
		}
	}
}

func campaignResume() *cobra.Command {
	var detach bool
	cmd := &cobra.Command{
		Use:   "resume DIR",
		Short: "Hand out again what a campaign has not done",
		Long: "Hands out the blocks that no attempt has finished and no job runs or waits for. Nodes that were seen to\n" +
			"lack the campaign's folder get none.",
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := openCampaign(args[0])
			if err != nil {
				return err
			}
			s, err := c.Survey(cmd.Context())
			switch {
			case err != nil:
				return err
			case s.Unanswered != "":
				return fmt.Errorf("the scheduler does not answer, so what still runs is not known: %s", s.Unanswered)
			case len(s.Missing()) == 0 && s.Finished():
				return campaignEnd(cmd.Context(), c)
			case len(s.Missing()) == 0:
				return waitCampaign(cmd.Context(), c)
			}
			for _, node := range s.Avoid() {
				fmt.Fprintf(os.Stderr, "%s gets no blocks: it was seen to lack the campaign's folder\n", node)
			}
			return handOut(cmd.Context(), c, s, detach)
		},
	}
	cmd.Flags().BoolVar(&detach, "detach", false, "return once the blocks are handed out")
	return cmd
}

func openCampaign(dir string) (*campaign.Campaign, error) {
	c, err := campaign.Open(dir)
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return c, nil
}
