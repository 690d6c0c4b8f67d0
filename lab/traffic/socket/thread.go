// Package socket has the parts of generators and probes: OS threads that wait for many sockets, and non-blocking
// sockets. Linux only.
package socket

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// BellID is the id with which Wait reports the bell, an eventfd that ends the waiting of a Thread.
const BellID = 0

// Thread is an OS thread that waits for sockets, with a bell that ends its waiting.
type Thread struct {
	epoll, bell int // descriptors of the epoll set and of an eventfd
	stopping    atomic.Bool
	done        chan struct{} // nil until Start
	closeOnce   sync.Once

	tid   atomic.Int32 // 0 while the thread does not run
	cpuNs atomic.Int64 // its CPU time, once it has ended
}

// NewThread prepares a thread that watches its bell only. Close it, started or not.
func NewThread() (*Thread, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("creating an epoll set: %w", err)
	}
	bell, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		unix.Close(ep)
		return nil, fmt.Errorf("creating an eventfd: %w", err)
	}
	t := &Thread{epoll: ep, bell: bell}
	if err := t.Add(bell, BellID, unix.EPOLLIN); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// Start runs work on a new OS thread called name. The thread ends when work returns. work must return soon after Close
// or the end of ctx: Stopping then returns true.
func (t *Thread) Start(ctx context.Context, name string, work func()) {
	t.done = make(chan struct{})
	stop := context.AfterFunc(ctx, func() { t.Close() })
	go func() {
		defer close(t.done)
		defer stop()
		runtime.LockOSThread()
		// The default slack lets a timer be 50 µs late; 1 ns is the least there is
		// (prctl(2)). Failing to set either attribute costs precision, not the run.
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
		if b, err := unix.BytePtrFromString(name); err == nil {
			_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(b)), 0, 0, 0)
		}
		t.tid.Store(int32(unix.Gettid()))
		work()
		t.cpuNs.Store(t.CPUNs())
		t.tid.Store(0)
	}()
}

// Stopping reports whether Close was called.
func (t *Thread) Stopping() bool { return t.stopping.Load() }

// Done is closed when the thread has ended.
func (t *Thread) Done() <-chan struct{} { return t.done }

// Close rings the bell, waits until the thread has ended, and closes its descriptors. It
// may be called twice, from any other goroutine.
func (t *Thread) Close() error {
	t.closeOnce.Do(func() {
		t.stopping.Store(true)
		_, _ = unix.Write(t.bell, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		if t.done != nil {
			<-t.done
		}
		unix.Close(t.bell)
		unix.Close(t.epoll)
	})
	return nil
}

// CPUNs is the thread's on-CPU time, nanoseconds, during its life and after; any
// goroutine of the process may ask for it.
func (t *Thread) CPUNs() int64 {
	tid := t.tid.Load()
	if tid == 0 {
		return t.cpuNs.Load()
	}
	// The clock id of another thread of this process (pthread_getcpuclockid(3)):
	// CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED, include/linux/posix-timers_types.h.
	var ts unix.Timespec
	if err := unix.ClockGettime(^tid<<3|4|2, &ts); err != nil {
		return t.cpuNs.Load() // the thread has ended meanwhile
	}
	return ts.Nano()
}

// Add watches fd level-triggered; Wait reports it by id.
func (t *Thread) Add(fd int, id int32, events uint32) error {
	ev := unix.EpollEvent{Events: events, Fd: id}
	if err := unix.EpollCtl(t.epoll, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return fmt.Errorf("watching a socket: %w", err)
	}
	return nil
}

// Remove no longer watches fd.
func (t *Thread) Remove(fd int) { _ = unix.EpollCtl(t.epoll, unix.EPOLL_CTL_DEL, fd, nil) }

// Wait returns what is ready, nothing after ms milliseconds (-1: no limit) or
// when a signal came in between.
func (t *Thread) Wait(events []unix.EpollEvent, ms int) ([]unix.EpollEvent, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(t.epoll),
		uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), uintptr(ms), 0, 0)
	if errno == unix.EINTR {
		return nil, nil
	}
	if errno != 0 {
		return nil, fmt.Errorf("waiting for sockets: %w", errno)
	}
	return events[:n], nil
}

// Sleep waits until the descriptor of wait is ready or the time is over; a
// signal ends it too. It reports whether the descriptor is ready.
//
// Like Wait, Sleep makes its system call without telling Go's scheduler. Otherwise the
// scheduler would take the thread's processor away after the first milliseconds of each
// sleep, and its monitor would wake every 20 µs to look for such threads: together some
// 5 % of a core for each agent. The process needs more processors (GOMAXPROCS) than it
// has such threads.
func Sleep(wait *unix.PollFd, d time.Duration) bool {
	ts := unix.NsecToTimespec(int64(max(d, 0)))
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL,
		uintptr(unsafe.Pointer(wait)), 1, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
	return errno == 0 && n > 0
}

// Watch is the argument of Sleep that waits for the sockets and the bell.
func (t *Thread) Watch() *unix.PollFd { return &unix.PollFd{Fd: int32(t.epoll), Events: unix.POLLIN} }

// Bell is the argument of Sleep that waits for the bell alone.
func (t *Thread) Bell() *unix.PollFd { return &unix.PollFd{Fd: int32(t.bell), Events: unix.POLLIN} }

// Hush makes the bell unreadable again, so that a thread can wait although Close was called.
func (t *Thread) Hush() { _, _ = unix.Read(t.bell, make([]byte, 8)) }
