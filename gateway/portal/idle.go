package portal

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A connection between two requests has no goroutine and no buffers, which take some 35 KiB. net/http sees visits:
//
//	accepted ──▶ visit: net/http answers ── nothing more has come ──▶ idle ── idleTimeout, or others need room ──▶ closed
//	               ▲                                                   │
//	               └────────────────── something comes ────────────────┘

// idleConns waits for all idle connections at once, by epoll(7). It is a listener: it accepts a connection again when
// something comes over it.
type idleConns struct {
	limiter *connLimiter // its mu guards what is said to be guarded, and its list has all idle connections
	set     *os.File     // of epoll
	came    []unix.EpollEvent
	next    int // of came

	turn   int32 // guarded: of the last that became idle
	closed bool  // guarded
}

// comesAtOnce bounds what one call of the kernel returns.
const comesAtOnce = 64

func newIdleConns(c *connLimiter) (*idleConns, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // os.File then waits without a thread
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	set := os.NewFile(uintptr(fd), "epoll")
	return &idleConns{limiter: c, set: set, came: make([]unix.EpollEvent, 0, comesAtOnce)}, nil
}

// add has a connection wait. On error it is still the caller's.
func (i *idleConns) add(g *limitedConn) error {
	c := i.limiter
	c.mu.Lock()
	defer c.mu.Unlock()
	if i.closed {
		return net.ErrClosed
	}
	i.turn++
	g.turn = i.turn
	op := unix.EPOLL_CTL_MOD
	if !g.known {
		op, g.known = unix.EPOLL_CTL_ADD, true
	}
	// A descriptor may have gone to another connection before its event is looked at: the turn tells.
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: g.fd, Pad: g.turn}
	err := control(i.set, func(fd int) error { return unix.EpollCtl(fd, op, int(g.fd), &event) })
	if err != nil {
		return err
	}
	c.byFD[g.fd] = g
	if c.rests(g); c.idle.Len() == 1 {
		return i.set.SetReadDeadline(g.since.Add(idleTimeout))
	}
	return nil
}

// control calls fn with a file's descriptor.
func control(f syscall.Conn, fn func(fd int) error) (err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return errors.Join(raw.Control(func(fd uintptr) { err = fn(int(fd)) }), err)
}

// Accept returns a connection over which something has come, its end included. Meanwhile it closes those that have been
// idle for too long.
func (i *idleConns) Accept() (net.Conn, error) {
	for {
		for ; i.next < len(i.came); i.next++ {
			if g := i.take(i.came[i.next]); g != nil {
				i.next++
				return &visit{limitedConn: g, pool: i}, nil
			}
		}
		switch err := i.wait(); {
		case errors.Is(err, os.ErrDeadlineExceeded):
			i.expire(time.Now())
		case err != nil:
			return nil, err
		}
	}
}

// wait returns once something has come.
func (i *idleConns) wait() error {
	raw, err := i.set.SyscallConn()
	if err != nil {
		return err
	}
	i.came, i.next = i.came[:comesAtOnce], 0
	n, failed := 0, error(nil)
	err = raw.Read(func(fd uintptr) bool {
		n, failed = unix.EpollWait(int(fd), i.came, 0)
		return n > 0 || failed != nil && !errors.Is(failed, unix.EINTR)
	})
	i.came = i.came[:max(n, 0)]
	return errors.Join(err, failed)
}

// take returns the connection of an event, which is no longer idle; nil: it is closed by now.
func (i *idleConns) take(event unix.EpollEvent) *limitedConn {
	c := i.limiter
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.byFD[event.Fd]
	if g == nil || g.turn != event.Pad {
		return nil
	}
	c.wakes(g)
	return g
}

// expire closes connections that have been idle for idleTimeout.
func (i *idleConns) expire(now time.Time) {
	for {
		g := i.expired(now)
		if g == nil {
			return
		}
		g.drop()
	}
}

// expired returns the connection that has been idle longest, if that is long enough, and else sets when to look again.
func (i *idleConns) expired(now time.Time) *limitedConn {
	c := i.limiter
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.idle.Front()
	if first == nil {
		_ = i.set.SetReadDeadline(time.Time{})
		return nil
	}
	g := first.Value.(*limitedConn)
	if end := g.since.Add(idleTimeout); now.Before(end) {
		_ = i.set.SetReadDeadline(end)
		return nil
	}
	c.wakes(g)
	return g
}

// Close closes all idle connections, and the next ones at once.
func (i *idleConns) Close() error {
	i.limiter.mu.Lock()
	i.closed = true
	i.limiter.mu.Unlock()
	i.expire(time.Now().Add(idleTimeout))
	return i.set.Close()
}

// Addr implements net.Listener.
func (i *idleConns) Addr() net.Addr { return &net.UnixAddr{Name: "idle connections", Net: "epoll"} }

var _ net.Listener = (*idleConns)(nil)

// visit is a connection as net/http has it: until nothing more has come after an answer. net/http then reads an end and
// closes what it has.
type visit struct {
	*limitedConn
	pool     *idleConns
	buffer   int         // bytes of net/http's buffer; it reads fewer where something is in it
	answered bool        // and no next request has begun
	awaits   bool        // net/http awaits the first bytes of the next request
	rests    atomic.Bool // Close has the connection wait
	closed   atomic.Bool
}

func (v *visit) Read(p []byte) (int, error) {
	if v.buffer == 0 {
		v.buffer = len(p)
	}
	if !v.answered || len(p) < v.buffer {
		n, err := v.limitedConn.Read(p)
		if plain := (tls.RecordHeaderError{}); errors.As(err, &plain) && plain.Conn != nil {
			_, _ = io.WriteString(plain.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nThis port speaks HTTPS.\n")
		}
		return n, err
	}
	v.wire.hurry = true
	n, err := v.limitedConn.Read(p)
	v.wire.hurry = false
	if errors.Is(err, os.ErrDeadlineExceeded) && n == 0 {
		v.rests.Store(true)
		return 0, io.EOF
	}
	return n, err
}

// SetReadDeadline is how net/http tells that the next request has begun. After an answer it sets one deadline before it
// waits for the first bytes, and the next one when they are there. These bytes may be a part of the header that ends
// with a line, so net/http's buffer is empty although the request has begun.
func (v *visit) SetReadDeadline(t time.Time) error {
	if v.awaits {
		v.answered = false
	}
	v.awaits = v.answered
	return v.limitedConn.SetReadDeadline(t)
}

// Close may be called twice, as net/http does.
func (v *visit) Close() error {
	if v.closed.Swap(true) {
		return nil
	}
	if v.rests.Load() && v.pool.add(v.limitedConn) == nil {
		return nil
	}
	return v.limitedConn.Close()
}

// wire is a client's TCP connection, which can be read without waiting.
type wire struct {
	*net.TCPConn
	hurry bool // Read fails with os.ErrDeadlineExceeded instead of waiting, which spoils no TLS connection above
}

func (w *wire) Read(p []byte) (n int, err error) {
	if !w.hurry {
		return w.TCPConn.Read(p)
	}
	raw, err := w.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		n, failed = ignoringEINTR(func() (int, error) { return unix.Read(int(fd), p) })
		return true
	})
	switch {
	case err != nil:
		return 0, err
	case errors.Is(failed, unix.EAGAIN):
		return 0, os.ErrDeadlineExceeded
	case failed != nil:
		return 0, os.NewSyscallError("read", failed)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func ignoringEINTR(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
