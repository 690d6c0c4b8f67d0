// Tests of routers whose CPUs are slowed down.

package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. start runs a command in the background, and said returns its standard error so far. records counts
// the records of a kind in the folder r. resumed resumes the run in the folder r to its end and reads it.

// slowSmall is an experiment whose routers get half of their CPU: router.speed starts a process, the burner, that takes
// the other half with real-time priority.
const slowSmall = `duts = ["allowlist"]
clients = [2]
offered_mbps = [10]
blocks = 1
aa_blocks = 0
windows = 2
window = "300ms"
warmup = "200ms"
redo = 0
router.speed = 0.5
`

// TestSlowRoutersAreMarked: a killed run slows no router any more. The run that completes it records the share of CPU
// that its routers had, and shows the share beside every figure.
func TestSlowRoutersAreMarked(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "small.toml", slowSmall)
	b := start(t, dir, command(t, dir, "run", "small.toml", "--out", "r"))
	b.recorded(t, dir, result.KindTrial)
	if n := burners(t); n != 1 {
		t.Errorf("%d processes slow the routers down, want 1", n)
	}
	if e := finish(t, command(t, dir, "burn", "10", "--for", "1ms")); e.code != exitFailed ||
		!strings.Contains(e.stderr, "a run with router.speed") || !strings.Contains(e.stderr, "(process ") {
		t.Errorf("burning beside it: exit code %d: %s%s", e.code, e.stdout, e.stderr)
	}
	kill(t, b.cmd.Process.Pid)
	labtest.Await(t, "the burner to end", func() bool { return burners(t) == 0 })
	run := resumed(t, dir)
	if len(run.Trials) == 0 || run.Environment.RouterSpeed != 0.5 {
		t.Fatalf("%d trials at a speed of %g", len(run.Trials), run.Environment.RouterSpeed)
	}
	for _, trial := range run.Trials {
		for _, m := range []cost.Measurement{cost.SidesOf(trial).DUT, cost.SidesOf(trial).Clean} {
			// When other programs of real-time priority disturb a trial, it is rejected for that.
			share := m.Metrics[result.RouterShare]
			if share == 0 || trial.Accepted && math.Abs(share-0.5) > 0.05 {
				t.Errorf("the routers had %g of their CPU, want 0.5", share)
			}
			if m.CPUCorePct() > 100*share {
				t.Errorf("router CPU %g %%: the burner's time is in it", m.CPUCorePct())
			}
		}
	}
	const badge = "routers slowed to 50 % of their CPU: " // and no share, where the machine was too busy for any trial
	if e := finish(t, command(t, dir, "report", "r")); !strings.Contains(strings.ReplaceAll(e.stdout, "\n", " "), badge) {
		t.Errorf("terminal:\n%s%s", e.stdout, e.stderr)
	}
	for name, want := range map[string]string{"report.html": badge, "summary.csv": badge, "summary.json": `"speed": 0.5`} {
		if raw, err := os.ReadFile(filepath.Join(dir, "r", name)); err != nil || !bytes.Contains(raw, []byte(want)) {
			t.Errorf("%s does not say %q (%v)", name, want, err)
		}
	}
	if e := finish(t, command(t, dir, "compare", "r", "--max-overhead", "1000%")); !strings.Contains(e.stdout, badge) {
		t.Errorf("compare:\n%s%s", e.stdout, e.stderr)
	}
}

// burners counts the processes that slow routers down for runs of this test process.
func burners(t *testing.T) (n int) {
	t.Helper()
	list, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range list {
		argv, _ := os.ReadFile(path) // empty: it has ended
		env, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "environ"))
		if bytes.Contains(argv, []byte("\x00"+agent.BurnerCommand+"\x00")) && bytes.Contains(env, []byte(mark)) {
			n++
		}
	}
	return n
}

// TestBurn: burn ends after its time, by Ctrl-C, or with a clear error.
func TestBurn(t *testing.T) {
	dir := t.TempDir()
	if e := finish(t, command(t, dir, "burn", "20%", "--for", "100ms")); e.code != 0 ||
		!strings.Contains(e.stdout, "asked for 20 %") || e.stderr != "" {
		t.Errorf("exit code %d: %s%s", e.code, e.stdout, e.stderr)
	}
	cmd := command(t, dir, "burn", "10")
	out := &bytes.Buffer{}
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	labtest.Await(t, "a thread of real-time priority", func() bool { return realTime(cmd.Process.Pid) > 0 })
	write(t, dir, "small.toml", slowSmall)
	if e := finish(t, command(t, dir, "run", "small.toml", "--out", "r")); e.code == 0 ||
		!strings.Contains(e.stderr, fmt.Sprintf("(process %d)", cmd.Process.Pid)) {
		t.Errorf("slow routers beside it: exit code %d: %s%s", e.code, e.stdout, e.stderr)
	}
	cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "asked for 10 %") {
		t.Errorf("after Ctrl-C: %v, %s", err, out)
	}
	for _, tt := range []struct{ args, want string }{
		{"170", "from 1 to 95"}, {"-1", "unknown shorthand"}, {"ten", `"ten"`}, {"0", "nothing to burn"},
		{"", "burn PERCENT"},
		{strings.TrimSpace(strings.Repeat("1 ", 2000)), "2000 percentages"}, {"5 --for 0s", "--for 0s"},
	} {
		e := finish(t, command(t, dir, append([]string{"burn"}, strings.Fields(tt.args)...)...))
		if e.code != exitUsage || !strings.Contains(e.stderr, tt.want) {
			t.Errorf("burn %.20s: exit code %d, %s", tt.args, e.code, e.stderr)
		}
	}
	cmd = command(t, dir, "burn", "15")
	cmd.Args = append([]string{"setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice", "prlimit", "--rtprio=0",
		cmd.Path}, "burn", "15", "--for", "100ms")
	cmd.Path = "/usr/bin/setpriv"
	if e := finish(t, cmd); e.code != 0 || !strings.Contains(e.stderr, "ordinary priority") ||
		!strings.Contains(e.stdout, "asked for 15 %") {
		t.Errorf("without permission: exit code %d, %s%s", e.code, e.stdout, e.stderr)
	}
}

// realTime counts the threads of a process that have real-time priority.
func realTime(pid int) (n int) {
	threads, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
	for _, path := range threads {
		raw, _ := os.ReadFile(path)
		_, rest, _ := strings.Cut(string(raw), ") ")
		const priority = 40 - 3 // rt_priority, field 40 of proc_pid_stat(5); the fields after the name begin with 3
		if fields := strings.Fields(rest); len(fields) > priority && fields[priority] != "0" {
			n++
		}
	}
	return n
}
