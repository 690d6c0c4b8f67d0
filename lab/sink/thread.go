package sink

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What Go's runtime takes beside the thread that takes frames:
//
//   - That thread waits by raw system calls. Where the runtime knows that a thread waits, its monitor looks every 20 µs
//     whether to give the thread's place to another, a fifth of what a recv sink costs; so it looks every 10 ms.
//   - The monitor would send the thread a signal every 10 ms, which ends its system call: Quiet switches that off.
//   - Garbage is not collected (Run).
//
// A recv sink costs 0 to 30 % more than the same loop in C at 20,000 frames a second and more, and up to 6 ms of CPU
// time a second more at any rate (a busy machine).

// Quiet runs this process's program anew, with the same arguments, where Go's runtime would interrupt threads that run
// for long. It returns an error, or nil where there is nothing to do.
func Quiet() error {
	const key, off = "GODEBUG", "asyncpreemptoff=1"
	set := os.Getenv(key)
	if strings.Contains(set, off) {
		return nil
	}
	if set != "" {
		set += ","
	}
	if err := os.Setenv(key, set+off); err != nil {
		return fmt.Errorf("starting the program anew: %w", err)
	}
	return fmt.Errorf("starting the program anew: %w", unix.Exec("/proc/self/exe", os.Args, os.Environ()))
}

// awaitReadable waits on the thread that takes frames until a descriptor can be read or has an error, a signal comes,
// or the time is over; 0: no limit.
func awaitReadable(fd int, limit time.Duration) error {
	var timeout *unix.Timespec
	if limit > 0 {
		t := unix.NsecToTimespec(int64(limit))
		timeout = &t
	}
	poll := unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	_, _, errno := unix.RawSyscall6(
		unix.SYS_PPOLL, uintptr(unsafe.Pointer(&poll)), 1, uintptr(unsafe.Pointer(timeout)), 0, 0, 0)
	if errno != 0 && errno != unix.EINTR {
		return fmt.Errorf("waiting for frames: %w", errno)
	}
	return nil
}

// stopping reports whether the capturing is to end.
type stopping func() bool

// thread is an OS thread that takes frames.
type thread struct {
	stop atomic.Bool
	tid  int
	done chan struct{} // closed once work has returned
	err  error         // of work
}

func startThread(work func(stopping) error) *thread {
	t := &thread{done: make(chan struct{})}
	began := make(chan struct{})
	go func() {
		defer close(t.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		t.tid = unix.Gettid()
		close(began)
		t.err = work(t.stop.Load)
	}()
	<-began
	return t
}

// end has work return and waits for it. A signal ends the system call that the thread may wait in: the one by which
// Go's runtime interrupts threads, which ignores it where it has not sent it. The thread may have been about to wait,
// so the signal is sent again.
func (t *thread) end() error {
	t.stop.Store(true)
	for {
		select {
		case <-t.done:
			return t.err
		default:
			_ = unix.Tgkill(unix.Getpid(), t.tid, unix.SIGURG)
		}
		select {
		case <-t.done:
		case <-time.After(time.Millisecond):
		}
	}
}
