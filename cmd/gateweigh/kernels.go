package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/gateweigh/gateweigh/lab/compare"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/vm"
)

// native is the name that --kernel takes for this machine's own kernel.
const native = "native"

// kernelsFile marks a folder as a comparison of kernels: a run with several --kernel flags. Beside it lies the folder
// of a run for each kernel.
const kernelsFile = "kernels.json"

// kernelsPlan is the content of kernelsFile: the kernels, in the order in which they are measured.
type kernelsPlan struct {
	Kernels   []plannedKernel `json:"kernels"`
	MemoryMiB int             `json:"memory_mib"`
	SetKeys   []string        `json:"given,omitempty"` // as in guestRecord
}

// plannedKernel is one of the kernels of a comparison.
type plannedKernel struct {
	Folder string `json:"folder"` // of its run, below the comparison's: its release, or native
	Kernel string `json:"kernel"` // as in guestRecord, or native
}

// keysOf returns the keys in values of --set, which are KEY=VALUE.
func keysOf(sets []string) (keys []string) {
	for _, s := range sets {
		key, _, _ := strings.Cut(s, "=")
		keys = append(keys, strings.TrimSpace(key))
	}
	return keys
}

// holdsRun reports whether a folder holds a run, or a comparison of kernels.
func holdsRun(dir string) bool {
	return slices.ContainsFunc([]string{result.TrialsFile, kernelsFile}, func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	})
}

// beginKernels measures an experiment under several kernels, one after the other, and compares the runs. native comes
// last, because it takes over the loads of the guests, which their slower CPUs may have lowered.
func beginKernels(ctx context.Context, exp *experiment.Experiment, dir string, flags runFlags) error {
	plan := kernelsPlan{MemoryMiB: flags.guest.memoryMiB, SetKeys: flags.guest.setKeys}
	var last []plannedKernel
	for _, name := range flags.kernels {
		k := plannedKernel{native, native}
		if name != native {
			found, err := findKernel(ctx, name)
			if err != nil {
				return err
			}
			k = plannedKernel{found.Release, found.Release}
			if filepath.IsAbs(found.Name) {
				k.Kernel = found.Name
			}
		}
		if slices.ContainsFunc(append(plan.Kernels, last...), func(o plannedKernel) bool { return o.Folder == k.Folder }) {
			return &exitError{
				exitUsage, fmt.Errorf("--kernel %s: %s is named twice, and would be compared with itself", name, k.Folder)}
		}
		if name == native {
			last = append(last, k)
		} else {
			plan.Kernels = append(plan.Kernels, k)
		}
	}
	plan.Kernels = append(plan.Kernels, last...)
	data, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	if err := equalLoads(ctx, exp, plan, flags.guest); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the folder of the comparison: %w", err)
	}
	if err := errors.Join(runner.WriteExperiment(dir, exp), result.ReplaceFile(filepath.Join(dir, kernelsFile), append(
		data, '\n'))); err != nil {
		return err
	}
	return runKernels(ctx, exp, dir, plan, flags)
}

// equalLoads makes sure that all kernels are measured under the same loads. A guest whose CPU is emulated lowers its
// loads by itself, and with KVM some kernels may start and others not. So equalLoads boots each kernel, and lowers the
// loads of all where some are emulated. That is not needed without KVM, where all guests lower their loads alike.
func equalLoads(ctx context.Context, exp *experiment.Experiment, plan kernelsPlan, flags guestFlags) error {
	several := len(plan.Kernels) > 2 ||
		!slices.ContainsFunc(plan.Kernels, func(k plannedKernel) bool { return k.Kernel == native })
	if _, err := os.Stat("/dev/kvm"); err != nil || !several {
		return nil // all guests are emulated, or there is only one
	}
	var guests []*result.VM
	for _, k := range plan.Kernels {
		if k.Kernel == native {
			continue
		}
		flags.kernel, flags.memoryMiB = k.Kernel, plan.MemoryMiB
		ended, err := flags.run(ctx, vm.Config{Command: []string{"/bin/true"}})
		if err != nil {
			return fmt.Errorf("kernel %s: %w", k.Folder, err)
		}
		guests = append(guests, &ended.VM)
	}
	return equalise(exp, guests, flags.setKeys)
}

// equalise lowers an experiment's loads to those of an emulated CPU where some guests have one and others do not. Keys
// in setKeys stay as they are.
func equalise(exp *experiment.Experiment, guests []*result.VM, setKeys []string) error {
	emulated := func(g *result.VM) bool { return g.Mark() != "" }
	all := !slices.ContainsFunc(guests, func(g *result.VM) bool { return !emulated(g) })
	if all || !slices.ContainsFunc(guests, emulated) {
		return nil
	}
	return forEmulatedCPU(exp, setKeys)
}

// readKernelsPlan reads the plan of the comparison of kernels in a folder; found is false where the folder holds none.
func readKernelsPlan(dir string) (plan kernelsPlan, found bool, err error) {
	data, err := os.ReadFile(filepath.Join(dir, kernelsFile))
	if dir == "" || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return plan, false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &plan)
	}
	if err != nil {
		return plan, true, fmt.Errorf("which kernels %s compares: %w", dir, err)
	}
	return plan, true, nil
}

// oneRun returns an error where a command wants one run and name is a comparison of kernels. The error lists its runs.
func oneRun(name string) error {
	plan, several, err := readKernelsPlan(name)
	if err != nil || !several {
		return err
	}
	var runs []string
	for _, k := range plan.Kernels {
		runs = append(runs, filepath.Join(name, k.Folder))
	}
	return &exitError{
		exitUsage, fmt.Errorf("%s compares kernels, and has a run for each: give one of %s", name, strings.Join(runs, ", "))}
}

