package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/internal/near"
	"github.com/gateweigh/gateweigh/lab/kernel"
	"github.com/gateweigh/gateweigh/lab/vm"
)

func kernelCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kernel list|fetch|check|exec|remove",
		Short: "Find, fetch, examine and use other kernels",
		Long: "The lab can run under another kernel than this machine's, in a small virtual machine with this machine's " +
			"programs:\n" +
			"gateweigh run --kernel debian.",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(kernelList(), kernelFetch(), kernelCheck(), kernelExec(), kernelRemove())
	return cmd
}

func kernelList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the kernels that are here, installed or fetched, and those that apt can fetch",
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			places, err := kernel.UsualPlaces()
			if err != nil {
				return err
			}
			offers, err := kernel.Offers(cmd.Context())
			if err != nil { // without apt, the kernels that are here can still be used
				fmt.Fprintln(os.Stderr, "gateweigh:", err)
			}
			return writeKernels(stdout, places, offers)
		},
	}
}

// writeKernels lists kernels by the names that --kernel takes.
func writeKernels(w io.Writer, places kernel.Places, offers []kernel.Offer) error {
	const line = "%-26s %-26s "
	for _, k := range places.Installed() {
		fmt.Fprintf(w, line+"installed: %s\n", k.Name, k.Release, k.Image)
	}
	for _, k := range places.Fetched() {
		fmt.Fprintf(w, line+"fetched, %d MB: %s\n", k.Name, k.Release, k.Size()/1e6, k.Image)
	}
	for _, o := range offers {
		if !places.Has(o) {
			fmt.Fprintf(w, line+"by apt: gateweigh kernel fetch %s\n", o.Name, o.Version, o.Name)
		}
	}
	_, err := fmt.Fprintln(w,
		"or the path of a vmlinuz, with its modules in lib/modules/RELEASE beside its folder, or in modules/RELEASE beside it")
	return err
}

func kernelRemove() *cobra.Command {
	return &cobra.Command{
		Use:   "remove KERNEL",
		Short: "Delete fetched kernels of this name or release",
		Args:  usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			places, err := kernel.UsualPlaces()
			if err != nil {
				return err
			}
			line := newStatusLine(os.Stderr)
			removed, err := places.Remove(cmd.Context(), args[0], line.say)
			line.clear()
			for _, k := range removed {
				fmt.Fprintf(stdout, "removed %s (%s)\n", k.Name, k.Release)
			}
			return kernelError(cmd.Context(), args[0], err)
		},
	}
}

