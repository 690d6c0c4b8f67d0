package traffic

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// threadClock reads the on-CPU time of one OS thread from any goroutine of the
// process, during the thread's life and after it.
type threadClock struct {
	tid   atomic.Int32
	ended atomic.Bool
	final atomic.Int64
}

// ownThread ties the calling goroutine to its thread for good: the thread ends
// with the goroutine, and with it the timer slack set here.
func ownThread(name string) {
	runtime.LockOSThread()
	// The default slack lets a timer be 50 µs late; 1 ns is the least there is
	// (prctl(2)). Failing to set either attribute costs precision, not the run.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	if b, err := unix.BytePtrFromString(name); err == nil {
		_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(b)), 0, 0, 0)
	}
}

// enter makes the calling goroutine's thread its own and starts to read its
// clock. Call finish when done.
func (c *threadClock) enter(name string) {
	ownThread(name)
	c.tid.Store(int32(unix.Gettid()))
}

// finish keeps the thread's last reading. Runs on the thread itself.
func (c *threadClock) finish() {
	c.final.Store(c.read())
	c.ended.Store(true)
}

// read returns nanoseconds, 0 before the thread has begun.
func (c *threadClock) read() int64 {
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

// poller is an epoll set with a bell that ends its waiting.
type poller struct {
	epoll int

	mu   sync.Mutex
	bell int // eventfd, guarded by mu; -1 once closed
}

// bellID is the id under which wait reports the bell.
const bellID = 0

func newPoller() (*poller, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("creating an epoll set: %w", err)
	}
	bell, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		unix.Close(ep)
		return nil, fmt.Errorf("creating an eventfd: %w", err)
	}
	p := &poller{epoll: ep, bell: bell}
	if err := p.add(bell, bellID, unix.EPOLLIN); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// add watches fd level-triggered; wait reports it by id.
func (p *poller) add(fd int, id int32, events uint32) error {
	ev := unix.EpollEvent{Events: events, Fd: id}
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return fmt.Errorf("watching a socket: %w", err)
	}
	return nil
}

func (p *poller) remove(fd int) { _ = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, fd, nil) }

// wait returns what is ready, nothing after ms milliseconds (-1: no limit) or
// when a signal came in between.
func (p *poller) wait(events []unix.EpollEvent, ms int) ([]unix.EpollEvent, error) {
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

// sleep waits until the descriptor of wait is ready or the time is over; a
// signal ends it too. It reports whether the descriptor is ready.
//
// Like wait, it calls the kernel without telling Go's scheduler. Told, the
// scheduler would take the thread's processor back after each sleep's first
// milliseconds, and its monitor would wake every 20 µs to look for more of that:
// together some 5 % of a core for each agent, beside the router on the scales.
// Not told, the scheduler keeps the processor with the thread and reaches it by
// signal when it must. The process needs more processors (GOMAXPROCS) than it has
// such threads.
func sleep(wait *unix.PollFd, d time.Duration) bool {
	ts := unix.NsecToTimespec(int64(max(d, 0)))
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(wait)), 1, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
	return errno == 0 && n > 0
}

// ring makes the bell readable until hush; safe from any goroutine, also after close.
func (p *poller) ring() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bell >= 0 {
		_, _ = unix.Write(p.bell, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

func (p *poller) hush() {
	var b [8]byte
	_, _ = unix.Read(p.bell, b[:])
}

// close is for the thread that waits, as its last act.
func (p *poller) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bell >= 0 {
		unix.Close(p.bell)
		unix.Close(p.epoll)
		p.bell = -1
	}
}
