package traffic

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// DatagramServer is the far end of Generators that send or ask for UDP. One socket is
// for all their streams: datagrams say whose they are. One thread receives; each run
// that sends has one more, the same pacer the client has.
type DatagramServer struct {
	service
	fd   int
	in   *inbox       // the thread's
	wait *unix.PollFd // for the bell
	look time.Time    // when runs are next looked at that may be over; the thread's
}

var _ duties = (*DatagramServer)(nil)

// ListenDatagrams returns a non-blocking UDP socket for ServeDatagrams, in the calling
// thread's network namespace. Port 0 takes any.
func ListenDatagrams(addr netip.AddrPort) (fd int, err error) {
	if fd, err = NewDatagramSocket(addr.Addr()); err != nil {
		return -1, err
	}
	if err := unix.Bind(fd, socket.Addr(addr)); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("binding to %s: %w", addr, err)
	}
	return fd, nil
}

// ServeDatagrams takes datagrams from a socket of ListenDatagrams, which it owns from
// the call on, until Close or the end of ctx.
func ServeDatagrams(ctx context.Context, fd int) (*DatagramServer, error) {
	s := &DatagramServer{fd: fd, in: newInbox(inboxSize)}
	setBuffers(fd, serverBuffer, serverBuffer)
	var err error
	if s.poll, err = socket.NewPoller(); err == nil {
		if err = s.poll.Add(fd, listenID, unix.EPOLLIN); err != nil {
			s.poll.Close()
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("datagrams' server: %w", err)
	}
	s.wait = s.poll.Bell()
	s.begin(ctx, s, 2)
	return s, nil
}

func (s *DatagramServer) patienceMs() int { return 1000 } // only to notice runs whose client has fallen silent

func (s *DatagramServer) handle(ready []unix.EpollEvent) {
	now := time.Now()
	if len(ready) > 0 && ready[0].Fd == listenID {
		// An error is of one peer's, long gone; the next call goes on behind it.
		_ = s.in.drain(s.fd, func(h head, n int, said []byte, from *peer) { s.take(now, h, n, said, from) })
		socket.Sleep(s.wait, gatherPause)
	}
	if now.After(s.look) {
		s.expire(now)
		s.look = now.Add(time.Second)
	}
}

// take handles one datagram.
func (s *DatagramServer) take(now time.Time, h head, n int, said []byte, from *peer) {
	if h.kind == kindHello {
		s.hello(now, h, said[headSize:], from)
		return
	}
	r := s.byShort(h.run)
	if r == nil || r.ended || h.index >= len(r.streams) {
		if h.kind == kindAlive || h.kind == kindEnd {
			s.tell(head{kind: kindEnd, index: h.index, run: h.run}, from)
		}
		return
	}
	switch h.kind {
	case kindData:
		if !r.sends && r.peers[h.index].n != 0 {
			r.streams[h.index].arrived(h.number, n)
		}
	case kindAlive:
		r.heard = now
		s.tell(h, from)
	case kindEnd:
		for i := range r.streams {
			r.end(&r.streams[i])
		}
		s.endRun(r)
		s.tell(h, from)
	}
}

// byShort finds a run by what datagrams carry of its id; most are of the newest.
func (s *DatagramServer) byShort(id uint64) *serverRun {
	for i := len(s.runs) - 1; i >= 0; i-- { // only this thread changes it: no lock to read
		if r := s.runs[i]; r.id.short() == id {
			return r
		}
	}
	return nil
}

// tell is best effort: a client without an answer asks again.
func (s *DatagramServer) tell(h head, to *peer) {
	var b [headSize]byte
	h.put(b[:])
	_ = tell(s.fd, to, b[:])
}

// hello answers a stream that begins, each time it asks.
func (s *DatagramServer) hello(now time.Time, h head, said []byte, from *peer) {
	a := refusedHeader
	asked, err := parseHeader(said)
	if err == nil && asked.cfg.UDP && asked.id.short() == h.run {
		a = s.admit(now, asked, from)
	}
	s.tell(head{kind: kindAnswer, index: h.index, run: h.run, number: int64(a)}, from)
}

// admit finds or makes the run of a stream; with its last stream the run begins.
func (s *DatagramServer) admit(now time.Time, h header, from *peer) answer {
	r := s.find(h.id)
	if r != nil && (r.ended || r.cfg != h.cfg) {
		return refusedRun
	}
	if r == nil {
		r = s.addRun(h)
		r.peers = make([]peer, len(r.streams))
	}
	r.heard = now
	if r.peers[h.index].n != 0 {
		return accepted // the answer was lost
	}
	r.peers[h.index] = *from
	if r.accepted.Add(1) < int64(len(r.streams)) {
		return accepted
	}
	r.begin()
	if !r.sends {
		return accepted
	}
	out := newOutbox(r.run)
	out.fd, out.peers = s.fd, r.peers
	p, err := startPacer(r.run, out.write)
	if err != nil { // no descriptors
		s.giveUp(r, err)
		return refusedRun
	}
	s.sendsBy(r, p)
	return accepted
}

// expire ends runs whose generator is not heard of any more.
func (s *DatagramServer) expire(now time.Time) {
	for _, r := range s.runs {
		if !r.ended && now.Sub(r.heard) > datagramPatience {
			s.giveUp(r, fmt.Errorf("generator %w for %s", errSilent, datagramPatience))
		}
	}
}

func (s *DatagramServer) giveUp(r *serverRun, err error) {
	for i := range r.streams {
		r.fail(&r.streams[i], err)
	}
	s.endRun(r)
}

func (s *DatagramServer) closeAll() {
	s.endAll()
	s.poll.Close()
	unix.Close(s.fd)
}
