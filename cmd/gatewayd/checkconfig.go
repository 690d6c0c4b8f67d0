package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/gateway"
	"github.com/gateweigh/gateweigh/gateway/config"
)

func checkConfigCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check-config FILE",
		Short: "Check a configuration: every mistake with its file, line and key",
		Long:  "Checks a configuration and the files it names. Exit code 0: no mistakes, 2: mistakes.",
		Args:  usage(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, err := config.Load(args[0])
			if err == nil {
				err = gateway.CheckFiles(cfg)
			}
			if err != nil {
				return &exitError{exitUsage, err}
			}
			fmt.Printf("%s is good\n", args[0])
			return nil
		},
	}
}
