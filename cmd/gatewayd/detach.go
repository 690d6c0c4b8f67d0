package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/gateway"
	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/quote"
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
	var failed error
	for _, n := range cfg.All() {
		left, pinned := gateway.LeftInKernel(n), gateway.Pinned(n)
		if err := gateway.Detach(n, force); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		reportDetached(n, left, pinned)
		warnOpen(n)
	}
	if failed != nil {
		return asRoot(failed)
	}
	return nil
}

// warnOpen warns where the machine goes on forwarding without a gateway.
func warnOpen(cfg *config.Config) {
	if families := gateway.OpenFamilies(cfg); len(families) > 0 {
		down := quote.Command("ip", "link", "set", cfg.LAN.Interface, "down")
		fmt.Fprintf(os.Stderr, "warning: without gatewayd this machine forwards %s for everybody on %s; to stop that: %s\n",
			strings.Join(families, " and "), cfg.LAN.Interface, down)
	}
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
