package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/measure/capture"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
)

type shellFlags struct {
	dut string
	set []string
}

func shellCommand() *cobra.Command {
	var flags shellFlags
	cmd := &cobra.Command{
		Use:   "shell RUN|FILE|EXPERIMENT [router|client|server] [-- COMMAND…]",
		Short: "Open a shell in the lab of an experiment, with its device and its clients",
		Long: "Builds the lab of an experiment's first device as a block has it, starts the device, admits the clients, " +
			"and opens a\n" +
			"shell on the router (or in the first client, or on the server): among the programs, files and interfaces of that " +
			"host, with\n" +
			"the variables that a device's commands have. Nothing is measured. A device that does not start, or keeps nobody " +
			"out, is\n" +
			"said and can be looked at all the same. When the shell ends, the clients leave, the device is stopped, and the " +
			"lab is gone.\n" +
			"With a COMMAND that is run instead, and its exit code is this program's.",
		Example: "  gateweigh shell my-gateway.toml\n  gateweigh shell my-gateway.toml client -- curl -s " +
			"http://192.168.89.1/\n  gateweigh shell runs/20260101T120000Z-quick --dut opennds -- nft list ruleset",
		RunE: func(cmd *cobra.Command, args []string) error {
			command := []string{cmp.Or(os.Getenv("SHELL"), "/bin/sh")}
			if dash := cmd.ArgsLenAtDash(); dash >= 0 {
				if command, args = args[dash:], args[:dash]; len(command) == 0 {
					return &exitError{exitUsage, errors.New("--: name the command to run")}
				}
			}
			if err := usage(cobra.RangeArgs(1, 2))(cmd, args); err != nil {
				return err
			}
			return openShell(cmd.Context(), cmd.ErrOrStderr(), slices.Concat(args, []string{"router"})[:2], command, flags)
		},
	}
	cmd.Flags().StringVar(&flags.dut, "dut", "", "the device (default the experiment's first)")
	cmd.Flags().StringArrayVar(&flags.set, "set", nil, "change a key of the experiment, `KEY=VALUE`")
	return cmd
}

// openShell runs a command in the lab of an experiment: args are the experiment and the host.
func openShell(ctx context.Context, say io.Writer, args, command []string, flags shellFlags) error {
	exp, err := shownExperiment(args[0])
	if err == nil {
		err = errors.Join(override(exp, flags.set), dut.CheckVariants(exp))
	}
	if err == nil && exp.Measure == capture.Name {
		err = fmt.Errorf("%s captures frames, and its lab has no clients: there is no shell in it", exp.Name)
	}
	if err != nil {
		return &exitError{exitUsage, err}
	}
	device := flags.dut
	if device == "" {
		device = exp.DUTs[max(0, slices.IndexFunc(exp.DUTs, func(name string) bool { return name != experiment.Clean }))]
	}
	if !slices.Contains(exp.DUTs, device) {
		return &exitError{
			exitUsage, fmt.Errorf("--dut %s: the devices of %s are %s", device, exp.Name, strings.Join(exp.DUTs, ", "))}
	}
	code := 0
	err = runner.Look(ctx, exp, device, func(lab *bench.Bench, fault error) (err error) {
		if fault != nil {
			fmt.Fprintf(say, "gateweigh: the lab of %s, as it is: %v\n", device, fault)
		}
		code, err = runInside(ctx, lab, args[1], command)
		return err
	})
	if err == nil && code != 0 {
		err = &exitError{code, errPrinted}
	}
	return err
}

// shownExperiment loads the experiment of a run's folder, of a file, or a built-in one.
func shownExperiment(name string) (*experiment.Experiment, error) {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return loadExperiment(filepath.Join(name, result.ExperimentFile))
	}
	return loadExperiment(name)
}

// hostOf returns the host that name means: "router" or "client", or a host's name in the topology. For "client" number
// is that of the first client, whose network namespace the shell enters; else it is 0.
func hostOf(lab *bench.Bench, name string) (h *backend.Host, number int, err error) {
	switch name {
	case "router":
		return lab.Router, 0, nil
	case "client":
		return lab.Hosts[0].Host, 1, nil
	}
	var names []string
	for _, h := range lab.Lab.Hosts {
		short := strings.TrimPrefix(h.Name, lab.Lab.Name+"/")
		if short == name {
			return h, 0, nil
		}
		if short != "router" && short != "client" {
			names = append(names, short)
		}
	}
	return nil, 0, &exitError{
		exitUsage, fmt.Errorf("no host %q: there are router, client, %s", name, strings.Join(names, ", "))}
}

// runInside runs a command in the namespaces of a host, on this program's terminal, and returns its exit code.
func runInside(ctx context.Context, lab *bench.Bench, name string, command []string) (code int, err error) {
	h, number, err := hostOf(lab, name)
	if err != nil {
		return 0, err
	}
	if len(lab.Clients) == 0 { // the lab failed before it made clients: enter the host itself
		number = 0
	}
	in, err := h.Namespaces(ctx, number)
	if err != nil {
		return 0, err
	}
	argv := append([]string{
		fmt.Sprintf("--target=%d", in.InitPID), "--mount", "--pid", "--net=" + in.NetFile, "--", "sh", "-c",
		`cd "$0" && exec "$@"`, in.Dir}, command...)
	cmd := exec.CommandContext(ctx, "nsenter", argv...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGHUP) }
	outside := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TMPDIR=") })
	cmd.Env = append(outside, dut.Variables(lab.DUT, lab.Env, strings.TrimPrefix(h.Name, lab.Lab.Name+"/"))...)
	if number > 0 {
		cmd.Env = append(cmd.Env, clientVariables(lab.Clients[0])...)
	}
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) && ctx.Err() == nil {
		return max(exit.ExitCode(), 1), nil
	} else if err != nil {
		return 0, fmt.Errorf("%s: %w", command[0], err)
	}
	return 0, nil
}

// clientVariables are the variables that a device's commands login, status and logout get for a client.
func clientVariables(c dut.ClientAddr) []string {
	ip := c.IP
	if !ip.IsValid() {
		ip = c.IP6
	}
	return []string{fmt.Sprintf("%s=%d", client.VarClient, c.N), fmt.Sprintf("%s=%s", client.VarClientIP, ip)}
}