// openOneRun is measure.Open for a command that wants one run. For a comparison of kernels it returns oneRun's error.
func openOneRun(ctx context.Context, name string) (run result.Run, forget func(), err error) {
	if err := oneRun(name); err != nil {
		return run, func() {}, err
	}
	return measure.Open(ctx, name)
}

// reportKernels rebuilds the report of each kernel's run, and the report that compares them.
func reportKernels(dir string, plan kernelsPlan, asJSON bool) error {
	for _, k := range plan.Kernels {
		if _, err := report.Write(filepath.Join(dir, k.Folder)); err != nil {
			return fmt.Errorf("kernel %s: %w\nto measure what is missing: %s", k.Folder, err, resumeCommand(dir))
		}
	}
	return compareKernels(dir, plan, asJSON)
}

// resumeKernels continues a comparison of kernels. err is the error of reading its plan.
func resumeKernels(ctx context.Context, args []string, plan kernelsPlan, flags runFlags, err error) error {
	if err == nil && len(args) > 0 {
		err = refuseExperiment(args[0], flags.resume)
	}
	if err == nil && (len(flags.set) > 0 || flags.out != "" || len(flags.kernels) > 0) {
		err = &exitError{exitUsage, errors.New("--resume continues a run as it was begun: give it alone")}
	}
	if err != nil {
		return err
	}
	dir := filepath.Clean(flags.resume)
	exp, err := experimentOf(dir)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	var names []string
	for _, k := range plan.Kernels {
		names = append(names, k.Kernel)
	}
	if err := flags.checkKernels(ctx, names...); err != nil {
		return err
	}
	flags.guest.memoryMiB = cmp.Or(flags.guest.memoryMiB, plan.MemoryMiB)
	flags.guest.setKeys = plan.SetKeys
	flags.begin = beginning(nil, flags, dir)
	return runKernels(ctx, exp, dir, plan, flags)
}

// runKernels measures under each kernel that is not measured yet, and makes the report that compares them. A run that
// came to its end with trials missing does not keep the other kernels from being measured.
func runKernels(ctx context.Context, exp *experiment.Experiment, dir string, plan kernelsPlan, flags runFlags) error {
	flags.oneOfSeveral = true
	var incomplete error // of the first run that lacks trials
	for i, k := range plan.Kernels {
		folder := filepath.Join(dir, k.Folder)
		if finished(folder) {
			fmt.Fprintf(os.Stderr, "kernel %s: measured already\n", k.Folder)
			continue
		}
		fmt.Fprintf(os.Stderr, "kernel %s, %d of %d\n", k.Folder, i+1, len(plan.Kernels))
		err := runUnder(ctx, exp, folder, k, filepath.Join(dir, plan.Kernels[0].Folder), flags)
		if err != nil && (ctx.Err() != nil || !finished(folder)) {
			return stoppedUnder(err, k.Folder, dir)
		}
		if err != nil && incomplete == nil {
			incomplete = fmt.Errorf("kernel %s: %w", k.Folder, err)
		}
	}
	return errors.Join(compareKernels(dir, plan, flags.json), incomplete)
}

// stoppedUnder returns the error of a comparison that ended early, while it measured under a kernel.
func stoppedUnder(err error, kernel, dir string) error {
	how := "to measure what is missing, under all kernels: " + resumeCommand(dir)
	var coded *exitError
	if errors.As(err, &coded) && coded.err == errPrinted { // the guest has printed why
		return &exitError{coded.code, fmt.Errorf("kernel %s was not measured to the end\n%s", kernel, how)}
	}
	return fmt.Errorf("kernel %s: %w\n%s", kernel, err, how)
}

// finished reports whether the run in dir came to its end.
func finished(dir string) bool {
	run, err := measure.ReadRun(dir)
	return err == nil && !run.Environment.End.IsZero() && !run.Environment.Interrupted && run.Unrecorded == 0
}

// runUnder measures under one kernel. A run that was begun goes on with the experiment in its folder. The machine's own
// kernel takes the experiment from first, the folder of the first guest's run, because the guest may have lowered
// loads.
func runUnder(ctx context.Context, exp *experiment.Experiment, dir string, k plannedKernel, first string,
	flags runFlags) error {
	for _, from := range []string{dir, first} {
		if from == first && k.Kernel != native {
			break
		}
		if _, err := os.Stat(filepath.Join(from, result.ExperimentFile)); err == nil {
			if exp, err = experimentOf(from); err != nil {
				return err
			}
			break
		}
	}
	if k.Kernel == native {
		return measureHere(ctx, exp, dir, flags, nil)
	}
	flags.guest.kernel = k.Kernel
	return runInGuest(ctx, exp, dir, flags)
}

// compareKernels compares the first kernel's run with each of the others, and prints that and writes it into the
// report.
func compareKernels(dir string, plan kernelsPlan, asJSON bool) error {
	var inputs []compare.Input
	for _, k := range plan.Kernels {
		run, err := measure.ReadRun(filepath.Join(dir, k.Folder))
		if err != nil {
			return err
		}
		inputs = append(inputs, compare.Input{Name: k.Folder, Run: run})
	}
	var all []compare.Comparison
	for _, b := range inputs[1:] {
		all = append(all, compare.Runs(inputs[0], b, compare.Defaults()))
	}
	var page bytes.Buffer
	if err := compare.HTML(&page, all, func(name string) string { return name + "/" + report.HTMLFile }); err != nil {
		return err
	}
	file := filepath.Join(dir, report.HTMLFile)
	if err := result.ReplaceFile(file, page.Bytes()); err != nil {
		return err
	}
	if asJSON {
		return report.JSON(stdout, all)
	}
	for _, c := range all {
		if err := compare.Text(stdout, c); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(stdout, "\nreport of all kernels: %s\n", file)
	return err
}
