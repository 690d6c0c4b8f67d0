package tun

import (
	"os"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// waker wakes threads that wait for packets.
type waker struct {
	fd   int
	woke atomic.Bool // for threads that have no time to wait
}

func newWaker() (*waker, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	return &waker{fd: fd}, nil
}

// wake is for ever: nobody reads the descriptor.
func (w *waker) wake() {
	w.woke.Store(true)
	unix.Write(w.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

func (w *waker) close() { unix.Close(w.fd) }

// addProcessors gives Go's scheduler processors for threads that keep theirs, see
// patience. Negative numbers take processors back.
func addProcessors(n int) { runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + n) }

// patience is how long a thread waits for packets without a word to Go's scheduler,
// which would look after each waiting thread every 20 µs, and cost more than the
// waiting. Its processor is kept meanwhile; should the scheduler want it back, it
// sends a signal, and that ends the wait. After 10 ms it would do so anyway.
const patience = 5 * time.Millisecond

// idle is how long a thread waits for packets, in the scheduler's custody, before it
// looks after itself.
const idle = time.Second

// What a thread waits for.
const (
	readyStop = 1 << iota
	readyLAN
	readyDevice
)

// waiting is an epoll descriptor that knows which of them is which.
type waiting struct{ epoll int }

func newWaiting(stop, lan, device int) (waiting, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return waiting{-1}, os.NewSyscallError("epoll_create1", err)
	}
	for what, of := range map[int32]int{readyStop: stop, readyLAN: lan, readyDevice: device} {
		if err := unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, of, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: what}); err != nil {
			unix.Close(fd)
			return waiting{-1}, os.NewSyscallError("epoll_ctl", err)
		}
	}
	return waiting{fd}, nil
}

// wait blocks until something is ready, or a signal comes, or for a while. An error
// is something ready, too: whoever reads meets it.
func (w waiting) wait() int {
	var events [3]unix.EpollEvent
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(w.epoll), uintptr(unsafe.Pointer(&events)), uintptr(len(events)),
		uintptr(patience.Milliseconds()), 0, 0)
	if errno != 0 {
		return 0
	}
	if n == 0 {
		some, _ := unix.EpollWait(w.epoll, events[:], int(idle.Milliseconds()))
		n = uintptr(max(0, some))
	}
	ready := 0
	for i := range n {
		ready |= int(events[i].Fd)
	}
	return ready
}

func (w waiting) close() {
	if w.epoll > 0 {
		unix.Close(w.epoll)
	}
}

// poll blocks until one of the descriptors is ready, or a signal comes, or for a
// while.
func poll(fds []unix.PollFd) {
	limit := unix.NsecToTimespec(patience.Nanoseconds())
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(fds))), uintptr(len(fds)),
		uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	if n == 0 && errno == 0 {
		limit = unix.NsecToTimespec(idle.Nanoseconds())
		unix.Ppoll(fds, &limit, nil) // whatever it says, the descriptors are looked at
	}
}
