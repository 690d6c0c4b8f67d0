package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/vm"
	"github.com/gateweigh/gateweigh/lab/words"
	"github.com/gateweigh/gateweigh/quote"
)

// maxMissing is the largest share of windows that may lack an accepted trial in a run with --strict. Beyond it the run
// ends with exit code 4.
const maxMissing = 0.2

// defaultName is the experiment of a run that names none.
const defaultName = "quick"

type runFlags struct {
	out      string
	resume   string
	resuming bool // --resume was given, also with an empty value
	set      []string
	profile  bool
	json     bool
	strict   bool // fail when the run was noisy or too many windows are missing (maxMissing)
	wait     bool // wait while another run measures on this machine
	guest    guestFlags
	kernels  []string // values of --kernel
	// oneOfSeveral is set when --kernel names several kernels: each has its run, and this is one of them.
	oneOfSeveral bool
	begin        string // the command that begins this experiment, for hints (runner.Config.Begin)
}

func runCommand() *cobra.Command {
	var flags runFlags
	cmd := &cobra.Command{
		Use:   "run [EXPERIMENT | FILE.toml]",
		Short: "Measure devices against a clean router (default experiment: quick)",
		Long: "Builds an experiment's labs, puts each device on the router of one and nothing on that of the other, offers " +
			"both the\n" +
			"same load, and writes trials, summary and report into the run's folder. Ctrl-C keeps what was measured, and " +
			"--resume\n" +
			"goes on. --set changes the experiment's keys: docs/experiments.md. It needs root.",
		Example: "  gateweigh run\n  gateweigh run portal-bandwidth --set blocks=10\n" +
			"  gateweigh run my-gateway.toml\n  gateweigh run --kernel debian\n  gateweigh run --profile\n  gateweigh run " +
			"--resume runs/20260101T120000Z-quick",
		Args: usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			flags.resuming = cmd.Flags().Changed("resume")
			if slices.Contains(flags.kernels, "") {
				return &exitError{exitUsage, errors.New("--kernel: name a kernel; gateweigh kernel list has them")}
			}
			if alone := len(flags.kernels) == 0 && !flags.resuming; alone &&
				(cmd.Flags().Changed("vm-memory") || cmd.Flags().Changed("verbose")) {
				return &exitError{exitUsage, errors.New("--vm-memory and --verbose are for guests: add --kernel")}
			}
			return runExperiment(cmd.Context(), args, flags)
		},
	}
	f := cmd.Flags()
	f.VarP((*pathFlag)(&flags.out), "out", "o", "folder of the run (default runs/<UTC>-<experiment>)")
	f.StringVar(&flags.resume, "resume", "", "continue the interrupted run in this folder")
	f.StringArrayVar(&flags.set, "set", nil, "change a key of the experiment, `KEY=VALUE`; lists with commas")
	f.BoolVar(&flags.profile, "profile", false,
		"also record a CPU profile of each cell with perf, in separate windows: flame graphs, gateweigh explain")
	f.StringArrayVar(&flags.kernels, "kernel", nil,
		"measure under another `KERNEL`, in a virtual machine: debian, debian:SUITE, a release of gateweigh kernel list, "+
			"or a path; "+
			"may be repeated, also with native (this machine's): one report compares them")
	f.BoolVar(&flags.wait, "wait", false, "where another run measures on this machine, wait until it has ended")
	flags.guest.add(cmd)
	f.BoolVar(&flags.json, "json", false, "print summary.json instead of the table")
	f.BoolVar(&flags.strict, "strict", false, fmt.Sprintf(
		"exit with code %d also for a noisy run, and where %.0f %% of the windows are missing: for CI", exitRejected,
		100*maxMissing))
	return cmd
}

