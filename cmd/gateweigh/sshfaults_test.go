package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/sshtest"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/measure"
)

// TestFaultsOfRunsOverSSH: whatever ends a run on several machines, what is measured stays, the machines are as they
// were, and a resume measures the rest. docs/machines.md has what is seen here in its table of faults.
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

// losesRouter has the router lose its power, and start again once the run has ended. It returns how the machines look
// with their new cables.
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

// restored checks that all machines are as before.
func restored(t *testing.T, m *sshtest.Machines, before map[string]string) {
	t.Helper()
	for _, name := range sshtest.Names {
		m.AwaitRestored(t, name, before[name])
	}
}

// faultyRun is a run that is begun and resumed, and what it had recorded when it was looked at last.
type faultyRun struct {
	background
	t        *testing.T
	dir      string
	file     []string // arguments: at first those that begin it
	lab      *exec.Cmd
	recorded []byte
}

// begin starts the run, or goes on with it, and waits until it has recorded something more.
func (r *faultyRun) begin() {
	r.t.Helper()
	r.kept()
	r.lab = command(r.t, r.dir, r.file...)
	r.background = start(r.t, r.dir, r.lab)
	r.file = []string{"run", "--resume", "r"}
	labtest.Await(r.t, "a record", func() bool {
		return len(trials(r.t, filepath.Join(r.dir, "r"))) > len(r.recorded)
	})
}

// ends waits for the end of a run that cannot go on, and returns what it said.
func (r *faultyRun) ends() string {
	r.t.Helper()
	if err := r.lab.Wait(); err == nil {
		r.t.Error("a run that lost a machine ends with status 0")
	}
	r.kept()
	return r.said(r.t)
}

// kept checks that no record is lost.
func (r *faultyRun) kept() {
	r.t.Helper()
	now := trials(r.t, filepath.Join(r.dir, "r"))
	if !bytes.HasPrefix(now, r.recorded) {
		r.t.Errorf("records were lost: %d bytes, %d before", len(now), len(r.recorded))
	}
	r.recorded = now
}
