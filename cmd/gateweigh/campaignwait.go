package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/lab/campaign"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/words"
)

// The pause between two questions to a campaign's scheduler is minPause, or pauseFactor times as long as the scheduler
// took to answer, whichever is longer: with many jobs an answer costs it much work.
const (
	minPause    = time.Second
	pauseFactor = 5
)

func campaignWait() *cobra.Command {
	return &cobra.Command{
		Use:   "wait DIR",
		Short: "Wait until a campaign's jobs have ended",
		Long: "Shows how far a campaign is until none of its jobs runs or waits. Meanwhile blocks whose node was lost\n" +
			"begin at once on another one; without it Slurm has them wait for two minutes.",
		Args: usage(cobra.ExactArgs(1)),
		RunE: withCampaign(waitCampaign),
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

// watch shows how far a campaign is until none of its jobs runs or waits. It also has jobs whose node was lost start at
// once on other nodes, which Slurm alone would do after two minutes.
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
		case <-time.After(max(minPause, pauseFactor*time.Since(began))):
		}
	}
}

// campaignEnd prints the state of a campaign that has ended, and the command that goes on: collect when all is done,
// else resume, in an error that counts what is missing.
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

func campaignStop() *cobra.Command {
	return &cobra.Command{
		Use:   "stop DIR",
		Short: "End a campaign's jobs; what is finished stays",
		Args:  usage(cobra.ExactArgs(1)),
		RunE:  withCampaign(stopCampaign),
	}
}

// stopCampaign ends the jobs and waits until none is left. It cancels again and again, because a job that was put back
// into the queue may have appeared in between.
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
		case <-time.After(minPause):
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
		RunE: withStatus(func(ctx context.Context, c *campaign.Campaign, s campaign.Status) error {
			switch {
			case s.Unanswered != "":
				return fmt.Errorf("the scheduler does not answer, so what still runs is not known: %s", s.Unanswered)
			case len(s.Missing()) == 0 && s.Finished():
				return campaignEnd(ctx, c)
			case len(s.Missing()) == 0:
				return waitCampaign(ctx, c)
			}
			for _, node := range s.Avoid() {
				fmt.Fprintf(os.Stderr, "%s gets no blocks: it was seen to lack the campaign's folder\n", node)
			}
			return handOut(ctx, c, s, detach)
		}),
	}
	cmd.Flags().BoolVar(&detach, "detach", false, "return once the blocks are handed out")
	return cmd
}
