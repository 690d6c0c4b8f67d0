package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/gateway"
	"github.com/gateweigh/gateweigh/gateway/config"
)

func guardCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "guard",
		Short: "Keep the LAN closed until the daemon runs, for the time after a boot",
		Long: "Has the kernel drop packets that it would forward from or to lan.interface, or the interfaces of several\n" +
			"networks, which need not exist yet.\n" +
			"The daemon opens the guard when it is in place itself; `gatewayd detach` removes it. While a daemon\n" +
			"runs there is nothing to do. Only interfaces are read from the configuration; a file that is no TOML from\n" +
			"some line on is an error, and guarded all the same where lan.interface stands above that line.",
		Args: usage(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			lans, mistake := config.LANInterfaces(file)
			if mistake != nil {
				mistake = &exitError{exitUsage, mistake}
			}
			var failed error
			for _, lan := range lans {
				switch err := gateway.Guard(lan); {
				case errors.Is(err, gateway.ErrBusy):
					fmt.Fprintf(stdout, "a gateway runs on %s and keeps it closed to clients that are not logged in\n", lan)
				case err != nil:
					failed = errors.Join(failed, err)
				default:
					fmt.Fprintf(stdout, "nothing is forwarded from or to %s until gatewayd runs\n", lan)
				}
			}
			if failed != nil {
				return asRoot(failed)
			}
			return mistake
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", defaultConfig, "configuration")
	return cmd
}
