// Tests of runs of which a process is killed.

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

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/logins"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. measured accepts the exit codes 0 and exitRejected: on a busy machine some trials are rejected.
// small is an experiment of a few seconds with the device allowlist. leftovers lists what runs of this test left
// behind: processes, links, rules and mounts. leftoversSoon first waits until there is nothing of these, two minutes at
// most.

// manyWindows is an experiment whose device changes nothing on its router; the clients are personas (simulated, without
// a namespace each), and their number is filled in by Sprintf. A block has several windows, so that a test can kill a
// process after the first.
const manyWindows = `duts = ["personas"]
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

// start starts a command and writes its standard error to a file in dir. The command is killed when the test ends.
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

// said returns what the run has written to its standard error so far.
func (b background) said(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(b.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// await waits for something that the run does. A run that has ended does nothing more: then it fails the test at once,
// with what the run has said.
func (b background) await(t *testing.T, what string, ok func() error) {
	t.Helper()
	netnstest.Await(t, what, func() error {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, b.cmd.Process.Pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		ended := err == nil && info.Signo != 0
		if err = ok(); err == nil {
			return nil
		}
		if ended {
			t.Fatalf("the run has ended without %s: %v\nIt has said:\n%s", what, err, b.said(t))
		}
		return fmt.Errorf("%w\nThe run goes on, and has said:\n%s", err, b.said(t))
	})
}

// recorded waits for the first record of a kind, or of any kind (""), in the run in dir/r.
func (b background) recorded(t *testing.T, dir, kind string) {
	t.Helper()
	b.await(t, "the first record", func() error {
		all := bytes.Count(trials(t, filepath.Join(dir, "r")), []byte("\n"))
		if all == 0 || kind != "" && records(t, dir, kind) == 0 {
			return fmt.Errorf("there are %d records, and none of the kind %q", all, kind)
		}
		return nil
	})
}

// child waits for a child process with these arguments in a row, and returns its number.
func child(t *testing.T, parent int, args ...string) int {
	t.Helper()
	found := 0
	labtest.Await(t, "a process "+strings.Join(args, " "), func() bool {
		list, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range list {
			raw, _ := os.ReadFile(path) // a process that has ended meanwhile has no arguments
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

// records counts the records of one kind, such as result.KindTrial, in the run in dir/r.
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

// resumed waits until nothing of the killed run in dir/r is left, resumes the run to its end and reads it.
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

// wantSaid requires the output of a run to have all of want.
func wantSaid(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("the run does not say %q:\n%s", w, text)
		}
	}
}

// wantWindows requires each window of manyWindows to be measured once.
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

// TestKilledClientHostCostsItsBlock: the test kills the agent of a client host. The block fails with that reason, the
// next block is measured, and a resume measures the windows that are missing. Lab a is that of the device or of the
// clean router; a/client is its client host.
func TestKilledClientHostCostsItsBlock(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "crowd.toml", fmt.Sprintf(manyWindows, 4))
	b := start(t, dir, command(t, dir, "run", "crowd.toml", "--out", "r"))
	b.recorded(t, dir, result.KindTrial)
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
		// On a busy machine the trials of the second block may be rejected; then the run says that first.
		wantSaid(t, text, "some blocks failed")
	}
	if got := records(t, dir, result.KindTrial); got < 6 || got > 9 {
		t.Errorf("%d trials: want those before the kill and the five of the next block", got)
	}
	wantWindows(t, resumed(t, dir))
}

// TestKilledTrafficWorkerCostsItsBlock: a low limit of open files makes the lab share out one host's streams over
// several processes. The test kills one of them.
func TestKilledTrafficWorkerCostsItsBlock(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "crowd.toml", fmt.Sprintf(manyWindows, 260))
	cmd := command(t, dir, "run", "crowd.toml", "--out", "r")
	limited := exec.Command("prlimit", append([]string{"--nofile=1200", cmd.Path}, cmd.Args[1:]...)...)
	limited.Dir, limited.Env = cmd.Dir, cmd.Env
	b := start(t, dir, limited) // prlimit becomes the program it starts
	b.recorded(t, dir, result.KindTrial)
	worker := child(t, child(t, b.cmd.Process.Pid, "-host", "b/client"), agent.WorkerCommand)
	kill(t, worker)
	b.cmd.Wait()
	wantSaid(t, b.said(t), "personas, block 1 failed: at 50 Mbit/s: window ",
		fmt.Sprintf("traffic worker of host b/client (process %d) ended: signal: killed", worker), "gateweigh run --resume r")
	wantWindows(t, resumed(t, dir))
}

// TestKilledLabWithPersonasLeavesNothingAndResumes: the test kills gateweigh itself. A resume keeps the trials and
// marks the later ones as of sitting 1.
func TestKilledLabWithPersonasLeavesNothingAndResumes(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "crowd.toml", fmt.Sprintf(manyWindows, 4))
	b := start(t, dir, command(t, dir, "run", "crowd.toml", "--out", "r"))
	b.recorded(t, dir, result.KindTrial)
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

// waitingLogins is an experiment with a device whose logins last until there is a file, which %s names.
const waitingLogins = `measure = "logins"
duts = ["doors"]
clients = [6]
blocks = 2
redo = 0
client = { kind = "persona", hosts = 2 }
[dut.doors]
start = "true"
open = true
login = "until [ -e %s ]; do sleep 0.1; done"
`

// TestKilledHostOfAStormCostsTheStorm: the test kills the agent of a client host while clients log in. That storm (all
// logins of a block) is lost and the next one is measured; a resume repeats the lost one.
func TestKilledHostOfAStormCostsTheStorm(t *testing.T) {
	dir := t.TempDir()
	shared, err := os.MkdirTemp("/dev/shm", "gateweigh-test-") // a host has a /tmp of its own
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(shared)
	open := filepath.Join(shared, "open")
	write(t, dir, "doors.toml", fmt.Sprintf(waitingLogins, open))
	b := start(t, dir, command(t, dir, "run", "doors.toml", "--out", "r"))
	host := child(t, b.cmd.Process.Pid, "-host", "a/client2")
	child(t, host, fmt.Sprintf("until [ -e %s ]; do sleep 0.1; done", open)) // a login
	kill(t, host)
	write(t, shared, "open", "")
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

// TestRunUnderNohup: a run under nohup goes on when its terminal is gone.
func TestRunUnderNohup(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "small.toml", small)
	cmd := command(t, dir, "run", "small.toml", "--out", "r")
	cmd.Args = slices.Concat([]string{"sh", "-c", `trap "" HUP; exec "$0" "$@"`, cmd.Path}, cmd.Args[1:])
	cmd.Path = "/bin/sh"
	run := start(t, dir, cmd)
	run.recorded(t, dir, "")
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() != exitRejected {
		t.Errorf("%v: %s", err, run.said(t))
	}
}
