package main

import (
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway"
)

// keepCommand is the command that the daemon starts as its keeper (package keeper). It needs one capability,
// CAP_NET_ADMIN, to read counters and rules, to set interfaces down and to block the LAN.
func keepCommand() *cobra.Command {
	return &cobra.Command{
		Use:    gateway.KeepVerb + " LOG-FORMAT",
		Short:  "Keep the files of sessions while the daemon is away (started by the daemon)",
		Hidden: true,
		Args:   usage(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			signal.Ignore(syscall.SIGPIPE) // the program that reads the log may have ended
			if err := confine([]int{unix.CAP_NET_ADMIN}); err != nil {
				return err
			}
			return gateway.RunKeeper(os.NewFile(3, "listener"), newLog(args[0], slog.LevelInfo))
		},
	}
}
