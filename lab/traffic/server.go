package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

const headerTimeout = handshakeTimeout // from connection to complete header

const listenID = 1 // after socket.BellID; connections count on from here

// Server is the far end of any number of Generators: it takes their streams,
// discards what they send, and sends what they ask for. One thread accepts and
// receives; each run that sends has one more, the same pacer the client has.
type Server struct {
	service
	listener int
	spare    *os.File        // given up to refuse a connection when no descriptor is left
	conns    map[int32]*conn // the thread's
	nextID   int32           // the thread's
	waiting  int             // connections without a header yet; the thread's
}

var _ duties = (*Server)(nil)

// conn is one accepted connection; its stream is nil until the header is read.
type conn struct {
	fd    int
	run   *serverRun
	st    *stream
	head  [headerSize]byte
	got   int
	since time.Time
}

// Serve takes streams from a listening, non-blocking TCP socket (see Listen),
// which it owns from the call on, until Close or the end of ctx. It sets the
// listener's window, and its congestion control to cubic: connections get theirs
// from it, and one accepted under bbr would keep pacing.
func Serve(ctx context.Context, fd int) (*Server, error) {
	s := &Server{listener: fd, conns: map[int32]*conn{}, nextID: listenID}
	setWindow(fd)
	err := setCongestion(fd, "cubic")
	if err == nil {
		s.poll, err = socket.NewPoller()
	}
	if err == nil {
		err = s.poll.Add(fd, listenID, unix.EPOLLIN)
	}
	if err == nil {
		s.spare, err = os.Open(os.DevNull)
	}
	if err != nil {
		if s.poll != nil {
			s.poll.Close()
		}
		unix.Close(fd)
		return nil, fmt.Errorf("streams server: %w", err)
	}
	s.begin(ctx, s, 512)
	return s, nil
}

func (s *Server) patienceMs() int {
	if s.waiting > 0 {
		return 1000 // only to notice a header that never comes
	}
	return -1
}

func (s *Server) handle(ready []unix.EpollEvent) {
	for _, ev := range ready {
		switch ev.Fd {
		case socket.BellID: // stopping is set
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
		s.expire(time.Now())
	}
}

// accept takes every connection that waits.
func (s *Server) accept() {
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
		c := &conn{fd: fd, since: time.Now()}
		if err := s.poll.Add(fd, s.nextID, unix.EPOLLIN|unix.EPOLLRDHUP); err != nil {
			unix.Close(fd)
			continue
		}
		s.conns[s.nextID] = c
		s.waiting++
	}
}

// refuseOne closes the first waiting connection when descriptors have run out:
// left in the queue it would keep the listener ready and this thread spinning,
// and its client would learn nothing.
func (s *Server) refuseOne() bool {
	if s.spare == nil { // another thread was faster when it was last given up
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

// ready handles one connection that has something to say.
func (s *Server) ready(id int32, c *conn) {
	if c.st == nil {
		s.readHeader(id, c)
		return
	}
	err := c.run.drain(c.st)
	if err == nil {
		return
	}
	if errors.Is(err, io.EOF) {
		c.run.end(c.st)
	} else {
		c.run.fail(c.st, err)
	}
	delete(s.conns, id)
	s.poll.Remove(c.fd)
	// The pacer may be about to write here, so the number stays taken until the
	// run is over; the peer gets its end now.
	_ = unix.Shutdown(c.fd, unix.SHUT_RDWR)
	if c.run.live--; c.run.live == 0 {
		s.endRun(c.run)
	}
}

// readHeader collects a header, which may come in pieces, and answers it.
func (s *Server) readHeader(id int32, c *conn) {
	n, err := unix.Read(c.fd, c.head[c.got:])
	if err == unix.EAGAIN || err == unix.EINTR {
		return
	}
	if err != nil || n == 0 {
		s.drop(id, c)
		return
	}
	if c.got += n; c.got < headerSize {
		return
	}
	a := refusedHeader
	var r *serverRun
	if h, err := parseHeader(c.head[:]); err == nil {
		r, a = s.admit(h, c)
	}
	if a != accepted {
		_, _ = socket.SendSome(c.fd, []byte{byte(a)}) // best effort: the close says it too
		s.drop(id, c)
		return
	}
	s.waiting--
	s.answer(id, c, r)
}

// admit finds or makes the run of a header and fits the connection into it.
func (s *Server) admit(h header, c *conn) (*serverRun, answer) {
	if h.cfg.UDP {
		return nil, refusedHeader
	}
	r := s.find(h.id)
	if r != nil && (r.ended || r.cfg != h.cfg || r.streams[h.index].fd >= 0) {
		return nil, refusedRun
	}
	var err error
	if h.cfg.Direction == Down {
		if err = prepareSender(c.fd, h.cfg); err != nil {
			return nil, refusedCongestion
		}
	} else {
		_ = prepareReceiver(c.fd, h.cfg) // without it the thread only wakes more often
	}
	if r == nil {
		r = s.addRun(h)
	}
	c.run, c.st = r, &r.streams[h.index]
	c.st.fd = c.fd
	return r, accepted
}

// answer accepts a stream; with the last of its run the run begins.
func (s *Server) answer(id int32, c *conn, r *serverRun) {
	r.live++
	if _, err := socket.SendSome(c.fd, []byte{byte(accepted)}); err != nil {
		return // the stream is broken, which its next event says
	}
	if r.accepted.Add(1) < int64(len(r.streams)) {
		return
	}
	r.begin()
	if !r.sends {
		return
	}
	p, err := startPacer(r.run, tcpWrite)
	if err != nil { // no descriptors: end the run, which its client sees
		r.fail(c.st, err)
		for i := range r.streams {
			_ = unix.Shutdown(r.streams[i].fd, unix.SHUT_RDWR)
		}
		return
	}
	s.sendsBy(r, p)
}

// drop closes a connection that belongs to no run.
func (s *Server) drop(id int32, c *conn) {
	delete(s.conns, id)
	unix.Close(c.fd)
	s.waiting--
}

// expire drops connections that took too long to send a header.
func (s *Server) expire(now time.Time) {
	for id, c := range s.conns {
		if c.st == nil && now.Sub(c.since) > headerTimeout {
			s.drop(id, c)
		}
	}
}

func (s *Server) closeAll() {
	for id, c := range s.conns {
		if c.st == nil {
			s.drop(id, c)
		}
	}
	s.endAll()
	s.spare.Close()
	s.poll.Close()
	unix.Close(s.listener)
}
