package traffic

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

const headerTimeout = handshakeTimeout // from connection to complete header

// streamServer takes the connections of a Server.
type streamServer struct {
	*Server
	listener int
	spare    *os.File        // closed to accept and refuse a connection when no descriptor is left
	conns    map[int32]*conn // by the id with which the thread watches them
	nextID   int32
	waiting  int // connections without a header yet
}

var _ protocol = (*streamServer)(nil)

// conn is one accepted connection; its stream is nil until the header is read.
type conn struct {
	fd    int
	run   *serverRun
	st    *stream
	head  [headerSize]byte
	got   int
	since time.Time
}

// listenTCP makes s a server of TCP. Connections get their window and their congestion
// control from the listener.
func (s *Server) listenTCP(addr netip.AddrPort) (fd int, err error) {
	fd, err = NewSocket(addr.Addr(), false)
	if err != nil {
		return -1, err
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err = unix.Bind(fd, socket.Addr(addr)); err == nil {
		err = unix.Listen(fd, MaxStreams) // the kernel cuts it to somaxconn
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("listening on %s: %w", addr, err)
	}
	t := &streamServer{Server: s, listener: fd, conns: map[int32]*conn{}, nextID: listenID}
	if t.spare, err = os.Open(os.DevNull); err != nil {
		unix.Close(fd)
		return -1, err
	}
	s.protocol = t
	return fd, nil
}

func (s *streamServer) patienceMs() int {
	if s.waiting > 0 {
		return 1000 // only to notice a header that never comes
	}
	return -1
}

func (s *streamServer) handle(ready []unix.EpollEvent) {
	for _, ev := range ready {
		switch ev.Fd {
		case socket.BellID: // the loop ends
		case listenID:
			s.accept()
		default:
			// A connection may be gone: its run ended earlier in this batch.
			if c := s.conns[ev.Fd]; c != nil {
				s.ready(ev.Fd, c)
			}
		}
	}
	if s.waiting > 0 {
		s.expire(time.Now().Add(-headerTimeout))
	}
}

func (s *streamServer) accept() {
	for {
		fd, _, err := unix.Accept4(s.listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch err {
		case nil:
		case unix.EMFILE, unix.ENFILE:
			if s.refuseOne() {
				continue
			}
			return
		case unix.ECONNABORTED, unix.EINTR:
			continue
		default:
			return
		}
		s.nextID++
		if err := s.Add(fd, s.nextID, unix.EPOLLIN|unix.EPOLLRDHUP); err != nil {
			unix.Close(fd)
			continue
		}
		s.conns[s.nextID] = &conn{fd: fd, since: time.Now()}
		s.waiting++
	}
}

// refuseOne accepts and closes the first waiting connection when there is no free descriptor. If it stayed in the
// queue, the listener would stay ready and this thread would spin.
func (s *streamServer) refuseOne() bool {
	if s.spare == nil { // another thread took the descriptor when it was last closed
		s.spare, _ = os.Open(os.DevNull)
		return s.spare != nil
	}
	s.spare.Close()
	fd, _, err := unix.Accept4(s.listener, unix.SOCK_CLOEXEC)
	if err == nil {
		unix.Close(fd)
	}
	s.spare, _ = os.Open(os.DevNull)
	return err == nil
}

func (s *streamServer) ready(id int32, c *conn) {
	if c.st == nil {
		s.readHeader(id, c)
		return
	}
	err := c.run.drain(c.st)
	if err == nil {
		return
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	c.run.end(c.st, err)
	delete(s.conns, id)
	s.Remove(c.fd)
	// The pacer may be about to write here, so the number stays taken until the
	// run is over; the peer gets its end now.
	_ = unix.Shutdown(c.fd, unix.SHUT_RDWR)
	if c.run.live--; c.run.live == 0 {
		s.endRun(c.run)
	}
}

// readHeader collects a header, which may come in pieces, and answers it.
func (s *streamServer) readHeader(id int32, c *conn) {
	n, err := unix.Read(c.fd, c.head[c.got:])
	if err == unix.EAGAIN || err == unix.EINTR {
		return
	}
	a := refusedHeader
	if err == nil && n > 0 {
		if c.got += n; c.got < headerSize {
			return
		}
		if h, err := parseHeader(c.head[:]); err == nil && !h.cfg.UDP {
			a = s.join(h, c)
		}
		_, err = socket.SendSome(c.fd, []byte{byte(a)})
	}
	if a != accepted {
		s.drop(id, c)
		return
	}
	s.waiting--
	c.run.live++
	if err == nil { // otherwise the stream is broken, which its next event says
		s.joined(c)
	}
}

// join makes the connection a stream of its run.
func (s *streamServer) join(h header, c *conn) serverAnswer {
	if h.cfg.Direction == result.Down {
		if prepareSender(c.fd, h.cfg) != nil {
			return refusedSocket
		}
	} else {
		_ = prepareReceiver(c.fd, h.cfg) // without it the thread only wakes more often
	}
	r := s.admit(h)
	if r == nil || r.streams[h.index].fd >= 0 {
		return refusedRun
	}
	c.run, c.st = r, &r.streams[h.index]
	c.st.fd = c.fd
	return accepted
}

// joined counts an accepted stream. With the last stream of a run, sending begins.
func (s *streamServer) joined(c *conn) {
	r := c.run
	if r.accepted.Add(1) < int64(len(r.streams)) || !r.sends {
		return
	}
	if err := s.startSending(r, tcpWrite); err != nil { // no descriptors: end the run, which its client sees
		r.end(c.st, err)
		for i := range r.streams {
			_ = unix.Shutdown(r.streams[i].fd, unix.SHUT_RDWR)
		}
	}
}

// drop closes a connection that belongs to no run.
func (s *streamServer) drop(id int32, c *conn) {
	delete(s.conns, id)
	unix.Close(c.fd)
	s.waiting--
}

// expire drops connections that are older than before and have not sent a header.
func (s *streamServer) expire(before time.Time) {
	for id, c := range s.conns {
		if c.st == nil && c.since.Before(before) {
			s.drop(id, c)
		}
	}
}

func (s *streamServer) closeAll() {
	s.expire(time.Now())
	s.endAll()
	s.spare.Close()
	unix.Close(s.listener)
}
