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

// native is the name of this machine's own kernel beside others.
const native = "native"

// kernelsFile is what the folder of a comparison of kernels holds besides a run's folder for each of them.
const kernelsFile = "kernels.json"

// kernelsOrder is kernelsFile: what is measured under which kernels. Measured is in the order of the list.
type kernelsOrder struct {
	Kernels   []orderedKernel `json:"kernels"`
	MemoryMiB int             `json:"memory_mib"`
	Given     []string        `json:"given,omitempty"` // as in guestOrder
}

// orderedKernel is one of the kernels. The folder below the comparison's is named after its release.
type orderedKernel struct {
	Folder string `json:"folder"`
	Kernel string `json:"kernel"` // as guestOrder has it; native
}

// keysOf are the keys of --set KEY=VALUE.
func keysOf(sets []string) (keys []string) {
	for _, s := range sets {
		key, _, _ := strings.Cut(s, "=")
		keys = append(keys, strings.TrimSpace(key))
	}
	return keys
}

// held reports whether a folder holds a run, or a comparison of kernels.
func held(dir string) bool {
	return slices.ContainsFunc([]string{result.TrialsFile, kernelsFile}, func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	})
}

// beginKernels measures an experiment under several kernels, one after the other, and compares.
func beginKernels(ctx context.Context, exp *experiment.Experiment, dir string, flags runFlags) error {
	order := kernelsOrder{MemoryMiB: flags.guest.memoryMiB, Given: flags.guest.given}
	var last []orderedKernel // the machine's own has the loads that the guests had
	for _, name := range flags.kernels {
		k := orderedKernel{native, native}
		if name != native {
			found, err := findKernel(ctx, name)
			if err != nil {
				return err
			}
			k = orderedKernel{found.Release, found.Release}
			if filepath.IsAbs(found.Name) {
				k.Kernel = found.Name
			}
		}
		if slices.ContainsFunc(append(order.Kernels, last...), func(o orderedKernel) bool { return o.Folder == k.Folder }) {
			return &exitError{
				exitUsage, fmt.Errorf("--kernel %s: %s is named twice, and would be compared with itself", name, k.Folder)}
		}
		if name == native {
			last = append(last, k)
		} else {
			order.Kernels = append(order.Kernels, k)
		}
	}
	order.Kernels = append(order.Kernels, last...)
	data, err := json.Marshal(order)
	if err != nil {
		return err
	}
	if err := equalLoads(ctx, exp, order, flags.guest); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the folder of the comparison: %w", err)
	}
	if err := errors.Join(runner.WriteExperiment(dir, exp), result.ReplaceFile(filepath.Join(dir, kernelsFile), append(
		data, '\n'))); err != nil {
		return err
	}
	return runKernels(ctx, exp, dir, order, flags)
}

// equalLoads boots each kernel where KVM may start some of them and not others, and divides the loads of all then: each
// guest would decide for itself. Where all are emulated, all decide the same, and native has the loads of the first.
func equalLoads(ctx context.Context, exp *experiment.Experiment, order kernelsOrder, flags guestFlags) error {
	several := len(order.Kernels) > 2 ||
		!slices.ContainsFunc(order.Kernels, func(k orderedKernel) bool { return k.Kernel == native })
	if _, err := os.Stat("/dev/kvm"); err != nil || !several {
		return nil // all are emulated, or there is one guest
	}
	var guests []*result.VM
	for _, k := range order.Kernels {
		if k.Kernel == native {
			continue
		}
		flags.kernel, flags.memoryMiB = k.Kernel, order.MemoryMiB
		ended, err := flags.boot(ctx, vm.Config{Command: []string{"/bin/true"}})
		if err != nil {
			return fmt.Errorf("kernel %s: %w", k.Folder, err)
		}
		guests = append(guests, &ended.VM)
	}
	return likeEmulated(exp, guests, flags.given)
}

// likeEmulated gives an experiment the loads of an emulated CPU where some of the guests have one, and others have not.
func likeEmulated(exp *experiment.Experiment, guests []*result.VM, given []string) error {
	emulated := func(g *result.VM) bool { return g.Mark() != "" }
	all := !slices.ContainsFunc(guests, func(g *result.VM) bool { return !emulated(g) })
	if all || !slices.ContainsFunc(guests, emulated) {
		return nil
	}
	return forEmulatedCPU(exp, given)
}

// recallKernels reads a comparison that is to be continued; false: the folder holds none.
func recallKernels(dir string) (order kernelsOrder, is bool, err error) {
	data, err := os.ReadFile(filepath.Join(dir, kernelsFile))
	if dir == "" || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return order, false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &order)
	}
	if err != nil {
		return order, true, fmt.Errorf("which kernels %s compares: %w", dir, err)
	}
	return order, true, nil
}

