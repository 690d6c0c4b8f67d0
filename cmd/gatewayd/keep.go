package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/gateway"
	"github.com/gateweigh/gateweigh/gateway/keeper"
)

// keepCommand is what the daemon starts as its keeper. It needs no capabilities.
func keepCommand() *cobra.Command {
	return &cobra.Command{
		Use:    gateway.KeepVerb,
		Short:  "Keep the files of sessions while the daemon is away (started by the daemon)",
		Hidden: true,
		Args:   usage(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			if err := confine(nil); err != nil {
				return err
			}
			return keeper.Serve(os.NewFile(3, "listener"), keeper.Alone)
		},
	}
}
