// Tests of gateweigh run --wait, which waits for another run.

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/logtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// Helpers of other files: command prepares a call of gateweigh in a folder. measured accepts the exit codes 0 and
// exitRejected: on a busy machine some trials are rejected. small is an experiment of a few seconds with the device
// allowlist, and endless one that goes on until it is interrupted. begin starts a run of small.toml into the folder r,
// and returns after its first trial.

// TestWait: a run that waits for another names it, measures when the other has ended, and stops waiting at Ctrl-C.
func TestWait(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "small.toml", endless)
	first := begin(t, dir).cmd
	write(t, dir, "small.toml", small)
	var errs [2]logtest.Log
	second, third := command(t, dir, "run", "small.toml", "--wait", "--out", "second"),
		command(t, dir, "run", "small.toml", "--wait", "--out", "third")
	second.Stderr, third.Stderr = &errs[0], &errs[1]
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	if err := third.Start(); err != nil {
		t.Fatal(err)
	}
	for i := range errs {
		netnstest.Await(t, "it to say for whom it waits", func() error {
			if said := errs[i].String(); !strings.Contains(said, "waiting until another run has ended (process ") ||
				!strings.Contains(said, "folder r)") {
				return errors.New("it has said " + said)
			}
			return nil
		})
	}
	if err := third.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = third.Wait()
	if _, err := os.Stat(filepath.Join(dir, "third")); third.ProcessState.ExitCode() != exitFailed ||
		!strings.Contains(errs[1].String(), "nothing was begun") || err == nil {
		t.Errorf("interrupted: %v, %s, %v", third.ProcessState, errs[1].String(), err)
	}
	if err := first.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = second.Wait()
	measured(t, ended{second.ProcessState.ExitCode(), "", errs[0].String()})
	if len(read(t, dir, "second/report.html")) == 0 {
		t.Error("no report of the run that waited")
	}
}
