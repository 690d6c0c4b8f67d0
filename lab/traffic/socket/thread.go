// Package socket is what generators and probers are made of: a thread of their
// own, waiting for many sockets, sending without waiting. Linux only.
package socket

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Clock reads the on-CPU time of one OS thread from any goroutine of the
// process, during the thread's life and after it.
type Clock struct {
	tid   atomic.Int32
	ended atomic.Bool
	final atomic.Int64
}

// OwnThread ties the calling goroutine to its thread for good: the thread ends
// with the goroutine, and with it the timer slack set here.
func OwnThread(name string) {
	runtime.LockOSThread()
	// The default slack lets a timer be 50 µs late; 1 ns is the least there is
	// (prctl(2)). Failing to set either attribute costs precision, not the run.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	if b, err := unix.BytePtrFromString(name); err == nil {
		_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(b)), 0, 0, 0)
	}
}

// Enter makes the calling goroutine's thread its own and starts to read its
// clock. Call Finish when done.
func (c *Clock) Enter(name string) {
	OwnThread(name)
	c.tid.Store(int32(unix.Gettid()))
}

// Finish keeps the thread's last reading. Runs on the thread itself.
func (c *Clock) Finish() {
	c.final.Store(c.Read())
	c.ended.Store(true)
}

// Read returns nanoseconds, 0 before the thread has begun.
func (c *Clock) Read() int64 {
	if c.ended.Load() {
		return c.final.Load()
	}
	tid := c.tid.Load()
	if tid == 0 {
		return 0
	}
	// The kernel's clock id of another thread of this process, as
	// pthread_getcpuclockid(3) builds it: CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED,
	// include/linux/posix-timers_types.h. Exact, and needs no /proc.
	var ts unix.Timespec
	if err := unix.ClockGettime(^tid<<3|4|2, &ts); err != nil {
		return c.final.Load() // ended between the two looks
	}
	return ts.Nano()
}

// Poller is an epoll set with a bell that ends its waiting.
type Poller struct {
	epoll int

	mu   sync.Mutex
	bell int // eventfd, guarded by mu; -1 once closed
}

// BellID is the id under which Wait reports the bell.
const BellID = 0

// NewPoller makes a set that watches its bell only.
func NewPoller() (*Poller, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("creating an epoll set: %w", err)
	}
	bell, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		unix.Close(ep)
		return nil, fmt.Errorf("creating an eventfd: %w", err)
	}
	p := &Poller{epoll: ep, bell: bell}
	if err := p.Add(bell, BellID, unix.EPOLLIN); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Add watches fd level-triggered; Wait reports it by id.
func (p *Poller) Add(fd int, id int32, events uint32) error {
	ev := unix.EpollEvent{Events: events, Fd: id}
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return fmt.Errorf("watching a socket: %w", err)
	}
	return nil
}

// Remove no longer watches fd.
func (p *Poller) Remove(fd int) { _ = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, fd, nil) }

// Wait returns what is ready, nothing after ms milliseconds (-1: no limit) or
// when a signal came in between.
func (p *Poller) Wait(events []unix.EpollEvent, ms int) ([]unix.EpollEvent, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.epoll),
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
// Like Wait, it calls the kernel without telling Go's scheduler. Told, the
// scheduler would take the thread's processor back after each sleep's first
// milliseconds, and its monitor would wake every 20 µs to look for more of that:
// together some 5 % of a core for each agent, beside the router on the scales.
// Not told, the scheduler keeps the processor with the thread and reaches it by
// signal when it must. The process needs more processors (GOMAXPROCS) than it has
// such threads.
func Sleep(wait *unix.PollFd, d time.Duration) bool {
	ts := unix.NsecToTimespec(int64(max(d, 0)))
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(wait)), 1, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
	return errno == 0 && n > 0
}

// Watch is the set as Sleep waits for it: readable when a socket is ready.
func (p *Poller) Watch() *unix.PollFd { return &unix.PollFd{Fd: int32(p.epoll), Events: unix.POLLIN} }

// Bell is the bell alone as Sleep waits for it.
func (p *Poller) Bell() *unix.PollFd { return &unix.PollFd{Fd: int32(p.bell), Events: unix.POLLIN} }

// Ring makes the bell readable until Hush; safe from any goroutine, also after close.
func (p *Poller) Ring() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bell >= 0 {
		_, _ = unix.Write(p.bell, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// Hush makes the bell unreadable again.
func (p *Poller) Hush() {
	var b [8]byte
	_, _ = unix.Read(p.bell, b[:])
}

// Close is for the thread that waits, as its last act.
func (p *Poller) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bell >= 0 {
		unix.Close(p.bell)
		unix.Close(p.epoll)
		p.bell = -1
	}
}
