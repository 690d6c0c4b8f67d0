package sink

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

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

// end has work return and waits for it. A signal ends the system call that the thread may wait in: the one by which Go's
// runtime interrupts threads, which ignores it where it has not sent it. The thread may have been about to wait, so
// the signal is sent again.
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
