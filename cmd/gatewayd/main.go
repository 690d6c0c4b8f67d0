// Command gatewayd is a captive-portal gateway: the daemon, and the commands that control it.
//
// Words of its files: the data path is what forwards clients' packets, for example eBPF programs in the kernel. A
// session is a login with its user, start, limits and counters. The guard is a set of nftables rules that keeps the LAN
// closed while there is no data path. The keeper is a process that holds open files for a killed daemon's successor.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/internal/strict"
	"github.com/gateweigh/gateweigh/manual"
	"github.com/gateweigh/gateweigh/meant"
	"github.com/gateweigh/gateweigh/output"
	"github.com/gateweigh/gateweigh/quote"
)

// Exit codes, stable for scripts.
const (
	exitFailed     = 1 // an operation failed
	exitUsage      = 2 // bad command line or configuration
	exitNotRunning = 3 // no daemon is running
)

// exitError is an error with the exit code that the program ends with.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// version is set by the linker.
var version = "devel"

// sbin are the folders that have ethtool. After su without "-" PATH lacks them.
const sbin = ":/usr/local/sbin:/usr/sbin:/sbin"

// stdout takes the output of all commands. Its End reports a write that failed, such as on a full disk.
var stdout = output.To(os.Stdout)

func main() {
	if path := os.Getenv("PATH"); !strings.HasSuffix(path, sbin) {
		os.Setenv("PATH", strings.TrimPrefix(path+sbin, ":")) // it fails only for a name with = or a zero byte
	}
	// These signals end the program's work. SIGHUP is not among them: on it the daemon rereads its configuration, and
	// other commands end at once, as Go does by default. A signal that was ignored when the program started, as in the
	// background of a script, stays ignored.
	ends := slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM}, signal.Ignored)
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	err := stdout.End(rootCommand().ExecuteContext(ctx))
	stop()
	if err == nil {
		return
	}
	var bad strict.Problems
	if errors.As(err, &bad) { // each line begins with its file, for editors
		fmt.Fprintln(os.Stderr, bad)
	} else {
		fmt.Fprintln(os.Stderr, "gatewayd:", err)
	}
	os.Exit(exitCode(err))
}

func exitCode(err error) int {
	var coded *exitError
	var bad strict.Problems
	switch {
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &bad):
		return exitUsage
	case errors.Is(err, control.ErrNotRunning):
		return exitNotRunning
	}
	return exitFailed
}

// asRoot adds to an error that the command must run as root, unless it does.
func asRoot(err error) error {
	if os.Geteuid() == 0 {
		return err
	}
	return fmt.Errorf("%w: this command changes the kernel: run it as root (sudo %s)", err, quote.Command(os.Args...))
}

// usage turns the error of an argument check into a usage error that shows which arguments the command takes.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return meant.Arguments(check, func(err error) error { return &exitError{exitUsage, err} })
}

// Default paths.
const (
	defaultConfig = "/etc/gatewayd/gatewayd.toml"
	defaultSocket = "/run/gatewayd/control.sock"
)

func rootCommand() *cobra.Command {
	var socket, file string
	root := &cobra.Command{
		Use:   "gatewayd",
		Short: "A captive-portal gateway with its data path in the kernel",
		Long: "gatewayd leases addresses, shows the login page, asks RADIUS or a file of users, and has the kernel\n" +
			"forward the packets of logged-in clients. `gatewayd -c FILE` runs it, like `gatewayd run`.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version,
		Args:          usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("config") {
				return cmd.Help()
			}
			return run(cmd.Context(), file)
		},
	}
	root.SetOut(stdout)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return &exitError{exitUsage, meant.Flag(cmd, err)} })
	root.SetVersionTemplate("gatewayd {{.Version}}\n")
	root.Flags().StringVarP(&file, "config", "c", "", "run the daemon with this configuration")
	root.PersistentFlags().StringVar(
		&socket, "socket", defaultSocket, "control socket of the daemon (run_dir/control.sock)")
	root.AddCommand(runCommand(), sessionsCommand(&socket), loginCommand(&socket), logoutCommand(&socket),
		deviceCommand(&socket), statusCommand(&socket), reloadCommand(&socket), voucherCommand(&socket), adminCommand(),
		clusterCommand(&socket),
		whoisCommand(),
		checkConfigCommand(), exampleConfigCommand(), hashPasswordCommand(), templatesCommand(), previewCommand(),
		importChilliCommand(), identTokenCommand(),
		guardCommand(), detachCommand(), keepCommand(), versionCommand(),
		manual.CompletionCommand(root.Name(), usage, stdout), manual.Command(manualBook, usage, stdout))
	addCompletions(root, &socket)
	return root
}

// dial connects to the daemon. Without a daemon the error says how to start one.
func dial(socket string) (*control.Client, error) {
	c, err := control.Dial(socket)
	if errors.Is(err, control.ErrNotRunning) && socket != defaultSocket {
		return nil, fmt.Errorf("%w: start the gatewayd whose run_dir is %s", err, filepath.Dir(socket))
	}
	if errors.Is(err, control.ErrNotRunning) {
		err = fmt.Errorf("%w: start it with systemctl start gatewayd, or gatewayd run -c %s", err, defaultConfig)
	}
	return c, err
}
