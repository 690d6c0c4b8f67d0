package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/logins"
	"github.com/gateweigh/gateweigh/lab/result"
)

// crowd is two clean routers with personas; a block has windows enough to kill
// something after the first.
const crowd = `duts = ["personas"]
clients = [%d]
offered_mbps = [50]
blocks = 2
aa_blocks = 0
windows = 5
window = "300ms"
warmup = "300ms"
redo = 0
client.kind = "persona"
traffic.burst_segments = 4
[dut.personas]
start = "true"
`

// background is a run whose output can be read while it goes on.
type background struct {
	cmd *exec.Cmd
	log string // file of its standard error
}

func start(t *testing.T, dir string, cmd *exec.Cmd) background {
	t.Helper()
	log, err := os.Create(filepath.Join(dir, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return background{cmd, log.Name()}
}

func (b background) said(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(b.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// child finds the child process that has all these arguments.
func child(t *testing.T, parent int, args ...string) int {
	t.Helper()
	found := 0
	labtest.Await(t, "a process "+strings.Join(args, " "), func() bool {
		list, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range list {
			raw, _ := os.ReadFile(path) // gone meanwhile: has no arguments
			argv := "\x00" + string(raw)
			stat, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "stat"))
			_, rest, _ := strings.Cut(string(stat), ") ")
			fields := strings.Fields(rest)
			if len(fields) < 2 || fields[1] != strconv.Itoa(parent) ||
				!strings.Contains(argv, "\x00"+strings.Join(args, "\x00")+"\x00") {
				continue
			}
			found, _ = strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return true
		}
		return false
	})
	return found
}

// records counts the records of the run in dir/r.
func records(t *testing.T, dir string, kind string) int {
	t.Helper()
	return bytes.Count(trials(t, filepath.Join(dir, "r")), []byte(`"kind":"`+kind+`"`))
}

// kill ends one process by SIGKILL.
func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// resumed completes the run in dir/r and reads it.
func resumed(t *testing.T, dir string) result.Run {
	t.Helper()
	labtest.Await(t, "everything of the run to go", func() bool { return leftovers(t) == "" })
	measured(t, finish(t, command(t, dir, "run", "--resume", "r")))
	run, err := measure.ReadRun(filepath.Join(dir, "r"))
	if err != nil {
		t.Fatal(err)
	}
	if got := leftoversSoon(t); got != "" {
		t.Errorf("left behind:\n%s", got)
	}
	return run
}

// wantSaid checks that a run names the killed process and its host.
func wantSaid(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("the run does not say %q:\n%s", w, text)
		}
	}
}

// wantWindows requires each window of the crowd to be measured once.
func wantWindows(t *testing.T, run result.Run) {
	t.Helper()
	seen := map[[2]int]int{}
	for _, tr := range run.Trials {
		seen[[2]int{tr.Block, tr.Window}]++
	}
	if len(seen) != 10 || len(run.Trials) != 10 {
		t.Errorf("%d trials of %d windows after the resume, want 10 of 10: %v", len(run.Trials), len(seen), seen)
	}
}

func TestKilledClientHostCostsItsBlock(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "crowd.toml", fmt.Sprintf(crowd, 4))
	b := start(t, dir, command(t, dir, "run", "crowd.toml", "--out", "r"))
	labtest.Await(t, "the first trial", func() bool { return records(t, dir, result.KindTrial) > 0 })
	host := child(t, b.cmd.Process.Pid, "-host", "a/client")
	kill(t, host)
	b.cmd.Wait()
	text := b.said(t)
	lost := fmt.Sprintf("the agent of host a/client (process %d) ended: signal: killed", host)
	if n := strings.Count(text, lost); n != 1 {
		t.Errorf("the run says %d times that the host was killed, want once", n)
	}
	wantSaid(t, text, "personas, block 1 failed: at 50 Mbit/s: window ", ": "+lost+"\n",
		"not measured", "gateweigh run --resume r")
	if !strings.Contains(text, " no figure or no interval") {
		// a busy machine may have had the second block's trials rejected
		wantSaid(t, text, "some blocks failed")
	}
	if got := records(t, dir, result.KindTrial); got < 6 || got > 9 {
		t.Errorf("%d trials: want those before the kill and the five of the next block", got)
	}
	wantWindows(t, resumed(t, dir))
}

