package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// sessionKey names a PPPoE session: its client's address, and PPPoE's number.
type sessionKey struct {
	mac datapath.MAC
	id  uint16
}

// carrier opens the PPPoE sessions in the kernel, and receives their frames of control protocols for the concentrator.
// A session stays open as long as the concentrator or a client needs it.
type carrier struct {
	lan   string
	epoll *os.File

	sessions   map[sessionKey]*pppoeSession // guarded by the data path's mu
	files      map[int]watched              // by the file's number; guarded by that mu too
	generation int32                        // of the file watched last; guarded by that mu too
}

// watched is an open file of a session, a channel or a unit, whose frames are waited for. After it is closed another
// file may get its number: the generation tells the events of the two files apart.
type watched struct {
	session    *pppoeSession
	generation int32
}

func newCarrier(lan string) (*carrier, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // so that Go waits for it
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	return &carrier{
		lan: lan, epoll: os.NewFile(uintptr(fd), "epoll"),
		sessions: map[sessionKey]*pppoeSession{}, files: map[int]watched{}}, nil
}

// watch begins to wait for frames of a session's file: its channel or its unit.
func (c *carrier) watch(fd int, l *pppoeSession) error {
	c.generation++
	if err := c.control(unix.EPOLL_CTL_ADD, fd, c.generation); err != nil {
		return err
	}
	c.files[fd] = watched{l, c.generation}
	return nil
}

// ignore ends the waiting for a file's frames. It is called before the file is closed.
func (c *carrier) ignore(fd int) {
	if _, found := c.files[fd]; found {
		_ = c.control(unix.EPOLL_CTL_DEL, fd, 0)
		delete(c.files, fd)
	}
}

func (c *carrier) control(op, fd int, generation int32) (err error) {
	raw, err := c.epoll.SyscallConn()
	if err == nil {
		e := raw.Control(func(own uintptr) {
			err = unix.EpollCtl(int(own), op, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd), Pad: generation})
		})
		err = errors.Join(e, err)
	}
	if err != nil {
		return fmt.Errorf("waiting for frames of a session: %w", err)
	}
	return nil
}

// openSession returns the PPPoE session of a key, which it opens if there is none. d.mu is held.
func (d *Datapath) openSession(s sessionKey) (*pppoeSession, error) {
	c := d.carrier
	if l := c.sessions[s]; l != nil {
		return l, nil
	}
	if d.closed {
		return nil, errClosed
	}
	l, err := takeSession(c.lan, s)
	if err != nil {
		return nil, err
	}
	if err := c.add(l); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// add adds a PPPoE session, and begins to wait for frames of its channel.
func (c *carrier) add(l *pppoeSession) error {
	err := c.watch(l.channel, l)
	if err == nil {
		c.sessions[l.key] = l
	}
	return err
}

// closeUnused closes a PPPoE session unless the concentrator or a client needs it. d.mu is held.
func (d *Datapath) closeUnused(l *pppoeSession) {
	if l.carried || l.used {
		return
	}
	d.carrier.ignore(l.channel)
	delete(d.carrier.sessions, l.key)
	l.close()
}

// Carry implements the concentrator's Carrier.
func (d *Datapath) Carry(mac [6]byte, id uint16) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	l, err := d.openSession(sessionKey{mac, id})
	if err == nil {
		l.carried = true
	}
	return err
}

// Release implements the concentrator's Carrier. The session's client keeps its interface until it is removed.
func (d *Datapath) Release(mac [6]byte, id uint16) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.carrier.sessions[sessionKey{mac, id}]; l != nil {
		l.carried = false
		d.closeUnused(l)
	}
}

// frameMax is the largest frame that is read, bytes.
const frameMax = 2048

// Frames implements the concentrator's Carrier.
func (d *Datapath) Frames(ctx context.Context, f func(mac [6]byte, id uint16, frame []byte)) error {
	stop := context.AfterFunc(ctx, func() { _ = d.carrier.epoll.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := d.carrier.epoll.SyscallConn()
	if err != nil {
		return fmt.Errorf("waiting for frames of sessions: %w", err)
	}
	events, b := make([]unix.EpollEvent, 64), make([]byte, frameMax)
	for {
		var n int
		e := raw.Read(func(fd uintptr) bool {
			n, err = unix.EpollWait(int(fd), events, 0)
			return n != 0
		})
		switch {
		case ctx.Err() != nil || errors.Is(e, os.ErrClosed):
			return ctx.Err()
		case e != nil || err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("waiting for frames of sessions: %w", errors.Join(e, err))
		}
		for _, event := range events[:max(n, 0)] {
			if s, frame, ok := d.next(event, b); ok {
				f(s.mac, s.id, frame)
			}
		}
	}
}

// next handles an event of a watched file: it reads a frame, or returns nil as the frame when the PPPoE session has
// ended. ok is false if there is neither.
func (d *Datapath) next(event unix.EpollEvent, b []byte) (s sessionKey, frame []byte, ok bool) {
	d.mu.Lock() // nobody closes the file meanwhile
	defer d.mu.Unlock()
	fd := int(event.Fd)
	w := d.carrier.files[fd]
	if w.session == nil || w.generation != event.Pad { // the event is of a file that is closed
		return s, nil, false
	}
	l := w.session
	if event.Events&unix.EPOLLIN != 0 {
		n, err := unix.Read(fd, b)
		return l.key, b[:max(n, 0)], err == nil && n > 0
	}
	d.carrier.ignore(fd) // otherwise epoll would report the file's end again and again
	return l.key, nil, fd == l.channel
}
