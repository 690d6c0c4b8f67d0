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

// How the sink keeps the CPU time of Go's runtime low:
//
//   - The thread that takes frames waits by raw system calls. With Go's own system calls the runtime's monitor would
//     check every 20 µs whether another thread needs the processor, a fifth of the cost of a recv sink. With raw
//     ones it checks every 10 ms.
//   - The monitor would then send the thread a signal every 10 ms, which ends its system call. Quiet switches that off.
//   - Run switches garbage collection off.
//
// At 20,000 frames a second and more a recv sink costs 0 to 30 % more than the same loop in C; on a busy machine up to
// 6 ms of CPU time a second more at any rate.

// Quiet restarts this process's program with the same arguments and asyncpreemptoff=1, so that Go's runtime does not
// interrupt threads by signals. It returns nil when that is set already.
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

// awaitReadable waits on the calling thread until a descriptor can be read or has an error, a signal comes, or the time
// limit is over. A limit of 0 means no limit.
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

// stopFunc reports whether capturing must end.
type stopFunc func() bool

// thread is an OS thread that takes frames.
type thread struct {
	stop atomic.Bool
	tid  int
	done chan struct{} // closed once work has returned
	err  error         // work's error
}

// startThread calls work on an OS thread of its own. work must return once its argument returns true.
func startThread(work func(stopFunc) error) *thread {
	started := &thread{done: make(chan struct{})}
	began := make(chan struct{})
	go func() {
		defer close(started.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		started.tid = unix.Gettid()
		close(began)
		started.err = work(started.stop.Load)
	}()
	<-began
	return started
}

// end makes work return and waits for it. A signal ends the system call in which the thread may wait: SIGURG, which
// Go's runtime uses itself and ignores when it has not sent it. end repeats the signal, because the thread may have
// entered the system call just after it.
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