// TestKilledTrafficWorkerCostsItsBlock: under a low limit of open files the streams
// of one host are shared out over several processes.
func TestKilledTrafficWorkerCostsItsBlock(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "crowd.toml", fmt.Sprintf(crowd, 260))
	cmd := command(t, dir, "run", "crowd.toml", "--out", "r")
	limited := exec.Command("prlimit", append([]string{"--nofile=1200", cmd.Path}, cmd.Args[1:]...)...)
	limited.Dir, limited.Env = cmd.Dir, cmd.Env
	b := start(t, dir, limited) // prlimit becomes the program it starts
	labtest.Await(t, "the first trial", func() bool { return records(t, dir, result.KindTrial) > 0 })
	worker := child(t, child(t, b.cmd.Process.Pid, "-host", "b/client"), agent.WorkerCommand)
	kill(t, worker)
	b.cmd.Wait()
	wantSaid(t, b.said(t), "personas, block 1 failed: at 50 Mbit/s: window ",
		fmt.Sprintf("traffic worker of host b/client (process %d) ended: signal: killed", worker), "gateweigh run --resume r")
	wantWindows(t, resumed(t, dir))
}

func TestKilledLabWithPersonasLeavesNothingAndResumes(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "crowd.toml", fmt.Sprintf(crowd, 4))
	b := start(t, dir, command(t, dir, "run", "crowd.toml", "--out", "r"))
	labtest.Await(t, "the first trial", func() bool { return records(t, dir, result.KindTrial) > 0 })
	kill(t, b.cmd.Process.Pid)
	b.cmd.Wait()
	kept := records(t, dir, result.KindTrial)
	run := resumed(t, dir)
	wantWindows(t, run)
	if run.Trials[kept-1].Sitting != 0 || run.Trials[9].Sitting != 1 {
		t.Errorf("sittings of the last trial before and of the last after: %d and %d, want 0 and 1",
			run.Trials[kept-1].Sitting, run.Trials[9].Sitting)
	}
}

// slowDoors keep the personas of two machines at the door long enough to kill one.
const slowDoors = `measure = "logins"
duts = ["doors"]
clients = [6]
blocks = 2
redo = 0
client = { kind = "persona", hosts = 2 }
[dut.doors]
start = "true"
open = true
login = "sleep 1"
`

func TestKilledHostOfAStormCostsTheStorm(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "doors.toml", slowDoors)
	b := start(t, dir, command(t, dir, "run", "doors.toml", "--out", "r"))
	host := child(t, b.cmd.Process.Pid, "-host", "a/client2")
	child(t, host, "sleep 1") // a login
	kill(t, host)
	b.cmd.Wait()
	wantSaid(t, b.said(t), "doors, 6 clients, block 1 failed: logging in: ",
		fmt.Sprintf("the agent of host a/client2 (process %d) ended: signal: killed", host),
		"gateweigh run --resume r")
	if got := records(t, dir, logins.KindStorm); got != 1 {
		t.Errorf("%d storms, want that of the second block", got)
	}
	if run := resumed(t, dir); len(run.MeasureRecords) != 2 || run.MeasureRecords[0].Block != 1 ||
		run.MeasureRecords[1].Block != 0 {
		t.Errorf("storms after the resume: %+v", run.MeasureRecords)
	}
}

// TestRunUnderNohup goes on when its terminal is gone.
func TestRunUnderNohup(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "small.toml", small)
	cmd := command(t, dir, "run", "small.toml", "--out", "r")
	cmd.Args = slices.Concat([]string{"sh", "-c", `trap "" HUP; exec "$0" "$@"`, cmd.Path}, cmd.Args[1:])
	cmd.Path = "/bin/sh"
	run := start(t, dir, cmd)
	labtest.Await(t, "the first trial", func() bool { return len(trials(t, filepath.Join(dir, "r"))) > 0 })
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, run.said(t))
	}
}
