package realtime

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The kernel's threads began no session, like the first programs of a machine: their group has no weight of its own.
func TestProgramsWithoutASession(t *testing.T) {
	if name, err := os.ReadFile("/proc/2/comm"); err != nil || strings.TrimSpace(string(name)) != "kthreadd" {
		t.Skipf("the machine's processes are not seen here: process 2 is %q, %v", name, err)
	}
	if err := precedeSession(2); err != nil {
		t.Error(err)
	}
}

// The session of a user's shell keeps its weight; one that was begun for a host goes first.
func TestWhoseSessionPrecedes(t *testing.T) {
	for _, own := range []bool{false, true} {
		cmd := exec.Command("sleep", "60")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: own, Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pid := cmd.Process.Pid
		before := group(t, pid)
		if err := Precede(pid); err != nil {
			t.Error(err)
		}
		after := group(t, pid)
		if nice, err := unix.Getpriority(unix.PRIO_PROCESS, pid); err != nil || nice != 40 { // the kernel answers 20 - nice
			t.Errorf("session of its own %v: priority %d, %v", own, nice, err)
		}
		if own && before != "" && !strings.HasSuffix(after, "nice -20") || !own && after != before {
			t.Errorf("session of its own %v: %q became %q", own, before, after)
		}
		cmd.Process.Kill()
		cmd.Wait()
	}
}

// group is the session's group and its weight; empty where the kernel has none.
func group(t *testing.T, pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/autogroup", pid))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}