// oneRun refuses a comparison of kernels where a command wants a run, and names the runs that it has.
func oneRun(name string) error {
	order, several, err := recallKernels(name)
	if err != nil || !several {
		return err
	}
	var runs []string
	for _, k := range order.Kernels {
		runs = append(runs, filepath.Join(name, k.Folder))
	}
	return &exitError{
		exitUsage, fmt.Errorf("%s compares kernels, and has a run for each: give one of %s", name, strings.Join(runs, ", "))}
}

// reportKernels rebuilds the reports of each kernel's run and of all of them.
func reportKernels(dir string, order kernelsOrder, asJSON bool) error {
	for _, k := range order.Kernels {
		if _, err := report.Write(filepath.Join(dir, k.Folder)); err != nil {
			return fmt.Errorf("kernel %s: %w\nto measure what is missing: %s", k.Folder, err, resumption(dir))
		}
	}
	return compareKernels(dir, order, asJSON)
}

// resumeKernels continues a comparison of kernels.
func resumeKernels(ctx context.Context, args []string, order kernelsOrder, flags runFlags, err error) error {
	if err == nil && len(args) > 0 {
		err = notTaken(args[0], flags.resume)
	}
	if err == nil && (len(flags.set) > 0 || flags.out != "" || len(flags.kernels) > 0) {
		err = &exitError{exitUsage, errors.New("--resume continues a run as it was begun: give it alone")}
	}
	if err != nil {
		return err
	}
	dir := filepath.Clean(flags.resume)
	exp, err := plannedIn(dir)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	var names []string
	for _, k := range order.Kernels {
		names = append(names, k.Kernel)
	}
	if err := flags.checkKernels(ctx, names...); err != nil {
		return err
	}
	flags.guest.memoryMiB, flags.guest.given, flags.begin = cmp.Or(flags.guest.memoryMiB, order.MemoryMiB), order.Given,
		beginning(nil, flags, dir)
	return runKernels(ctx, exp, dir, order, flags)
}

// runKernels measures what is not measured yet and makes the report of all kernels. A run that lacks trials does not
// keep the others from being measured.
func runKernels(ctx context.Context, exp *experiment.Experiment, dir string, order kernelsOrder, flags runFlags) error {
	flags.part = true
	var lacking error
	for i, k := range order.Kernels {
		folder := filepath.Join(dir, k.Folder)
		if finished(folder) {
			fmt.Fprintf(os.Stderr, "kernel %s: measured already\n", k.Folder)
			continue
		}
		fmt.Fprintf(os.Stderr, "kernel %s, %d of %d\n", k.Folder, i+1, len(order.Kernels))
		err := runUnder(ctx, exp, folder, k, filepath.Join(dir, order.Kernels[0].Folder), flags)
		if err != nil && (ctx.Err() != nil || !finished(folder)) {
			return stoppedUnder(err, k.Folder, dir)
		}
		if err != nil && lacking == nil {
			lacking = fmt.Errorf("kernel %s: %w", k.Folder, err)
		}
	}
	return errors.Join(compareKernels(dir, order, flags.json), lacking)
}

// stoppedUnder is the error of a comparison that ended under one of its kernels.
func stoppedUnder(err error, kernel, dir string) error {
	how := "to measure what is missing, under all kernels: " + resumption(dir)
	var coded *exitError
	if errors.As(err, &coded) && coded.err == errSaid { // the guest has printed why
		return &exitError{coded.code, fmt.Errorf("kernel %s was not measured to the end\n%s", kernel, how)}
	}
	return fmt.Errorf("kernel %s: %w\n%s", kernel, err, how)
}

// finished reports whether a run came to its end.
func finished(dir string) bool {
	run, err := measure.ReadRun(dir)
	return err == nil && !run.Environment.End.IsZero() && !run.Environment.Interrupted && run.Unrecorded == 0
}

// runUnder measures under one kernel. The machine's own kernel has the experiment as the first one had it: a guest may
// have divided the loads.
func runUnder(ctx context.Context, exp *experiment.Experiment, dir string, k orderedKernel, first string,
	flags runFlags) error {
	for _, from := range []string{dir, first} {
		if from == first && k.Kernel != native {
			break
		}
		if _, err := os.Stat(filepath.Join(from, result.ExperimentFile)); err == nil {
			if exp, err = plannedIn(from); err != nil {
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

// compareKernels compares the first kernel's run with each of the others, here and in the report.
func compareKernels(dir string, order kernelsOrder, asJSON bool) error {
	var inputs []compare.Input
	for _, k := range order.Kernels {
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
