package profile

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/labtest"
)

// bindToOne binds a process to one CPU and returns its number.
func bindToOne(t *testing.T, pid int) int {
	t.Helper()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !all.IsSet(cpu) {
		cpu++
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(pid, &one); err != nil {
		t.Fatal(err)
	}
	return cpu
}

// monotonicNs returns the time of CLOCK_MONOTONIC, by which perf stamps samples, in ns.
func monotonicNs(t *testing.T) int64 {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}
	return ts.Nano()
}

// awaitCPU waits until a process has used so much more CPU time from now on.
func awaitCPU(t *testing.T, pid int, more time.Duration) {
	t.Helper()
	used := func() int64 {
		var ts unix.Timespec
		if err := unix.ClockGettime(int32(^pid<<3|2), &ts); err != nil { // the process's clock: clock_getcpuclockid(3)
			t.Fatal(err)
		}
		return ts.Nano()
	}
	began := used()
	labtest.Await(t, "a process to use its CPU", func() bool { return used()-began >= more.Nanoseconds() })
}

// TestRecordNamesAGoDaemon samples a stripped Go program with perf. Its function main.spin is found by its name, in
// stacks that begin in Go's runtime.
func TestRecordNamesAGoDaemon(t *testing.T) {
	daemon := exec.Command(buildSpinner(t, "-s -w"))
	daemon.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { daemon.Process.Kill(); daemon.Wait() })
	pid := daemon.Process.Pid
	cpu := bindToOne(t, pid)
	unwind := Unwind([]int{pid})
	if unwind != UnwindFP {
		t.Errorf("a Go program is unwound by %s", unwind)
	}
	data := filepath.Join(t.TempDir(), "perf.data")
	r, err := Start(t.Context(), data, unwind, []int{cpu}, nil)
	if err != nil {
		t.Fatal(err)
	}
	awaitCPU(t, pid, 100*time.Millisecond) // the runtime has started, and main.spin runs
	from := monotonicNs(t)
	awaitCPU(t, pid, 500*time.Millisecond)
	to := monotonicNs(t)
	if err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	rec, err := Read(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	side := rec.Side(Router{FromNs: from, ToNs: to, Packets: 1, Processes: map[int]string{pid: "spinner"},
		Ns: map[string]int64{"spinner": 1e9}})
	var seen float64
	for _, s := range side.Stacks {
		// A leaf function has no frame of its own, which hides its direct caller.
		if slices.Contains(s.Frames, Frame{"runtime.main", "spinner"}) &&
			slices.Contains(s.Frames, Frame{"main.spin", "spinner"}) {
			seen += s.NsPerPacket
		}
	}
	if seen < 0.5e9 {
		t.Errorf("%.0f %% of the samples are in main.spin below runtime.main; accounts %+v", seen/1e7, side.Accounts)
	}
}

func TestPerfEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cpu := bindToOne(t, 0)
	r, err := Start(ctx, filepath.Join(t.TempDir(), "perf.data"), UnwindFP, []int{cpu}, nil)
	if err != nil {
		t.Fatal(err)
	}
	stop := errors.New("enough")
	cancel(stop)
	<-r.ended
	if err := r.Stop(ctx); !errors.Is(err, stop) {
		t.Errorf("Stop after the end of the context: %v", err)
	}
	if err := syscall.Kill(r.cmd.Process.Pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("perf is still there: %v", err)
	}
}

func TestPerfSaysWhatIsWrong(t *testing.T) {
	_, err := Start(t.Context(), "/no/such/folder/perf.data", UnwindFP, []int{0}, nil)
	if err == nil || !strings.Contains(err.Error(), "/no/such/folder") {
		t.Errorf("Start into a folder that does not exist: %v", err)
	}
	if _, err := Read(t.Context(), "/no/such/perf.data"); err == nil || !strings.Contains(fmt.Sprint(err), "perf script") {
		t.Errorf("Read of no file: %v", err)
	}
	t.Setenv("PATH", "/nowhere")
	if _, err := Start(t.Context(), "x", UnwindFP, []int{0}, nil); err == nil ||
		!strings.Contains(err.Error(), "linux-perf") {
		t.Errorf("Start without perf: %v", err)
	}
}
