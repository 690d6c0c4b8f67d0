package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/gateway/config"
)

func exampleConfigCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "example-config",
		Short: "Print a configuration with every key, its default and what it does",
		Args:  usage(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprint(stdout, config.Example)
			return err
		},
	}
}
