// A client's TCP connection below TLS.

package portal

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// wire is a client's TCP connection, which can be read and written without waiting.
type wire struct {
	*net.TCPConn
	// nonBlocking makes Read fail with os.ErrDeadlineExceeded instead of waiting, without harm to a TLS connection above.
	// nonBlockingWrite makes Write do the same.
	nonBlocking      bool
	nonBlockingWrite atomic.Bool
}

func (w *wire) Read(p []byte) (int, error) {
	if !w.nonBlocking {
		return w.TCPConn.Read(p)
	}
	n, err := w.atOnce("read", syscall.RawConn.Read, func(fd int) (int, error) { return unix.Read(fd, p) })
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

func (w *wire) Write(p []byte) (int, error) {
	if !w.nonBlockingWrite.Load() {
		return w.TCPConn.Write(p)
	}
	n, err := w.atOnce("write", syscall.RawConn.Write, func(fd int) (int, error) { return unix.Write(fd, p) })
	if n < len(p) && err == nil {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}

// atOnce makes one system call on the connection and does not wait: if the kernel has nothing to read, or no room to
// write, the error is os.ErrDeadlineExceeded. by is SyscallConn's Read or Write, call is the system call, and doing
// names it in errors.
func (w *wire) atOnce(doing string, by func(syscall.RawConn, func(uintptr) bool) error,
	call func(fd int) (int, error),
) (n int, err error) {
	raw, err := w.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = by(raw, func(fd uintptr) bool {
		n, failed = ignoringEINTR(func() (int, error) { return call(int(fd)) })
		return true
	})
	n = max(n, 0)
	switch {
	case err != nil:
		return 0, err
	case errors.Is(failed, unix.EAGAIN):
		return n, os.ErrDeadlineExceeded
	case failed != nil:
		return n, os.NewSyscallError(doing, failed)
	}
	return n, nil
}

// ended reports whether nothing but the connection's end has come, or its reset.
func (w *wire) ended() bool {
	n, over := 0, false
	err := control(w.TCPConn, func(fd int) (err error) {
		n, err = ignoringEINTR(func() (n int, err error) {
			n, _, err = unix.Recvfrom(fd, make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
			return n, err
		})
		over = err == nil && n == 0 || errors.Is(err, unix.ECONNRESET)
		return nil
	})
	return err == nil && over
}

// unread reports whether something has come that nobody has read.
func (w *wire) unread() bool {
	n := 0
	err := control(w.TCPConn, func(fd int) (err error) {
		n, err = unix.IoctlGetInt(fd, unix.TIOCINQ)
		return err
	})
	return err == nil && n > 0
}

func ignoringEINTR(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
