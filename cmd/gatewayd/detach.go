package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/gateway"
	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
)

func detachCommand() *cobra.Command {
	var file string
	var force bool
	cmd := &cobra.Command{
		Use:   "detach",
		Short: "Remove everything from the kernel: programs, maps, rules",
		Long: "Removes from the kernel, in the network namespace it is started in, what outlives the daemon, and switches\n" +
			"forwarding off where gatewayd switched it on. A machine that forwards by itself (net.ipv4.ip_forward) is then\n" +
			"an ordinary router: it forwards for clients without a login too. Leases and sessions stay on the disk.",
		Args: usage(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			return detach(file, force)
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", defaultConfig, "configuration")
	cmd.Flags().BoolVar(&force, "force", false, "also while a daemon runs, or where the interface does not exist")
	return cmd
}

// detach removes everything of a configuration's gateway from the kernel. With force it does so also while a daemon
// runs.
func detach(file string, force bool) error {
	cfg, err := config.Load(file)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	// While detach holds the control socket, no daemon can start.
	socket, err := control.Listen(cfg.ControlSocket())
	if errors.Is(err, control.ErrRunning) && !force {
		return fmt.Errorf("%w; or detach --force, and it goes on without its data path", err)
	}
	if err == nil {
		defer socket.Close()
	} else if !force {
		return asRoot(err)
	}
	left, pinned := gateway.LeftInKernel(cfg), gateway.Pinned(cfg)
	if err := gateway.Detach(cfg, force); err != nil {
		return asRoot(err)
	}
	reportDetached(cfg, left, pinned)
	return nil
}

// reportDetached prints the result of a detach. left tells whether anything was in the kernel before, and pinned
// whether there were pins.
func reportDetached(cfg *config.Config, left, pinned bool) {
	switch {
	case !left:
		fmt.Fprintf(stdout, "nothing of gatewayd was there on %s, in this network namespace\n", cfg.LAN.Interface)
	case gateway.LANIsHere(cfg):
		fmt.Fprintf(stdout, "nothing of gatewayd is left in the kernel for %s\n", cfg.LAN.Interface)
	case pinned && !gateway.Pinned(cfg):
		fmt.Fprintf(stdout,
			"nothing of gatewayd is left in this network namespace, and what was pinned in %s was removed\n",
			cfg.Datapath.PinDir)
	default:
		fmt.Fprintln(stdout, "nothing of gatewayd is left in this network namespace")
	}
}
