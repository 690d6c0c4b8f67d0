// Connections on which the client may send another request.

package portal

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A connection between two requests has no goroutine and no buffers, which take some 35 KiB. net/http gets it
// as a new connection (idleableConn) whenever something has come:
//
//	accepted ─▶ net/http reads and answers ─ nothing more has come ─▶ idle ─ idleTimeout, or others need room ─▶ closed
//	              ▲                                                    │
//	              └───────────────────── something comes ──────────────┘

// idleConns waits for all idle connections at once, by epoll(7). It is a listener: it accepts a connection again when
// something comes over it.
type idleConns struct {
	limiter   *connLimiter // its mu guards the fields marked "guarded"; its list idle has these connections
	set       *os.File     // the epoll instance
	events    []unix.EpollEvent
	nextEvent int // index into events

	lastTurn int32 // guarded: the turn of the connection that became idle last
	closed   bool  // guarded
}

// eventsAtOnce is the largest number of events that one call of epoll_wait returns.
const eventsAtOnce = 64

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
	return &idleConns{limiter: c, set: set, events: make([]unix.EpollEvent, 0, eventsAtOnce)}, nil
}

// add makes a connection idle: it waits for the client's next request. On error the caller must close the connection.
func (i *idleConns) add(g *limitedConn) error {
	c := i.limiter
	c.mu.Lock()
	defer c.mu.Unlock()
	if i.closed || g.gone {
		return net.ErrClosed
	}
	i.lastTurn++
	g.turn = i.lastTurn
	op := unix.EPOLL_CTL_MOD
	if !g.inEpoll {
		op, g.inEpoll = unix.EPOLL_CTL_ADD, true
	}
	// A descriptor may have gone to another connection before its event is looked at: the turn tells.
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: g.fd, Pad: g.turn}
	err := control(i.set, func(fd int) error { return unix.EpollCtl(fd, op, int(g.fd), &event) })
	if err != nil {
		return err
	}
	c.waitIn(g, &c.idle)
	c.byFD[g.fd] = g
	if c.idle.Len() == 1 {
		return i.set.SetReadDeadline(g.idleSince.Add(idleTimeout))
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

// Accept returns a connection over which something has come. Meanwhile it closes those that have been idle for too
// long, and those that their clients have closed.
func (i *idleConns) Accept() (net.Conn, error) {
	for {
		for ; i.nextEvent < len(i.events); i.nextEvent++ {
			g := i.connOf(i.events[i.nextEvent])
			switch {
			case g == nil: // closed by now
			case i.events[i.nextEvent].Events&unix.EPOLLRDHUP != 0 && g.wire.ended():
				g.Close()
			default:
				i.nextEvent++
				return newIdleable(g, i), nil
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
	i.events, i.nextEvent = i.events[:eventsAtOnce], 0
	n, failed := 0, error(nil)
	err = raw.Read(func(fd uintptr) bool {
		n, failed = unix.EpollWait(int(fd), i.events, 0)
		return n > 0 || failed != nil && !errors.Is(failed, unix.EINTR)
	})
	i.events = i.events[:max(n, 0)]
	return errors.Join(err, failed)
}

// connOf returns the connection of an event; nil: it is closed by now. It is no longer idle: from now on its client
// has to finish a request (the list slow).
func (i *idleConns) connOf(event unix.EpollEvent) *limitedConn {
	c := i.limiter
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.byFD[event.Fd]
	if g == nil || g.turn != event.Pad {
		return nil
	}
	c.waitIn(g, &c.slow)
	return g
}

// expire closes connections that have been idle for idleTimeout.
func (i *idleConns) expire(now time.Time) {
	for {
		g := i.expired(now)
		if g == nil {
			return
		}
		g.shut()
	}
}

// expired ends the connection that has been idle longest, if that is long enough, and else sets when to look again.
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
	if end := g.idleSince.Add(idleTimeout); now.Before(end) {
		_ = i.set.SetReadDeadline(end)
		return nil
	}
	c.ends(g)
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
