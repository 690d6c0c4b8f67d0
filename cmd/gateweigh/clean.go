package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/scratch"
)

func cleanCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "clean",
		Short: "End what a crashed run left on this machine",
		Long: "A run's hosts end with the run, also when it is killed: the kernel removes their namespaces, links,\n" +
			"mounts and programs. clean ends agents that still exist although their run is gone,\n" +
			"for example because a signal stopped them, and removes the folders gateweigh-... in $TMPDIR or /tmp that\n" +
			"a killed doctor, shell, compare or explain has left, and the consoles of guests that did not start.\n" +
			"What a living process has is not touched. Folders of runs are kept: gateweigh run --resume goes on with them.",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return errors.New("runs are root's, and so is ending what they left: sudo gateweigh clean")
			}
			ended, err := backend.Clean(cmd.Context())
			for _, e := range ended {
				if e.Run == "" {
					fmt.Fprintf(stdout, "ended %s (process %d)\n", e.Host, e.PID)
					continue
				}
				fmt.Fprintf(stdout, "ended host %s of run %s (process %d)\n", e.Host, e.Run, e.PID)
			}
			removed, failed := scratch.Sweep(scratch.Kinds()...)
			for _, dir := range removed {
				fmt.Fprintf(stdout, "removed %s, which no living process has\n", dir)
			}
			if err = errors.Join(err, failed); err == nil && len(ended)+len(removed) == 0 {
				fmt.Fprintln(stdout, "nothing was left")
			}
			return err
		},
	}
}
