package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
)

func reportCommand() *cobra.Command {
	var asJSON bool
	var with []string
	cmd := &cobra.Command{
		Use:   "report RUN",
		Short: "Rebuild summary, CSV and report of a run from its trials",
		Args:  usage(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			var opts report.Options
			for _, dir := range with {
				run, err := result.ReadRun(dir)
				if err != nil {
					return err
				}
				opts.With = append(opts.With, analysis.Summarise(run, opts.Analysis))
			}
			summary, err := report.WriteWith(args[0], opts)
			if err != nil {
				return err
			}
			return printSummary(os.Stdout, args[0], summary, asJSON)
		},
	}
	cmd.Flags().StringArrayVar(&with, "with", nil, "a further `RUN` that completes the comparison with published studies; may be repeated")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print summary.json instead of the table")
	return cmd
}