func runExperiment(ctx context.Context, args []string, flags runFlags) error {
	if os.Geteuid() == 0 {
		syscall.Umask(0o022) // so that the user who called sudo can read the report
	}
	if plan, found, err := readKernelsPlan(flags.resume); found || err != nil {
		return resumeKernels(ctx, args, plan, flags, err)
	}
	exp, dir, err := chooseExperiment(args, &flags)
	if err == nil {
		err = dut.CheckVariants(exp)
	}
	if err != nil {
		return &exitError{exitUsage, err}
	}
	if flags.profile {
		if !exp.Applies("profile_window") {
			return &exitError{exitUsage, fmt.Errorf("--profile: %s measures %s, and %s have no profiles", exp.Name, exp.Measure,
				words.Plural(exp.Describe().Block))}
		}
		exp.ProfileWindow = cmp.Or(exp.ProfileWindow, experiment.DefaultProfileWindow)
	}
	guest, inside, err := vm.FromEnvironment()
	if err != nil {
		return err
	}
	if !inside { // before a folder is made
		if err := flags.checkKernels(ctx, append(flags.kernels, flags.guest.kernel)...); err != nil {
			return err
		}
	}
	if !flags.resuming {
		var forget func()
		if dir, forget, err = makeRunFolder(exp, flags); err != nil {
			return &exitError{exitUsage, err}
		}
		defer forget()
	}
	flags.begin = beginning(args, flags, dir)
	switch {
	case inside:
		return measureHere(ctx, exp, dir, flags, guest)
	case len(flags.kernels) > 1:
		return beginKernels(ctx, exp, dir, flags)
	case flags.guest.kernel != "":
		return runInGuest(ctx, exp, dir, flags)
	}
	if err := os.Remove(filepath.Join(dir, result.GuestFile)); err != nil && !errors.Is(err, fs.ErrNotExist) &&
		!errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("a guest that did not start has left a file in the run's folder: %w", err)
	}
	return measureHere(ctx, exp, dir, flags, nil)
}

// measureHere measures under the kernel that this program runs under: the machine's, or, where guest is set, that of
// the virtual machine.
func measureHere(ctx context.Context, exp *experiment.Experiment, dir string, flags runFlags, guest *result.VM) error {
	inside, command := guest != nil, repeatCommand(dir)
	if inside {
		command += " " + quote.Command("--kernel", cmp.Or(flags.guest.kernel, guest.Release))
	}
	if guest.Mark() != "" {
		if err := forEmulatedCPU(exp, flags.guest.setKeys); err != nil {
			return err
		}
	}
	line := newStatusLine(os.Stderr)
	var outcome runner.Outcome
	runErr := flags.whenFree(ctx, func() (err error) {
		if err := checkFree(dir); !flags.resuming && err != nil { // the run that was waited for may have used it
			return &exitError{exitUsage, err}
		}
		measured := measure.All().Of(exp)
		outcome, err = runner.Run(ctx, runner.Config{
			Measure: measured.Run(), Records: measured.Records(), Experiment: exp, Dir: dir, Version: version,
			Command: command, Status: line.show, Begin: flags.begin, VM: guest, Widths: measure.All().Widths,
		})
		return err
	})
	line.clear()
	end := runEnd{outcome, exp, dir, flags.strict}
	if !outcome.Started { // this run wrote nothing, so there is nothing to report
		return end.code(runErr, analysis.Summary{})
	}
	if inside { // the machine outside makes the report
		run, err := measure.ReadRun(dir)
		if err != nil {
			return errors.Join(runErr, err)
		}
		return end.code(runErr, measure.Summarise(run, analysis.Options{}))
	}
	summary, err := report.Write(dir)
	if err != nil {
		return errors.Join(end.code(runErr, summary), withoutFiles(summary, err, flags.json))
	}
	if err = end.code(runErr, summary); !(flags.oneOfSeveral && flags.json) {
		if failed := printSummary(stdout, dir, summary, flags.json); failed != nil {
			return errors.Join(err, failed)
		}
	}
	if err == nil && outcome.Open > 0 { // not enough for the run to fail, but worth a hint
		fmt.Fprintln(os.Stderr, "gateweigh:", withMissing(errors.New("some blocks failed"), outcome, dir))
	}
	return err
}

// chooseExperiment returns the experiment to measure. For a run that is resumed it also returns the run's folder, and
// sets the guest that the run was begun in.
func chooseExperiment(args []string, flags *runFlags) (*experiment.Experiment, string, error) {
	if flags.resuming {
		if flags.resume == "" {
			return nil, "", errors.New("--resume: name the folder of the run to continue")
		}
		if len(args) > 0 {
			return nil, "", refuseExperiment(args[0], flags.resume)
		}
		if len(flags.set) > 0 || flags.out != "" || len(flags.kernels) > 0 {
			return nil, "", errors.New("--resume continues a run as it was begun: give it alone")
		}
		if info, err := os.Stat(flags.resume); err == nil && !info.IsDir() {
			return nil, "", fmt.Errorf(
				"--resume %s: a file cannot be resumed; of a bundle, unpack it (%s makes the folder run) and resume that folder",
				flags.resume, quote.Command("tar", "xzf", flags.resume))
		}
		if err := flags.guest.readFrom(flags.resume); err != nil {
			return nil, "", err
		}
		exp, err := experimentOf(filepath.Clean(flags.resume))
		return exp, filepath.Clean(flags.resume), err
	}
	name := defaultName
	if len(args) == 1 {
		name = args[0]
	}
	exp, err := loadExperiment(name)
	if err != nil {
		return nil, "", err
	}
	if err := override(exp, flags.set); err != nil {
		return nil, "", err
	}
	flags.guest.setKeys = keysOf(flags.set)
	if len(flags.kernels) == 1 && flags.kernels[0] != native {
		flags.guest.kernel = flags.kernels[0]
	}
	return exp, "", nil
}

