// Command gateweigh measures access gateways. It builds a lab (client, router, server), starts a gateway, the device
// under test, on the router, sends traffic through it, meters the router's CPU, and reports how much more the device
// costs than a clean router, which only forwards.
//
// Words of its files: a cell is one combination of an experiment's lists (device, clients, load, …). A block is one
// building of the labs with all windows measured in it; a window is one measurement. A pair is a window of the device
// and one of the clean router; a trial is a pair with the verdict whether it counts. A run is one execution of an
// experiment, with its folder.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/vm"
	"github.com/gateweigh/gateweigh/manual"
	"github.com/gateweigh/gateweigh/meant"
	"github.com/gateweigh/gateweigh/output"
)

// Exit codes, stable for scripts.
const (
	exitFailed     = 1 // something did not work, or a gate of compare failed
	exitUsage      = 2 // bad command line or experiment file
	exitNothingRan = 3 // no device could run on this machine
	exitRejected   = 4 // a cell has no figure or no interval, or a run with --strict was noisy
	exitUnanswered = 5 // a gate of compare failed because cells have no answer
)

// exitError is an error that ends the program with an exit code of its own.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// version is set by the linker.
var version = "devel"

// stdout takes the output of all commands. Its End reports a write that failed, such as on a full disk.
var stdout = output.To(os.Stdout)

func main() {
	machine.WithSbin()
	agent.Version = version
	vm.RunAs(os.Args)    // in a guest, as its first process: does not return
	agent.RunAs(os.Args) // as an agent on a host of a lab: does not return
	// A signal that was ignored when the program started, as under nohup, stays ignored.
	ends := slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}, signal.Ignored)
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	err := stdout.End(rootCommand().ExecuteContext(ctx))
	if err == nil {
		return
	}
	code := exitFailed
	var coded *exitError
	if errors.As(err, &coded) {
		code = coded.code
	}
	if coded, ok := err.(*exitError); !ok || coded.err != errPrinted {
		fmt.Fprintln(os.Stderr, "gateweigh:", result.Printable(err.Error()))
	}
	stop()
	os.Exit(code)
}

// usage turns the error of an argument check into a usage error that shows which arguments the command takes.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return meant.Arguments(check, func(err error) error { return &exitError{exitUsage, err} })
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "gateweigh",
		Short: "Measure what an access gateway costs a router",
		Long: "Gateweigh measures how much router CPU an access gateway, such as a captive portal, adds\nto a " +
			"plain (\"clean\") router under the same load, with confidence intervals.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version,
		Args:          usage(cobra.NoArgs),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(stdout)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return &exitError{exitUsage, meant.Flag(cmd, err)} })
	root.AddCommand(runCommand(), checkCommand(), reportCommand(), explainCommand(), compareCommand(), trendCommand(),
		serveCommand(), bundleCommand(), listCommand(), shellCommand(), doctorCommand(), kernelCommand(), campaignCommand(),
		burnCommand(),
		sinkCommand(), cleanCommand(),
		manual.CompletionCommand(root.Name(), usage, stdout), manual.Command(book, usage, stdout))
	addCompletions(root)
	return root
}
