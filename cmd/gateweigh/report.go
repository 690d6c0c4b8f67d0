package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/lab/report"
)

func reportCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "report RUN",
		Short: "Rebuild summary, CSV and report of a run from its trials",
		Args:  usage(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			summary, err := report.Write(args[0])
			if err != nil {
				return err
			}
			return printSummary(os.Stdout, args[0], summary, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print summary.json instead of the table")
	return cmd
}
