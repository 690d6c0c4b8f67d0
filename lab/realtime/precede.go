package realtime

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// first is the niceness of whatever goes before other ordinary programs.
const first = -20

// PrecedeThread has one thread, also one of the kernel's, go before all ordinary programs of the machine: nice -20.
// What it starts inherits that. Where it is not permitted, the error wraps ErrDenied.
func PrecedeThread(tid int) error {
	err := unix.Setpriority(unix.PRIO_PROCESS, tid, first)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w (nice %d: %w)", ErrDenied, first, err)
	}
	return err
}

// Precede has all threads of a process go before all ordinary programs of the machine, and whatever they start from now
// on. Between programs of different sessions the kernel weighs the sessions, not the programs (sched(7), autogroup): so
// the session of the process goes first too, unless that is the session of whoever started the caller. A process that
// has ended is no error.
func Precede(pid int) error {
	if err := eachThread(pid, PrecedeThread); err != nil {
		return err
	}
	if shared, err := startersSession(pid); err != nil || shared {
		return err
	}
	return precedeSession(pid)
}

// startersSession tells whether a process is in the caller's session and the caller did not begin that session.
func startersSession(pid int) (bool, error) {
	own, err := unix.Getsid(0)
	if err != nil {
		return false, err
	}
	its, err := unix.Getsid(pid)
	if errors.Is(err, unix.ESRCH) {
		return true, nil
	}
	return its == own && own != os.Getpid(), err
}

func precedeSession(pid int) error {
	err := os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", pid), []byte(strconv.Itoa(first)), 0)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w (autogroup: %w)", ErrDenied, err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
		// a kernel without sessions' groups, or the process has ended
		return nil
	case errors.Is(err, unix.EINVAL):
		// no session was begun since the machine's start: the kernel weighs its programs one by one
		return nil
	}
	return err
}

// eachThread calls fn for every thread of a process, also for those that a thread starts which was not yet called for.
func eachThread(pid int, fn func(tid int) error) error {
	var done []string
	for {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return nil // it has ended
		}
		before := len(done)
		for _, t := range tasks {
			tid, err := strconv.Atoi(t.Name())
			if err != nil || slices.Contains(done, t.Name()) {
				continue
			}
			if err := fn(tid); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
			done = append(done, t.Name())
		}
		if len(done) == before {
			return nil
		}
	}
}
