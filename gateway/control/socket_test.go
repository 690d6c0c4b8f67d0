// Tests of the control socket's file: who has it, its mode, and its removal. Its environment variable CONTROL_TEST_HOLD
// makes the test's program a daemon that has a socket until it is killed (TestMain in control_test.go).

package control

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestOneDaemonAtATime(t *testing.T) {
	waitsFor(t, 0)
	path := filepath.Join(t.TempDir(), "c.sock")
	daemon := holdSocket(t, path)
	_, err := Listen(path)
	if !errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), fmt.Sprintf("(process %d)", daemon.Process.Pid)) {
		t.Errorf("beside a live daemon: %v", err)
	}
	if _, err := Dial(path); err != nil {
		t.Errorf("the live daemon has lost its socket: %v", err)
	}
	daemon.Process.Kill()
	if daemon.Wait(); daemon.ProcessState.Exited() {
		t.Errorf("the daemon ended before it was killed: %s", daemon.ProcessState)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Fatalf("a killed daemon leaves its socket: %v", err)
	}
	if _, err := Dial(path); !errors.Is(err, ErrNotRunning) {
		t.Errorf("after a kill: %v", err)
	}
	s, err := Listen(path)
	if err != nil {
		t.Fatalf("after a killed daemon: %v", err)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if _, err := Dial(path); !errors.Is(err, ErrNotRunning) {
		t.Errorf("after the end: %v", err)
	}
}

// waitsFor limits how long Listen waits, until the test ends.
func waitsFor(t *testing.T, d time.Duration) {
	before := exitWait
	exitWait = d
	t.Cleanup(func() { exitWait = before })
}

// TestListenWaitsForEndingProcess: Listen waits for a lock that is held, and then for the process that had it, whose
// ports may be taken longer than the lock. Long: the steps of one run, each of which needs the state that the one
// before left.
func TestListenWaitsForEndingProcess(t *testing.T) {
	waitsFor(t, time.Minute)
	path := filepath.Join(t.TempDir(), "c.sock")
	former := exec.Command("sleep", "1000")
	if err := former.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { former.Process.Kill(); former.Wait() })
	if err := os.WriteFile(path+".lock", fmt.Appendln(nil, former.Process.Pid), lockMode); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(path+".lock", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := tryLock(lock); err != nil {
		t.Fatal(err)
	}
	var ending atomic.Bool
	listening := make(chan error)
	go func() {
		s, err := Listen(path)
		if !ending.Load() {
			err = errors.Join(err, errors.New("it listens beside the former process"))
		}
		if s != nil {
			err = errors.Join(err, s.Close())
		}
		listening <- err
	}()
	pid := func() string { return fmt.Sprint(os.Getpid(), "\n") }
	lock.Close()
	for { // until Listen has the lock
		probe, err := os.Open(path + ".lock")
		if err != nil {
			t.Fatal(err)
		}
		err = tryLock(probe)
		probe.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if text, err := os.ReadFile(path + ".lock"); err != nil || string(text) == pid() {
		t.Errorf("the lock is %q (%v) while the former process lives", text, err)
	}
	ending.Store(true)
	former.Process.Kill()
	if err := <-listening; err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(path + ".lock"); err != nil || len(text) > 0 {
		t.Errorf("after the end the lock names %q (%v)", text, err)
	}
}

// holdSocket starts a process that holds a socket.
func holdSocket(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "CONTROL_TEST_HOLD="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	text := make([]byte, 200)
	if n, _ := out.Read(text); string(text[:n]) != "listening\n" {
		t.Fatalf("the daemon says %q", text[:n])
	}
	return cmd
}

func TestSocketMode(t *testing.T) {
	for _, umask := range []int{0, 0o027, 0o077} {
		before := syscall.Umask(umask)
		path := filepath.Join(t.TempDir(), "c.sock")
		s, err := Listen(path)
		syscall.Umask(before)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode() != os.ModeSocket|socketMode {
			t.Errorf("umask %o: %v, %v", umask, info.Mode(), err)
		}
		if info, err := os.Stat(path + ".lock"); err != nil || info.Mode() != lockMode {
			t.Errorf("umask %o: the lock: %v, %v", umask, info.Mode(), err)
		}
		s.Close()
	}
}

func TestOnlySocketIsRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.sock")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Listen(path)
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("%v", err)
	}
	if kept, _ := os.ReadFile(path); string(kept) != "precious" {
		t.Errorf("the file has become %q", kept)
	}
}