// refuseExperiment returns the error for --resume with an experiment. A run is resumed with its own experiment only:
// otherwise one run would mix windows of the device before and after a change.
func refuseExperiment(file, dir string) error {
	return fmt.Errorf(
		"--resume continues a run as it was begun, with %s: %s is not taken, because windows of the device before and "+
			"after a change would stand in one run. "+
			"Measure the changed one anew, %s, or finish the run as it is, %s",
		filepath.Join(dir, result.ExperimentFile), quote.Word(file), quote.Command("gateweigh", "run", file),
		resumeCommand(dir))
}

// beginning returns the command that runs the same experiment, without the choice of devices, such as "gateweigh run
// quick --set clients=5". Hints append their own devices to it.
func beginning(args []string, flags runFlags, dir string) string {
	if flags.resuming {
		return repeatCommand(dir)
	}
	command := []string{"gateweigh", "run", defaultName}
	if len(args) == 1 {
		command[2] = args[0]
	}
	for _, s := range flags.set {
		if key, _, _ := strings.Cut(s, "="); strings.TrimSpace(key) != "duts" {
			command = append(command, "--set", s)
		}
	}
	return quote.Command(command...)
}

// repeatCommand returns the command that measures the experiment of the run in dir once more, in a new run.
func repeatCommand(dir string) string {
	return quote.Command("gateweigh", "run", filepath.Join(dir, result.ExperimentFile))
}

// resumeCommand returns the command that continues the run in dir, with more flags appended.
func resumeCommand(dir string, more ...string) string {
	return quote.Command(append([]string{"gateweigh", "run", "--resume", dir}, more...)...)
}

// experimentOf returns the experiment that the run in dir measures.
func experimentOf(dir string) (*experiment.Experiment, error) {
	exp, err := measure.Catalogue().Load(filepath.Join(dir, result.ExperimentFile))
	if !errors.Is(err, fs.ErrNotExist) {
		return exp, err
	}
	if _, err := measure.ReadRun(dir); err != nil {
		return nil, fmt.Errorf("--resume: nothing to continue: %w", err)
	}
	return nil, fmt.Errorf(
		"--resume: %s is missing from %s, so what was planned is not known: bring it back from where the run was made or "+
			"from a bundle of it, "+
			"or measure anew into another folder", result.ExperimentFile, dir)
}

// loadExperiment loads an experiment by the path of its file or by the name of a built-in one.
func loadExperiment(name string) (*experiment.Experiment, error) {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return nil, fmt.Errorf(
			"%s is a folder: name the experiment's file in it, or, to continue a run, --resume %s", name, name)
	}
	if strings.HasSuffix(name, ".toml") || strings.ContainsRune(name, filepath.Separator) {
		return measure.Catalogue().Load(name)
	}
	return measure.Catalogue().Builtin(name)
}

// printSummary prints a summary and where the report in dir is.
func printSummary(w io.Writer, dir string, s analysis.Summary, asJSON bool) error {
	if err := printTable(w, s, asJSON); err != nil || asJSON {
		return err
	}
	_, err := fmt.Fprintf(w, "\nreport: %s\n", filepath.Join(dir, report.HTMLFile))
	return err
}

// printTable prints a summary as a table, or in the form of summary.json.
func printTable(w io.Writer, s analysis.Summary, asJSON bool) error {
	if asJSON {
		return report.JSON(w, s)
	}
	return report.Terminal(w, s, terminalWidth(os.Stdout))
}

// override applies --set KEY=VALUE flags and checks the experiment again. The description, which heads the report, may
// contradict a change ("20 clients"). So it is replaced by the changes, followed by the old description in brackets.
func override(exp *experiment.Experiment, sets []string) error {
	var errs []error
	described := exp.Description
	for _, s := range sets {
		key, value, ok := strings.Cut(s, "=")
		if key = strings.TrimSpace(key); !ok || key == "" {
			errs = append(errs, fmt.Errorf("--set %s: want KEY=VALUE", s))
			continue
		}
		if err := exp.Set(key, value); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if len(sets) > 0 && exp.Description == described && described != "" {
		exp.SetDescription(fmt.Sprintf("%s with %s (without that: %s)", exp.Name, strings.Join(sets, ", "), described))
	}
	return exp.Check()
}
