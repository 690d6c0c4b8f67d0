package tun

import (
	"os"
	"sync/atomic"

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

// What a thread waits for.
const (
	readyStop = 1 << iota
	readyLAN
	readyDevice
	readyError // of the LAN's socket or the device
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

// wait blocks for at most the given time, milliseconds, -1: for any, and returns
// what is ready. An error is something ready, too: whoever reads meets it.
func (w waiting) wait(ms int) int {
	var events [3]unix.EpollEvent
	n, _ := unix.EpollWait(w.epoll, events[:], ms) // a signal ends it now and then
	ready := 0
	for i := range max(0, n) {
		ready |= int(events[i].Fd)
		if events[i].Events&unix.EPOLLERR != 0 {
			ready |= readyError
		}
	}
	return ready
}

func (w waiting) close() {
	if w.epoll > 0 {
		unix.Close(w.epoll)
	}
}
