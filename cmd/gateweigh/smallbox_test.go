package main

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/sshtest"
	"github.com/gateweigh/gateweigh/lab/doctor"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/throughput"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. measured accepts the exit codes 0 and exitRejected: on a busy machine some trials are rejected.
// small is an experiment of a few seconds with the device allowlist. reportOf returns the checks in the output of
// doctor --json, by key. sshtest emulates machines that are reached by ssh.

// boxes maps processors of small routers (names of GOARCH) to the programs of qemu-user that emulate them. qemu-mips
// (big-endian) is missing, because it does not translate the kernel's netlink messages.
var boxes = map[string]string{"arm": "qemu-arm", "mipsle": "qemu-mipsel"}

// smallBox is a part of TestOnMachines: it measures a router with another processor, by an agent built for it. Figures
// that the router's kernel cannot give are missing, with the reason. The environment variable BOXES chooses processors,
// separated by commas.
func smallBox(t *testing.T, m *sshtest.Machines, dir string) {
	for arch := range strings.SplitSeq(cmp.Or(os.Getenv("BOXES"), "arm"), ",") {
		emulator := boxes[arch]
		buildAgent(t, m, arch)
		m.Run(t, "router", `mkdir /root/bin; echo "PATH=/root/bin:\$PATH" >/root/.bashrc
printf '#!/bin/sh\nexec `+emulator+" /run/kit/agent-"+arch+` "$@"\n' >/root/bin/gateweigh-agent
chmod 755 /root/bin/gateweigh-agent`)
		before := m.State(t, "router")
		write(t, dir, "box.toml", `measure = "throughput"
duts = ["allowlist"]
clients = [3]
blocks = 1
frame_sizes = [590]
max_kpps = 1
loss_ratios = [0.01]
trials = 1
window = "300ms"
redo = 3
`+m.Tables(1, ""))
		e := finish(t, command(t, dir, "doctor", "--experiment", "box.toml", "--json"))
		if line := reportOf(t, e.stdout)["router.machine.clocks"]; e.code != 0 || line.State != doctor.Warn ||
			!strings.Contains(line.Found, emulator) {
			t.Errorf("exit %d: %+v: %s", e.code, line, e.stderr)
		}
		e = finish(t, command(t, dir, "run", "box.toml", "--out", arch))
		measured(t, e)
		isUnmetered(t, e, filepath.Join(dir, arch), arch, emulator)
		write(t, dir, "cost.toml", small+m.Tables(1, ""))
		refused := finish(t, command(t, dir, "run", "cost.toml"))
		if refused.code == 0 || !strings.Contains(refused.stderr, "which has no perf_event_open") {
			t.Errorf("CPU of %s: exit %d: %s", arch, refused.code, refused.stderr)
		}
		m.AwaitRestored(t, "router", before)
		m.Run(t, "router", "rm -r /root/.bashrc /root/bin")
	}
}

// buildAgent builds /run/kit/agent-ARCH for a processor, with the same hash of sources as this test.
func buildAgent(t *testing.T, m *sshtest.Machines, arch string) {
	t.Helper()
	build := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(m.Dir, "agent-"+arch), "-ldflags",
		"-s -w -X github.com/gateweigh/gateweigh/lab/agent.Sources="+testSources, "../gateweigh-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARM=5", "GOMIPS=softfloat", "GOARCH="+arch)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the agent for %s: %v\n%s", arch, err, out)
	}
}

// isUnmetered requires the records and outputs of a run to say that the router's CPU time is not measured, and why.
func isUnmetered(t *testing.T, e ended, folder, arch, emulator string) {
	t.Helper()
	run, err := measure.ReadRun(folder)
	if err != nil {
		t.Fatal(err)
	}
	searches := result.RecordsOf[throughput.Search](run.MeasureRecords)
	if len(searches) == 0 {
		t.Fatal("no search")
	}
	for _, s := range searches {
		if !strings.Contains(s.Unmetered, emulator) || len(s.Trials) == 0 {
			t.Errorf("a search says %q of its CPU, in %d trials", s.Unmetered, len(s.Trials))
		}
		for _, trial := range s.Trials {
			if trial.Forwarded == 0 || trial.RTTUs == 0 || trial.RouterCorePct != 0 {
				t.Errorf("a trial: %+v", trial)
			}
		}
	}
	env := run.Environment
	if got := env.Machines["router"].Arch; got != arch {
		t.Errorf("the router's agent is for %s", got)
	}
	for _, p := range env.Ports["router"] {
		if !p.NoQueue {
			t.Errorf("qemu-user sets no queue, and the record has %+v", p)
		}
	}
	why := "CPU is not measured: the agent runs in an emulator, " + emulator
	if notes := strings.Join(env.Notes, "\n"); !strings.Contains(notes, why) {
		t.Errorf("the notes: %s", notes)
	}
	rows, err1 := os.ReadFile(filepath.Join(folder, "summary.csv"))
	page, err2 := os.ReadFile(filepath.Join(folder, "report.html"))
	if err1 != nil || err2 != nil || !strings.Contains(string(page), why) || strings.Contains(string(rows), "core_pct") ||
		!strings.Contains(e.stdout, "RTT µs") || strings.Contains(e.stdout, "CPU  ") {
		t.Errorf("%v, %v: page, rows or table have a CPU that is not known:\n%s\n%s", err1, err2, rows, e.stdout)
	}
}
