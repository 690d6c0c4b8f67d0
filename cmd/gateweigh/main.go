// Command gateweigh measures access gateways: it builds a client – router –
// server lab, installs a device under test on the router, offers traffic,
// meters the router, and reports what the device costs beside a clean router.
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
	exitNothingRan = 3 // no device under test could run here
	exitRejected   = 4 // a cell has no figure or no interval, or a run under --strict was noisy
	exitUnanswered = 5 // a gate of compare failed for want of answers
)

// exitError carries an exit code with its message.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// version is set by the linker.
var version = "devel"

// stdout is where all commands write what they were asked for.
var stdout = output.To(os.Stdout)

func main() {
	machine.WithSbin()
	agent.Version = version
	vm.RunAs(os.Args)
	agent.RunAs(os.Args)
	// What nohup, or a script that starts this in the background, has ignored stays so.
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
	if coded, is := err.(*exitError); !is || coded.err != errSaid {
		fmt.Fprintln(os.Stderr, "gateweigh:", result.Printable(err.Error()))
	}
	stop()
	os.Exit(code)
}

// usage makes wrong arguments a usage error that names the arguments of the command.
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
	completes(root)
	return root
}
