package traffic

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// datagramServer takes the datagrams of a Server. One socket is for all streams: each
// datagram says which stream it belongs to.
type datagramServer struct {
	*Server
	fd   int
	in   *inbox
	wait *unix.PollFd // for the bell
	look time.Time    // when expire is called next
}

var _ protocol = (*datagramServer)(nil)

// listenUDP makes s a server of UDP.
func (s *Server) listenUDP(addr netip.AddrPort) (fd int, err error) {
	if fd, err = socket.ListenUDP(addr); err != nil {
		return -1, err
	}
	prepareDatagrams(fd, serverBuffer)
	s.protocol = &datagramServer{Server: s, fd: fd, in: newInbox(inboxSize), wait: s.Bell()}
	return fd, nil
}

// patienceMs is how long the server waits for datagrams before it looks for runs whose client is silent.
func (s *datagramServer) patienceMs() int { return 1000 }

func (s *datagramServer) handle(ready []unix.EpollEvent) {
	now := time.Now()
	if len(ready) > 0 && ready[0].Fd == listenID {
		// An error is that of one peer, which has gone. The next call reads the datagrams behind it.
		_ = s.in.drain(s.fd, func(h head, n int, text []byte, from *peer) { s.take(now, h, n, text, from) })
		socket.Sleep(s.wait, gatherPause)
	}
	if now.After(s.look) {
		s.expire(now)
		s.look = now.Add(time.Second)
	}
}

// take handles one datagram. An answer may get lost: the client then sends its hello again.
func (s *datagramServer) take(now time.Time, h head, n int, text []byte, from *peer) {
	if h.kind == kindHello {
		a := refusedHeader
		asked, err := parseHeader(text[headSize:])
		if err == nil && asked.cfg.UDP && asked.id == h.run {
			a = s.join(now, asked, from)
		}
		_ = sendHead(s.fd, from, head{kind: kindAnswer, index: h.index, run: h.run, number: int64(a)})
		return
	}
	r := s.runByID(h.run)
	if r == nil || r.ended || h.index >= len(r.streams) {
		if h.kind == kindAlive || h.kind == kindEnd {
			_ = sendHead(s.fd, from, head{kind: kindEnd, index: h.index, run: h.run})
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
		_ = sendHead(s.fd, from, h)
	case kindEnd:
		s.leave(r, nil)
		_ = sendHead(s.fd, from, h)
	}
}

// join adds a stream to its run; with its last stream the run begins.
func (s *datagramServer) join(now time.Time, h header, from *peer) serverAnswer {
	r := s.admit(h)
	if r == nil {
		return refusedRun
	}
	r.heard = now
	if r.peers[h.index].n != 0 {
		return accepted // the answer was lost
	}
	r.peers[h.index] = *from
	if r.accepted.Add(1) < int64(len(r.streams)) || !r.sends {
		return accepted
	}
	out := newOutbox(r.run)
	out.fd, out.peers = s.fd, r.peers
	if err := s.startSending(r, out.write); err != nil { // no descriptors
		s.leave(r, err)
		return refusedRun
	}
	return accepted
}

// expire ends runs whose generator is not heard of any more.
func (s *datagramServer) expire(now time.Time) {
	for _, r := range s.runs {
		if !r.ended && now.Sub(r.heard) > datagramPatience {
			s.leave(r, fmt.Errorf("generator %w for %s", errSilent, datagramPatience))
		}
	}
}

// leave ends a run and all its streams.
func (s *datagramServer) leave(r *serverRun, err error) {
	for i := range r.streams {
		r.end(&r.streams[i], err)
	}
	s.endRun(r)
}

func (s *datagramServer) closeAll() {
	s.endAll()
	unix.Close(s.fd)
}
