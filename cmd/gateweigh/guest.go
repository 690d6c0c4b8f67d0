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

// guestRecord is the content of result.GuestFile. A guest is a virtual machine with another kernel; a run that was
// begun in one must be resumed under the same kernel.
type guestRecord struct {
	Kernel    string `json:"kernel"` // a release or an absolute path
	MemoryMiB int    `json:"memory_mib"`
	// SetKeys are the keys that --set changed. On an emulated CPU loads are divided, but not those that the user has set.
	SetKeys []string `json:"given,omitempty"`
}

// readFrom sets the flags to the guest that the run in dir was begun in. A run under this machine's kernel has no such
// record, and changes nothing.
func (f *guestFlags) readFrom(dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, result.GuestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var o guestRecord
	if err == nil {
		err = json.Unmarshal(data, &o)
	}
	if err != nil {
		return fmt.Errorf("--resume: which kernel the run had: %w", err)
	}
	f.kernel, f.memoryMiB, f.setKeys = o.Kernel, cmp.Or(f.memoryMiB, o.MemoryMiB), o.SetKeys
	return nil
}

// writeTo writes the guest's record into the run's folder.
func (f guestFlags) writeTo(dir string) error {
	data, err := json.Marshal(guestRecord{f.kernel, f.memoryMiB, f.setKeys})
	if err != nil {
		return err
	}
	return result.ReplaceFile(filepath.Join(dir, result.GuestFile), append(data, '\n'))
}

// runInGuest measures in a guest and makes the report here. The guest writes what it measured into the run's folder,
// which this machine shares with it.
func runInGuest(ctx context.Context, exp *experiment.Experiment, dir string, flags runFlags) error {
	var unlock func()
	if err := flags.whenFree(ctx, func() (err error) { unlock, err = runner.LockMachine(dir); return err }); err != nil {
		return err
	}
	defer unlock()
	if err := checkFree(dir); !flags.resuming && err != nil { // the run that was waited for may have used it
		return &exitError{exitUsage, err}
	}
	k, err := findKernel(ctx, flags.guest.kernel)
	if err != nil {
		return err
	}
	flags.guest.kernel = k.Release // "debian" may be a newer kernel at a resume, a release stays the same
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
		Logs: logs, Timeout: timeLimit(exp)}
	if err := cfg.Check(); err != nil {
		return err
	}
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return fmt.Errorf("making the run's folder: %w", err)
	}
	if err := errors.Join(runner.WriteExperiment(dir, exp), flags.guest.writeTo(dir)); err != nil {
		return err
	}
	cfg.Shares = []string{folder}
	code, err := flags.guest.start(ctx, cfg)
	trials, _ := os.Stat(filepath.Join(dir, result.TrialsFile))
	empty := trials == nil || trials.Size() == 0
	switch {
	case err != nil:
		err = withNextStep(ctx, err, dir, empty)
	case code != 0 && empty:
		err = &exitError{code, fmt.Errorf(
			"the guest, with %d MiB of memory (--vm-memory), refused the run: nothing was measured, and %s can be removed",
			cmp.Or(flags.guest.memoryMiB, vm.DefaultMemoryMiB), dir)}
	default:
		err = withGuestsCode(code, nil)
	}
	if empty {
		return err
	}
	summary, failed := report.Write(dir)
	if failed == nil && !(flags.oneOfSeveral && flags.json) {
		failed = printSummary(stdout, dir, summary, flags.json)
	}
	if coded := (*exitError)(nil); failed != nil && errors.As(err, &coded) && coded.err == errPrinted {
		return failed
	}
	if failed != nil {
		return errors.Join(failed, err)
	}
	return err
}

// guestCommand returns the command that measures the run in dir in the guest. program is the path of this program.
func guestCommand(program, dir string, strict bool) []string {
	command := []string{program, "run", "--resume", dir}
	if strict {
		command = append(command, "--strict")
	}
	return command
}

// withNextStep adds to an error the command that continues the run in dir. empty says that it has no trial yet.
func withNextStep(ctx context.Context, err error, dir string, empty bool) error {
	if ctx.Err() != nil && !errors.Is(err, vm.ErrInterrupted) {
		err = vm.ErrInterrupted
	}
	if empty {
		return fmt.Errorf("%w\nnothing was measured: begin again with %s", err, resumeCommand(dir))
	}
	return fmt.Errorf("%w\nfinished trials are kept: continue with %s", err, resumeCommand(dir))
}

// forEmulatedCPU lowers an experiment's loads to what an emulated CPU, which is many times slower, can carry. It prints
// what it changed, and adds it to the experiment's description. Keys in given stay as they are.
func forEmulatedCPU(exp *experiment.Experiment, given []string) error {
	changes, err := exp.ForEmulatedCPU(given)
	if err != nil || changes == "" {
		return err
	}
	exp.SetDescription(strings.TrimSpace(exp.Description + " (" + changes + ")"))
	fmt.Fprintf(os.Stderr, "%s. For other loads: --set %s=...\n", words.Capitalised(changes), exp.LoadKey())
	return nil
}

// timeLimit returns how long a run may take at this machine's speed: its longest estimated time, but at least twice the
// expected one, so that rejected trials can be repeated. A slower guest multiplies it.
func timeLimit(exp *experiment.Experiment) time.Duration {
	_, most := exp.DurationBounds()
	return max(most, 2*exp.EstimatedDuration()) + time.Minute
}
