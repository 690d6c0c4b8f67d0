package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/lab/testbed"
)

func cleanCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "clean",
		Short: "End what a crashed run left on this machine",
		Long: "A run's hosts end with the run, also when it is killed: the kernel removes their namespaces, links,\n" +
			"mounts and programs. clean ends agents that still exist although their run is gone,\n" +
			"for example because a signal stopped them. Running runs are not affected.",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return errors.New("runs are root's, and so is ending what they left: sudo gateweigh clean")
			}
			ended, err := testbed.Clean(cmd.Context())
			for _, e := range ended {
				if e.Run == "" {
					fmt.Fprintf(stdout, "ended %s (process %d)\n", e.Host, e.PID)
					continue
				}
				fmt.Fprintf(stdout, "ended host %s of run %s (process %d)\n", e.Host, e.Run, e.PID)
			}
			if err == nil && len(ended) == 0 {
				fmt.Fprintln(stdout, "nothing was left")
			}
			return err
		},
	}
}
