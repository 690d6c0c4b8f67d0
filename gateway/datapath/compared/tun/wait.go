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
	fd      int
	isWoken atomic.Bool // for threads that do not wait
}

func newWaker() (*waker, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	return &waker{fd: fd}, nil
}

// wake wakes all waits from now on: the descriptor is never read.
func (w *waker) wake() {
	w.isWoken.Store(true)
	unix.Write(w.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

func (w *waker) close() { unix.Close(w.fd) }

// addProcessors gives Go's scheduler more processors for threads that keep theirs, see patience. Negative numbers
// remove processors.
func addProcessors(n int) { runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + n) }

// pollBeforeWait is how long a thread waits for packets without telling Go's scheduler, which otherwise checks each
// waiting thread every 20 µs, at a cost above that of the waiting. The thread keeps its processor meanwhile. If the
// scheduler wants the processor, it sends a signal, which ends the wait; it does so after 10 ms in any case.
const pollBeforeWait = 5 * time.Millisecond

// idle is how long a thread waits for packets, as a system call known to the scheduler, before it does its periodic
// checks.
const idle = time.Second

// What a thread waits for.
const (
	readyStop = 1 << iota
	readyLAN
	readyDevice
)

// waiting is an epoll descriptor that knows its descriptors' meaning.
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

// wait blocks until a descriptor is ready, a signal arrives, or a time has passed. An error counts as ready: the reader
// gets it.
func (w waiting) wait() int {
	var events [3]unix.EpollEvent
	n, _, errno := unix.RawSyscall6(
		unix.SYS_EPOLL_PWAIT, uintptr(w.epoll), uintptr(unsafe.Pointer(&events)), uintptr(len(events)),
		uintptr(pollBeforeWait.Milliseconds()), 0, 0)
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

// poll blocks until one of the descriptors is ready, a signal arrives, or a time has passed.
func poll(fds []unix.PollFd) {
	limit := unix.NsecToTimespec(pollBeforeWait.Nanoseconds())
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(fds))), uintptr(len(fds)),
		uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	if n == 0 && errno == 0 {
		limit = unix.NsecToTimespec(idle.Nanoseconds())
		unix.Ppoll(fds, &limit, nil) // the descriptors are checked whatever the result
	}
}
