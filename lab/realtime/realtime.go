// Package realtime gives threads priority over all ordinary programs (SCHED_FIFO): such a thread has a CPU as soon as
// it wakes. The kernel leaves ordinary programs 5 % of a CPU (kernel.sched_rt_runtime_us).
package realtime

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Priorities of the lab's threads, all among the lowest of SCHED_FIFO.
const (
	Burner   = 1 // takes the rest of a slowed CPU
	Router   = 3 // polls the links of metered hosts while the load is searched that they forward
	Receiver = 4 // polls the links of hosts that send and receive frames
)

// ErrDenied says that this process may not give such priorities.
var ErrDenied = errors.New(
	"real-time priority is not permitted here: it takes root or CAP_SYS_NICE, and in a control group of its own a share " +
		"of real-time (cpu.rt_runtime_us)")

// Give gives a thread a priority; 0 is the calling thread. What the thread starts does not inherit it. Where that is
// not permitted, the error wraps ErrDenied.
func Give(tid int, priority uint32) error {
	attr := unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: priority, Flags: unix.SCHED_FLAG_RESET_ON_FORK}
	err := unix.SchedSetAttr(tid, &attr, 0)
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w (%w)", ErrDenied, err)
	}
	return err
}

// Favour has a thread go before almost all other ordinary programs, nearly as soon as it wakes; 0 is the calling
// thread. It is for threads that may take a CPU whole: with real-time priority these would starve all programs on that
// CPU, and the kernel stops such a thread for 50 ms in each second for the others' sake (the fair server of Linux 6.12,
// the throttling of older kernels). Where that is not permitted, the error wraps ErrDenied.
func Favour(tid int) error {
	const (
		most  = -20
		slice = 100_000 // ns; the shorter, the sooner after waking (Linux 6.12; older kernels do not look at it)
	)
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL, Nice: most, Runtime: slice,
		Flags: unix.SCHED_FLAG_RESET_ON_FORK}
	err := unix.SchedSetAttr(tid, &attr, 0)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w (%w)", ErrDenied, err)
	}
	return err
}

// Permitted reports whether this process may give priorities, by trying it on a thread of its own.
func Permitted() bool { return tried(func() error { return Give(0, Burner) }) }

// MayPrecede reports whether this process may have programs go before all ordinary ones. It may where Permitted, and
// where only real-time priority is refused.
func MayPrecede() bool { return tried(func() error { return PrecedeThread(0) }) }

// tried reports whether the calling thread may do something to itself, on a thread that ends with it.
func tried(do func() error) bool {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its goroutine
		done <- do()
	}()
	return <-done == nil
}
