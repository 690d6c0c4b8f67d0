// Tests of runs in a virtual machine with another kernel.

package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/kernel"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output.

// TestKernelRun measures under Debian's kernel. After the first trial the test kills QEMU. A resume keeps that trial
// and measures the rest.
func TestKernelRun(t *testing.T) {
	k, dir := labtest.Guests(t), t.TempDir()
	write(t, dir, "tiny.toml", `duts = ["allowlist"]
clients = [2]
offered_mbps = [40]
blocks = 2
aa_blocks = 0
windows = 1
window = "500ms"
warmup = "200ms"
redo = 0
`)
	cmd := command(t, dir, "run", "tiny.toml", "--kernel", k.Image, "--kernel", "native", "-o", "r")
	var output bytes.Buffer
	cmd.Stderr = &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	under := filepath.Join("r", k.Release)
	trials := filepath.Join(dir, under, result.TrialsFile)
	var kept []byte
	awaitGuest(t, "the first trial", ended, func() bool {
		kept, _ = os.ReadFile(trials)
		return bytes.Contains(kept, []byte(`"kind":"trial"`))
	})
	for _, pid := range labtest.QEMUs(cmd.Process.Pid) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	<-ended
	if code, text := cmd.ProcessState.ExitCode(), output.String(); code != exitFailed ||
		!strings.Contains(text, "run --resume r\n") || !strings.Contains(text, "before its command") {
		t.Errorf("with QEMU killed: exit %d: %s", code, text)
	}
	e := finish(t, command(t, dir, "run", "--resume", under))
	if e.code != 0 && e.code != exitRejected || !strings.Contains(e.stdout, filepath.Join(under, "report.html")) ||
		strings.Contains(e.stderr, errPrinted.Error()) {
		t.Errorf("resumed: exit %d: %s%s", e.code, e.stdout, e.stderr)
	}
	checkGuestRun(t, filepath.Join(dir, under), k, kept)
	all, err := os.ReadFile(trials)
	if err != nil {
		t.Fatal(err)
	}
	e = finish(t, command(t, dir, "run", "--resume", "r"))
	if now, err := os.ReadFile(trials); err != nil || !bytes.Equal(now, all) ||
		!strings.Contains(e.stderr, "measured already") {
		t.Errorf("the finished kernel was measured again: %v, exit %d: %s", err, e.code, e.stderr)
	}
	checkKernels(t, e, dir, k.Release)
}

// checkKernels requires both kernels to have had the same loads, and one report to compare them and link to both.
func checkKernels(t *testing.T, e ended, dir, release string) {
	t.Helper()
	guest, errs := measure.ReadRun(filepath.Join(dir, "r", release))
	here, err := measure.ReadRun(filepath.Join(dir, "r", "native"))
	page, bad := os.ReadFile(filepath.Join(dir, "r", "report.html"))
	if err := errors.Join(errs, err, bad); err != nil {
		t.Fatalf("%v; exit %d: %s%s", err, e.code, e.stdout, e.stderr)
	}
	emulated := guest.Environment.VM.Mark() != ""
	if mbps := here.Trials[0].Cell.Number(result.OfferedMbps); here.Trials[0].Cell != guest.Trials[0].Cell ||
		emulated != (mbps == 2) || here.Environment.VM != nil {
		t.Errorf("the guest had %v, the machine %v", guest.Trials[0].Cell, here.Trials[0].Cell)
	}
	for _, want := range []string{`href="` + release + `/report.html"`, `href="native/report.html"`} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the report of both has no %s", want)
		}
	}
	for name, text := range map[string]string{"page": string(page), "terminal": e.stdout} {
		if strings.Contains(text, result.EmulatedMark) != emulated {
			t.Errorf("%s: marked %t, want %t", name, !emulated, emulated)
		}
	}
}

// awaitGuest waits until ok returns true. It fails the test when the channel ended is closed before, because gateweigh
// has ended. what describes the awaited state.
func awaitGuest(t *testing.T, what string, ended <-chan struct{}, ok func() bool) {
	t.Helper()
	for !ok() {
		select {
		case <-ended:
			t.Fatalf("it ended before %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// checkGuestRun requires the run in dir to name its guest's kernel k, to have both trials once, and to have kept the
// records that trials.jsonl had before the test killed QEMU.
func checkGuestRun(t *testing.T, dir string, k kernel.Kernel, kept []byte) {
	t.Helper()
	run, err := measure.ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	env := run.Environment
	if env.VM == nil || env.VM.Release != k.Release || env.VM.Kernel != k.Image || env.VM.CPU != env.CPUModel ||
		!strings.HasPrefix(env.Kernel, k.Release) {
		t.Errorf("environment.json says kernel %q, CPU %q, machine %+v", env.Kernel, env.CPUModel, env.VM)
	}
	if emulated := strings.Contains(strings.Join(env.Notes, " "), "emulated CPU"); emulated != (env.VM.Accelerator == result.TCG) {
		t.Errorf("with %s the notes are %q", env.VM.Accelerator, env.Notes)
	}
	all, err := os.ReadFile(filepath.Join(dir, result.TrialsFile))
	if whole := kept[:bytes.LastIndexByte(kept, '\n')+1]; err != nil || !bytes.HasPrefix(all, whole) {
		t.Errorf("%v; before the kill:\n%s\nafter the resume:\n%s", err, kept, all)
	}
	if len(run.Trials) != 2 || run.Repeated > 0 {
		t.Errorf("%d trials, %d repeated, want one of each block", len(run.Trials), run.Repeated)
	}
}

// TestKernelUsage: an unknown kernel is a usage error that lists what is possible.
func TestKernelUsage(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	for _, args := range [][]string{{"kernel", "fetch", "fedora"}, {"kernel", "check", "./none"}, {"run", "--kernel",
		"6.0"}, {"run", "--resume", "r", "--kernel", "debian"},
		{"run", "--kernel", ""}, {"run", "--vm-memory", "2000"}, {"run", "--verbose"}} {
		if e := finish(t, command(t, dir, args...)); e.code != exitUsage || e.stderr == "" {
			t.Errorf("%v: exit %d: %s", args, e.code, e.stderr)
		}
	}
	if e := finish(t, command(t, dir, "kernel", "list")); e.code != 0 ||
		!strings.Contains(e.stdout, "kernel fetch debian") {
		t.Errorf("list: exit %d: %s%s", e.code, e.stdout, e.stderr)
	}
}

// TestRefusedGuest: run makes no folder when its guest cannot start here. With a folder a later run would ask to resume
// it.
func TestRefusedGuest(t *testing.T) {
	labtest.Guests(t)
	dir := t.TempDir()
	for _, mib := range []string{"99999999", "100", "-5"} {
		if e := finish(t, command(t, dir, "run", "--kernel", "debian", "--vm-memory", mib, "-o", "r")); e.code == 0 ||
			!strings.Contains(e.stderr, "--vm-memory") {
			t.Errorf("%s MiB: exit %d: %s", mib, e.code, e.stderr)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "r")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder of a run that was refused: %v", err)
	}
}
