package realtime

import (
	"os"

	"golang.org/x/sys/unix"
)

// Yield has all threads of this process, and those that they start from now on, run only where nothing else wants the
// CPU (SCHED_IDLE), and read only what no other program waits to read. Anybody may do so, and only root can take it
// back.
func Yield() error {
	return eachThread(os.Getpid(), func(tid int) error {
		attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE, Nice: 19}
		if err := unix.SchedSetAttr(tid, &attr, 0); err != nil {
			return err
		}
		const (
			process = 1 // IOPRIO_WHO_PROCESS
			idle    = 3 // IOPRIO_CLASS_IDLE
		)
		_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, process, uintptr(tid), idle<<13) // some schedulers know no classes
		return nil
	})
}
