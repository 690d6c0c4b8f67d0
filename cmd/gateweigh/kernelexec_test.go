// Tests of gateweigh kernel exec, which runs a command under another kernel.

package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gateweigh/gateweigh/lab/labtest"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. awaitGuest(t, what, ended, ok) waits until ok returns true.

// TestKernelExec: a command in a guest reads this folder, writes to a shared one, and gets gateweigh's signals. Its
// output and exit code become gateweigh's.
func TestKernelExec(t *testing.T) {
	k, dir := labtest.Guests(t), t.TempDir()
	write(t, dir, "input", "from the machine\n")
	if err := os.Mkdir(filepath.Join(dir, "kept"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := command(t, dir, "kernel", "exec", k.Release, "--vm-memory", "1000", "--share", "kept", "--",
		"sh", "-c", `uname -r; cat input; echo "to standard error" >&2; trap 'exit 3' INT; echo here > kept/file; while :; do sleep 0.1; done`)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	awaitGuest(t, "what the command writes", ended, func() bool {
		text, _ := os.ReadFile(filepath.Join(dir, "kept", "file"))
		return string(text) == "here\n"
	})
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	<-ended
	if code, want := cmd.ProcessState.ExitCode(), k.Release+"\nfrom the machine\n"; code != 3 || stdout.String() != want ||
		!strings.Contains(stderr.String(), "to standard error\n") || !strings.Contains(stderr.String(), "second Ctrl-C") {
		t.Errorf("exit %d, printed %q, want 3 and %q; and %s", code, stdout.String(), want, stderr.String())
	}
}

// TestKernelExecStubborn: when the command in a guest ignores a signal, a second one ends the guest.
func TestKernelExecStubborn(t *testing.T) {
	k, dir := labtest.Guests(t), t.TempDir()
	cmd := command(t, dir, "kernel", "exec", k.Release, "--vm-memory", "600", "--share", ".", "--",
		"sh", "-c", `trap 'echo again >> signals' INT; echo ready > signals; while :; do sleep 0.1; done`)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended }) // an error: it has ended
	var machines []int
	for _, want := range []string{"ready\n", "ready\nagain\n"} {
		awaitGuest(t, "what the command writes", ended, func() bool {
			text, _ := os.ReadFile(filepath.Join(dir, "signals"))
			return string(text) == want
		})
		machines = labtest.QEMUs(cmd.Process.Pid)
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
	}
	<-ended
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || len(machines) != 1 {
		t.Errorf("%s, with virtual machines %v", cmd.ProcessState, machines)
	}
	labtest.AwaitEnd(t, "QEMU", machines)
}

// TestKernelExecUsage: kernel exec refuses calls without a command, with a program that the guest cannot see, and with
// a folder to share that does not exist.
func TestKernelExecUsage(t *testing.T) {
	dir := t.TempDir()
	program, err := os.CreateTemp("/tmp", "gateweigh-test-") // which the guest's own /tmp would hide
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(program.Name()) })
	if err := errors.Join(program.Chmod(0o755), program.Close()); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"debian"}, {"debian", "true"}, {"debian", "--"}, {"debian", "--", "no-such-program"},
		{"debian", "--", program.Name()}, {"--share", "none", "debian", "--", "true"}} {
		if e := finish(t, command(t, dir, append([]string{"kernel", "exec"}, args...)...)); e.code != exitUsage ||
			e.stderr == "" {
			t.Errorf("%q: exit %d: %s", args, e.code, e.stderr)
		}
	}
}