func kernelFetch() *cobra.Command {
	missing := false
	cmd := &cobra.Command{
		Use:   "fetch [debian | debian:SUITE]",
		Short: "Fetch Debian's newest kernel with apt, from a suite that this machine's sources know",
		Long: "Downloads the newest kernel's package from this machine's apt sources and unpacks it below " +
			"$XDG_CACHE_HOME or ~/.cache;\nnothing is installed, and no root is needed.",
		Example: "  gateweigh kernel fetch\n  gateweigh kernel fetch debian:bookworm-backports",
		Args:    usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			fetch := fetchKernel
			if missing {
				fetch = findKernel
			}
			k, err := fetch(cmd.Context(), kernelOrDebian(args))
			if err == nil {
				_, err = fmt.Fprintf(stdout, "%s is %s: %s\n", k.Name, k.Release, k.Image)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&missing, "missing", false, "only where no kernel of this name is here, however old")
	return cmd
}

// kernelOrDebian returns the kernel that an optional argument names, by default Debian's newest.
func kernelOrDebian(args []string) string {
	if len(args) > 0 {
		return args[0]
	}
	return kernel.Debian
}

// fetchKernel fetches a kernel with apt and shows the progress.
func fetchKernel(ctx context.Context, name string) (kernel.Kernel, error) {
	places, err := kernel.UsualPlaces()
	if err != nil {
		return kernel.Kernel{}, err
	}
	line := newStatusLine(os.Stderr)
	k, err := places.Fetch(ctx, name, func(text string) { line.say("kernel " + name + ": " + text) })
	line.clear()
	return k, kernelError(ctx, name, err)
}

// kernelError turns an error about a kernel's name into a usage error, and adds the known name that is near to it.
func kernelError(ctx context.Context, name string, err error) error {
	if errors.Is(err, kernel.ErrUnknown) || errors.Is(err, kernel.ErrSuite) {
		if names := kernelNames(ctx); !slices.Contains(names, name) {
			err = fmt.Errorf("%w%s", err, near.Suggestion(name, names))
		}
	}
	if errors.Is(err, kernel.ErrUnknown) || errors.Is(err, kernel.ErrForm) || errors.Is(err, kernel.ErrSuite) {
		return &exitError{exitUsage, err}
	}
	return err
}

// kernelNames returns the names that --kernel takes besides paths: kernels that are here, and those that apt offers.
func kernelNames(ctx context.Context) []string {
	names := []string{kernel.Debian}
	if places, err := kernel.UsualPlaces(); err == nil {
		for _, k := range slices.Concat(places.Installed(), places.Fetched()) {
			names = append(names, k.Name, k.Release)
		}
	}
	offers, _ := kernel.Offers(ctx) // without apt there are none
	for _, o := range offers {
		names = append(names, o.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// findKernel returns a kernel that is here, without the network. Debian's that are not here are fetched.
func findKernel(ctx context.Context, name string) (kernel.Kernel, error) {
	places, err := kernel.UsualPlaces()
	if err != nil {
		return kernel.Kernel{}, err
	}
	k, err := places.Find(name)
	if errors.Is(err, kernel.ErrUnknown) && kernel.IsDebian(name) {
		return fetchKernel(ctx, name)
	}
	return k, kernelError(ctx, name, err)
}

func kernelCheck() *cobra.Command {
	var flags guestFlags
	cmd := &cobra.Command{
		Use:   "check [KERNEL]",
		Short: "Boot a kernel and show what the lab can measure under it (gateweigh doctor --quick)",
		Args:  usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			flags.kernel = kernelOrDebian(args)
			code, err := inGuest(cmd.Context(), flags, vm.Config{}, "doctor", "--quick")
			return withGuestsCode(code, err)
		},
	}
	flags.add(cmd)
	return cmd
}

// guestFlags are flags of commands that start a guest, a virtual machine with another kernel and this machine's
// programs.
type guestFlags struct {
	kernel    string
	memoryMiB int
	verbose   bool
	setKeys   []string // keys that --set gave
}

func (f *guestFlags) add(cmd *cobra.Command) {
	cmd.Flags().IntVar(
		&f.memoryMiB, "vm-memory", 0, fmt.Sprintf("memory of the virtual machine, `MiB` (default %d)", vm.DefaultMemoryMiB))
	cmd.Flags().BoolVar(&f.verbose, "verbose", false, "say how the virtual machine starts, and how long that takes")
}

// inGuest runs this program with the given arguments in a guest and returns its exit code.
func inGuest(ctx context.Context, flags guestFlags, cfg vm.Config, args ...string) (int, error) {
	program, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cfg.Command = append([]string{program}, args...)
	return flags.start(ctx, cfg)
}

// start runs the command of cfg in a guest and returns its exit code. The command has this program's folder,
// environment and output.
func (f guestFlags) start(ctx context.Context, cfg vm.Config) (int, error) {
	ended, err := f.run(ctx, cfg)
	return ended.Code, err
}

// run is start with all that is known of how the guest ended.
func (f guestFlags) run(ctx context.Context, cfg vm.Config) (vm.Ended, error) {
	k, err := findKernel(ctx, f.kernel)
	if err != nil {
		return vm.Ended{}, err
	}
	if cfg.Dir, err = filepath.Abs("."); err != nil {
		return vm.Ended{}, err
	}
	line := newStatusLine(os.Stderr)
	cfg.Kernel, cfg.MemoryMiB, cfg.Env = k, f.memoryMiB, os.Environ()
	cfg.Stdout, cfg.Stderr = stdout, os.Stderr
	cfg.Status = func(text string) {
		if f.verbose || ctx.Err() != nil { // after Ctrl-C the user wants to know what still takes time
			line.clear()
			fmt.Fprintln(os.Stderr, text)
			return
		}
		line.say(text)
	}
	ended, err := vm.Run(ctx, cfg)
	line.clear()
	return ended, err
}

// errPrinted is the error of a command whose reason is printed already, by the program that it ran in a guest or in a
// lab. main does not print it.
var errPrinted = errors.New("it failed in the guest")

// withGuestsCode returns an error that ends this program with the exit code of the one in the guest.
func withGuestsCode(code int, err error) error {
	if err != nil || code == 0 {
		return err
	}
	return &exitError{code, errPrinted}
}
