package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/vm"
	"github.com/gateweigh/gateweigh/lab/words"
)

// guestOrder is the content of result.GuestFile: the virtual machine (guest) in which a run was begun and must be
// resumed.
type guestOrder struct {
	Kernel    string `json:"kernel"` // a release or an absolute path
	MemoryMiB int    `json:"memory_mib"`
	// Given are keys that were set with --set. The divisor for an emulated CPU leaves them as they are.
	Given []string `json:"given,omitempty"`
}

// recall reads the guest of an interrupted run. Runs without one have no such file.
func (f *guestFlags) recall(dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, result.GuestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var o guestOrder
	if err == nil {
		err = json.Unmarshal(data, &o)
	}
	if err != nil {
		return fmt.Errorf("--resume: which kernel the run had: %w", err)
	}
	f.kernel, f.memoryMiB, f.given = o.Kernel, cmp.Or(f.memoryMiB, o.MemoryMiB), o.Given
	return nil
}

// keep writes the guest into the run's folder.
func (f guestFlags) keep(dir string) error {
	data, err := json.Marshal(guestOrder{f.kernel, f.memoryMiB, f.given})
	if err != nil {
		return err
	}
	return result.ReplaceFile(filepath.Join(dir, result.GuestFile), append(data, '\n'))
}

// runInGuest measures in a guest and makes the report here. Between the two goes the run's folder, which both see.
func runInGuest(ctx context.Context, exp *experiment.Experiment, dir string, flags runFlags) error {
	var unlock func()
	if err := flags.whenFree(ctx, func() (err error) { unlock, err = runner.LockMachine(dir); return err }); err != nil {
		return err
	}
	defer unlock()
	if err := taken(dir); !flags.resuming && err != nil { // by a run that was waited for
		return &exitError{exitUsage, err}
	}
	k, err := findKernel(ctx, flags.guest.kernel)
	if err != nil {
		return err
	}
	flags.guest.kernel = k.Release // a resume is to have the same, also when there is a newer one
	if filepath.IsAbs(k.Name) {
		flags.guest.kernel = k.Name
	}
	folder, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	logs := filepath.Join(folder, result.LogsFolder)
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cfg := vm.Config{Command: guestCommand(program, dir, flags.strict), Kernel: k, MemoryMiB: flags.guest.memoryMiB,
		Logs: logs, Timeout: patience(exp)}
	if err := cfg.Check(); err != nil {
		return err
	}
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return fmt.Errorf("making the run's folder: %w", err)
	}
	if err := errors.Join(runner.WriteExperiment(dir, exp), flags.guest.keep(dir)); err != nil {
		return err
	}
	cfg.Shares = []string{folder}
	code, err := flags.guest.start(ctx, cfg)
	kept, _ := os.Stat(filepath.Join(dir, result.TrialsFile))
	none := kept == nil || kept.Size() == 0
	switch {
	case err != nil:
		err = goesOn(ctx, err, dir, none)
	case code != 0 && none:
		err = &exitError{code, fmt.Errorf(
			"the guest, with %d MiB of memory (--vm-memory), refused the run: nothing was measured, and %s can be removed",
			cmp.Or(flags.guest.memoryMiB, vm.DefaultMemoryMiB), dir)}
	default:
		err = sameCode(code, nil)
	}
	if none {
		return err
	}
	summary, failed := report.Write(dir)
	if failed == nil && !(flags.part && flags.json) {
		failed = printSummary(stdout, dir, summary, flags.json)
	}
	if coded := (*exitError)(nil); failed != nil && errors.As(err, &coded) && coded.err == errSaid {
		return failed
	}
	if failed != nil {
		return errors.Join(failed, err)
	}
	return err
}

// guestCommand is what the guest runs: its exit code is the run's.
func guestCommand(own, dir string, strict bool) []string {
	command := []string{own, "run", "--resume", dir}
	if strict {
		command = append(command, "--strict")
	}
	return command
}

// goesOn adds to an error how a run goes on.
func goesOn(ctx context.Context, err error, dir string, none bool) error {
	if ctx.Err() != nil && !errors.Is(err, vm.ErrInterrupted) {
		err = vm.ErrInterrupted
	}
	if none {
		return fmt.Errorf("%w\nnothing was measured: begin again with %s", err, resumption(dir))
	}
	return fmt.Errorf("%w\nfinished trials are kept: continue with %s", err, resumption(dir))
}

// forEmulatedCPU makes an experiment one that an emulated CPU carries, and says so here and in the run's description.
func forEmulatedCPU(exp *experiment.Experiment, given []string) error {
	changes, err := exp.ForEmulatedCPU(given)
	if err != nil || changes == "" {
		return err
	}
	exp.SetDescription(strings.TrimSpace(exp.Description + " (" + changes + ")"))
	fmt.Fprintf(os.Stderr, "%s. For other loads: --set %s=...\n", words.Capitalised(changes), exp.LoadKey())
	return nil
}

// patience is how long a run is waited for at this machine's speed, with room for trials that are made again.
func patience(exp *experiment.Experiment) time.Duration {
	_, most := exp.DurationBounds()
	return max(most, 2*exp.EstimatedDuration()) + time.Minute
}
