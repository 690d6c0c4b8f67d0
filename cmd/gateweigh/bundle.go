package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

func bundleCommand() *cobra.Command {
	var out string
	var logs bool
	cmd := &cobra.Command{
		Use:   "bundle RUN",
		Short: "Pack a run into one file, to report on another machine",
		Long: "Pack the data from which every figure of a run is computed into one compressed archive:\n" +
			"experiment, environment, trials and profiles. gateweigh report, compare and explain\n" +
			"accept a bundle in place of a run folder.",
		Example: "  gateweigh bundle runs/20260101T120000Z-quick -o quick.tar.gz\n  gateweigh report quick.tar.gz",
		Args:    usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := oneRun(args[0]); err != nil {
				return err
			}
			if out == "" {
				run := filepath.Clean(args[0])
				if base := filepath.Base(run); base == "." || base == ".." {
					var err error // the bundle lies beside the folder and has its name, which only the full path shows
					if run, err = filepath.Abs(run); err != nil {
						return err
					}
				}
				out = run + result.BundleSuffix
			}
			manifest, err := result.WriteBundle(cmd.Context(), args[0], out, logs)
			if err != nil {
				return err
			}
			info, err := os.Stat(out)
			if err != nil {
				return fmt.Errorf("look at the bundle: %w", err)
			}
			fmt.Fprintf(stdout, "bundle: %s (%s, %d KiB)\n", out, words.Counted(len(manifest.Files), "file"),
				(info.Size()+1023)>>10)
			return nil
		},
	}
	cmd.Flags().VarP((*pathFlag)(&out), "out", "o", "file to write (default RUN"+result.BundleSuffix+")")
	cmd.Flags().BoolVar(&logs, "logs", false, "include the logs of agents and devices")
	return cmd
}
