package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/gateway"
	"github.com/gateweigh/gateweigh/gateway/config"
)

func checkConfigCommand() *cobra.Command {
	var fileOnly bool
	cmd := &cobra.Command{
		Use:   "check-config FILE",
		Short: "Check a configuration: every mistake with its file, line and key, and whether the daemon can run here",
		Long: "Checks a configuration, the files it names, and whether the daemon can run with it on this machine, as\n" +
			"root: interfaces and addresses, the kernel, the BPF file system, ports that other programs have, folders,\n" +
			"forwarding. An error is what `gatewayd run` would refuse; warnings change nothing.",
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, err := config.LoadOnce(args[0])
			if err != nil {
				return &exitError{exitUsage, err}
			}
			if printFindings(gateway.CheckFiles(cfg)) > 0 {
				return &exitError{exitUsage, fmt.Errorf("there are mistakes in the files that %s names", args[0])}
			}
			if !fileOnly {
				if err := checkMachine(cfg); err != nil {
					return err
				}
			}
			fmt.Fprintf(stdout, "%s is good\n", args[0])
			return nil
		},
	}
	cmd.Flags().BoolVar(&fileOnly, "file-only", false, "check the files only, for a configuration of another machine")
	return cmd
}

// checkMachine prints on standard error what the daemon would refuse or warn about on this machine. It returns an error
// where the daemon would refuse to run.
func checkMachine(cfg *config.Config) error {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "warning: not all of this machine can be checked without root")
	}
	if printFindings(append(gateway.Check(cfg), checkRights(cfg)...)) > 0 {
		return fmt.Errorf("gatewayd cannot run on this machine as %s says (--file-only leaves the machine out)", cfg.File)
	}
	return nil
}

// printFindings writes findings on standard error, and returns how many the daemon would refuse.
func printFindings(all []gateway.Finding) (refused int) {
	for _, f := range all {
		word := map[gateway.Weight]string{
			gateway.Note: "note", gateway.Warning: "warning", gateway.Refusal: "error"}[f.Weight]
		fmt.Fprintf(os.Stderr, "%s: %s\n", word, f.Text)
		if f.Weight == gateway.Refusal {
			refused++
		}
	}
	return refused
}
