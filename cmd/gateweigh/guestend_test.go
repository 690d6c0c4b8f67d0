// Tests of the end of runs in a virtual machine, however it comes.

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Helpers of other files: command prepares a call of gateweigh in a folder. awaitGuest(t, what, ended, ok) waits until
// ok returns true.

// launched is a running gateweigh that starts a guest.
type launched struct {
	*exec.Cmd
	out   bytes.Buffer // to be read when it has ended
	ended chan struct{}
}

// launch starts gateweigh in a network namespace. Its temporary files are in dir/tmp.
func launch(t *testing.T, space *netnstest.Space, dir string, args ...string) *launched {
	t.Helper()
	s := &launched{Cmd: command(t, dir, args...), ended: make(chan struct{})}
	s.Stdout, s.Stderr = &s.out, &s.out
	s.Env = append(s.Env, "TMPDIR="+filepath.Join(dir, "tmp"))
	if err := os.MkdirAll(filepath.Join(dir, "tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	var err error
	space.Do(func() { err = s.Start() })
	if err != nil {
		t.Fatal(err)
	}
	go func() { defer close(s.ended); _ = s.Wait() }()
	t.Cleanup(func() { _ = s.Process.Kill(); <-s.ended }) // Kill fails where the process has ended
	return s
}

// end waits for a state and sends a signal. It then waits until gateweigh and QEMU have ended, and requires TMPDIR to
// be empty.
func (s *launched) end(t *testing.T, what string, state func() bool, by syscall.Signal) {
	t.Helper()
	awaitGuest(t, what, s.ended, state)
	var machines []int
	awaitGuest(t, "QEMU", s.ended, func() bool { // where KVM fails another one is started
		machines = labtest.QEMUs(s.Process.Pid)
		return len(machines) > 0
	})
	if err := s.Process.Signal(by); err != nil {
		t.Fatal(err)
	}
	<-s.ended
	labtest.AwaitEnd(t, "QEMU", machines)
	if left, err := os.ReadDir(filepath.Join(s.Dir, "tmp")); err != nil || len(left) > 0 {
		t.Errorf("%s: left in TMPDIR: %v, %v", what, left, err)
	}
}

// interrupted requires gateweigh to say that it was interrupted and how to resume.
func (s *launched) interrupted(t *testing.T) {
	t.Helper()
	if code, text := s.ProcessState.ExitCode(), s.out.String(); code != exitFailed ||
		strings.Count(text, "interrupted") < 1 || !strings.Contains(text, "run --resume r") {
		t.Errorf("interrupted: exit %d: %s", code, text)
	}
	if _, err := os.Stat(filepath.Join(s.Dir, "r", result.LogsFolder, "console.log")); err == nil {
		t.Error("interrupted: the guest's console was kept")
	}
}

// TestKernelRunsEnd ends runs in guests by signals, and resumes them. Two runs are on the machine at a time, each in a
// network namespace of its own: in one namespace the second would be refused.
func TestKernelRunsEnd(t *testing.T) {
	k := labtest.Guests(t)
	const text = "duts = [\"allowlist\"]\noffered_mbps = [2]\nblocks = 3\naa_blocks = 0\nwindows = 1\nwindow = " +
		"\"500ms\"\nwarmup = \"200ms\"\nredo = 0\n"
	run := []string{"run", "tiny.toml", "--kernel", k.Image, "--vm-memory", "768", "-o", "r"}
	t.Run("at once", func(t *testing.T) {
		t.Run("by signals", func(t *testing.T) {
			t.Parallel()
			space, dir := netnstest.NewSpace(t), t.TempDir()
			write(t, dir, "tiny.toml", text+"clients = [2]\n")
			s := launch(t, space, dir, run...)
			s.end(t, "the guest boots", func() bool {
				if len(labtest.QEMUs(s.Process.Pid)) == 0 {
					return false
				}
				second := launch(t, space, dir, append(run[:len(run)-1:len(run)-1], "r2")...)
				<-second.ended
				if message := second.out.String(); second.ProcessState.ExitCode() != exitFailed ||
					!strings.Contains(message, "process "+strconv.Itoa(s.Process.Pid)) {
					t.Errorf("the second run in this network: %s", message)
				}
				return true
			}, syscall.SIGINT)
			s.interrupted(t)
			s = launch(t, space, dir, "run", "--resume", "r")
			s.end(t, "the first trial", recorded(dir), syscall.SIGTERM)
			s.interrupted(t)
			checkClients(t, filepath.Join(dir, "r"), 2)
		})
		t.Run("by kill", func(t *testing.T) {
			t.Parallel()
			space, dir := netnstest.NewSpace(t), t.TempDir()
			write(t, dir, "tiny.toml", text+"clients = [3]\n")
			s := launch(t, space, dir, run...)
			s.end(t, "the first trial", recorded(dir), syscall.SIGKILL)
			checkClients(t, filepath.Join(dir, "r"), 3)
		})
	})
}

// recorded returns a function that reports whether the run in dir/r has a trial.
func recorded(dir string) func() bool {
	return func() bool {
		text, _ := os.ReadFile(filepath.Join(dir, "r", result.TrialsFile))
		return bytes.Contains(text, []byte(`"kind":"trial"`))
	}
}

// checkClients requires a run to have trials, all with this number of clients. Another run on the machine has another
// number.
func checkClients(t *testing.T, dir string, clients int) {
	t.Helper()
	run, err := measure.ReadRun(dir)
	if err != nil || len(run.Trials) == 0 {
		t.Fatalf("%d trials, %v", len(run.Trials), err)
	}
	for _, trial := range run.Trials {
		if got := trial.Cell.Int(result.Clients); got != clients {
			t.Errorf("a trial of %d clients in the run of %d", got, clients)
		}
	}
}
