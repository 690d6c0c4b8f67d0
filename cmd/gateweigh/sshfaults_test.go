// Tests of faults of runs on several machines.

package main

import (
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/sshtest"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/measure"
)

// Helpers of other files: command prepares a call of gateweigh in a folder. small is an experiment of a few seconds
// with the device allowlist. begin starts a run of small.toml into the folder r, and returns after its first trial.
// start runs a command in the background, and said returns its standard error so far. sshtest emulates machines that
// are reached by ssh.

// TestFaultsOfRunsOverSSH interrupts runs on several machines in different ways. Each time the records are kept, the
// machines are restored, and a resume measures the rest. The table of faults in docs/machines.md describes what this
// test sees.
func TestFaultsOfRunsOverSSH(t *testing.T) {
	m, dir := sshtest.New(t), t.TempDir()
	rounds := strings.NewReplacer("[10, 20]", "[20]", "blocks = 2", "blocks = 3", "windows = 2", "windows = 1").Replace(
		small)
	write(t, dir, "small.toml", rounds+m.Tables(1, ""))
	before := map[string]string{}
	for _, name := range sshtest.Names {
		before[name] = m.State(t, name)
	}
	r := &faultyRun{t: t, dir: dir, file: []string{"run", "small.toml", "--out", "r"}}

	r.begin()
	if err := r.lab.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.lab.Wait()
	r.kept()
	restored(t, m, before)

	r.begin()
	before = r.losesRouter(m)

	r.begin()
	m.Cut(t, "client", true)
	time.Sleep(5 * time.Second) // the length of the cut, which no state tells
	m.Cut(t, "client", false)
	if err := r.lab.Wait(); err != nil && r.lab.ProcessState.ExitCode() != exitRejected {
		t.Errorf("cut off for 5 s the run ended: %v:\n%s", err, r.said(t))
	}
	r.kept()
	run, err := measure.ReadRun(filepath.Join(dir, "r"))
	if err != nil || run.Environment.Interrupted || len(run.Unmeasured) > 0 {
		t.Errorf("%v: interrupted %v, not measured %v", err, run.Environment.Interrupted, run.Unmeasured)
	}
	restored(t, m, before)
}

// losesRouter switches the router off, and on again when the run has ended. It returns the state of each machine (by
// name) after that, which differs from the state before, as the links between the machines are new.
func (r *faultyRun) losesRouter(m *sshtest.Machines) (looks map[string]string) {
	r.t.Helper()
	m.PowerOff(r.t)
	if said := r.ends(); !strings.Contains(said, "router") || !strings.Contains(said, "--resume r") {
		r.t.Errorf("the router was lost, and the lab says:\n%s", said)
	}
	for _, name := range []string{"client", "server"} {
		labtest.Await(r.t, "nothing of the lab on "+name, func() bool {
			look := m.State(r.t, name)
			return !strings.Contains(look, "gateweigh") && !strings.Contains(look, "agent-")
		})
	}
	m.PowerOn(r.t)
	looks = map[string]string{}
	for _, name := range sshtest.Names {
		looks[name] = m.State(r.t, name)
	}
	return looks
}

// restored requires all machines to be in the state that they had before.
func restored(t *testing.T, m *sshtest.Machines, before map[string]string) {
	t.Helper()
	for _, name := range sshtest.Names {
		m.AwaitRestored(t, name, before[name])
	}
}

// faultyRun is the run in dir/r, which the test interrupts and resumes.
type faultyRun struct {
	background
	t     *testing.T
	dir   string
	file  []string  // arguments of the next call of gateweigh: at first to begin the run, later to resume it
	lab   *exec.Cmd // the present call
	known []byte    // trials.jsonl when it was read last
}

// begin starts or resumes the run and waits for a new record.
func (r *faultyRun) begin() {
	r.t.Helper()
	r.kept()
	r.lab = command(r.t, r.dir, r.file...)
	r.background = start(r.t, r.dir, r.lab)
	r.file = []string{"run", "--resume", "r"}
	r.await(r.t, "a record", func() error {
		if len(trials(r.t, filepath.Join(r.dir, "r"))) <= len(r.known) {
			return errors.New("there is no new one")
		}
		return nil
	})
}

// ends waits until the run, which cannot go on, has ended, and returns its output.
func (r *faultyRun) ends() string {
	r.t.Helper()
	if err := r.lab.Wait(); err == nil {
		r.t.Error("a run that lost a machine ends with status 0")
	}
	r.kept()
	return r.said(r.t)
}

// kept requires the run to have all records that it had before.
func (r *faultyRun) kept() {
	r.t.Helper()
	now := trials(r.t, filepath.Join(r.dir, "r"))
	if !bytes.HasPrefix(now, r.known) {
		r.t.Errorf("records were lost: %d bytes, %d before", len(now), len(r.known))
	}
	r.known = now
}
