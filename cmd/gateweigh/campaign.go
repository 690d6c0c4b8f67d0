package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/lab/campaign"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/words"
	"github.com/gateweigh/gateweigh/quote"
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

// withCampaign returns a command's function that opens the campaign in its only argument, a folder, and calls do with
// it.
func withCampaign(do func(context.Context, *campaign.Campaign) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := campaign.Open(args[0])
		if err != nil {
			return &exitError{exitUsage, err}
		}
		return do(cmd.Context(), c)
	}
}

// withStatus is withCampaign for commands that also need how far the campaign is.
func withStatus(
	do func(context.Context, *campaign.Campaign, campaign.Status) error) func(*cobra.Command, []string) error {
	return withCampaign(func(ctx context.Context, c *campaign.Campaign) error {
		s, err := c.Survey(ctx)
		if err != nil {
			return err
		}
		return do(ctx, c, s)
	})
}

// campaignVerb returns a command about a campaign that readers can copy, such as "gateweigh campaign resume DIR".
func campaignVerb(verb string, c *campaign.Campaign) string {
	return quote.Command("gateweigh", "campaign", verb, c.Dir)
}

func campaignStatus() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status DIR",
		Short: "Say how far a campaign is, and what is wrong with it",
		Long: "Reads the campaign's folder and asks Slurm for its jobs. A block whose node was lost begins at once on\n" +
			"another one.",
		Args: usage(cobra.ExactArgs(1)),
		RunE: withStatus(func(ctx context.Context, c *campaign.Campaign, s campaign.Status) (err error) {
			if s.Unanswered == "" && c.Local == 0 {
				err = c.Release(ctx, s.Jobs())
			}
			if asJSON {
				return errors.Join(err, report.JSON(stdout, s))
			}
			writeCampaign(stdout, s)
			return err
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print it as JSON")
	return cmd
}

// problemsShown is the number of problems that a status lists; --json has all.
const problemsShown = 10

// writeCampaign prints how far a campaign is, on which nodes, and its problems. A share is the part of the campaign
// that one job carries out: one block, or several.
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

// campaignLine returns how far a campaign is, in one line.
func campaignLine(s campaign.Status) string {
	text := fmt.Sprintf("%3.0f %%  %d of %s done, %d running, %d waiting", 100*float64(s.Done)/float64(max(1, s.Shares)),
		s.Done, words.Counted(s.Shares, "share"), s.Running, s.Waiting)
	if s.Failed+s.Open > 0 {
		text += fmt.Sprintf(", %d failed, %d open", s.Failed, s.Open)
	}
	return text
}
