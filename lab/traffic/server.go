package traffic

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

const keepEnded = 8 // ended runs whose Stats are kept

const listenID = 1 // after socket.BellID; connections count on from here

// Server is the far end of any number of Generators of one protocol: it takes their
// streams, discards what they send, and sends what they ask for. One thread receives;
// each run that sends has one more, the same pacer the client has.
type Server struct {
	protocol
	*socket.Thread

	mu   sync.Mutex
	runs []*serverRun // oldest first; guarded by mu against other threads than the server's
}

// protocol is the part of the server's thread that differs between TCP and UDP.
type protocol interface {
	// patienceMs bounds one wait for something to handle, milliseconds; -1: no bound.
	patienceMs() int
	handle(ready []unix.EpollEvent)
	// closeAll ends all runs and closes the sockets. It is called last.
	closeAll()
}

// serverRun is one Generator as its server sees it. All but run is the server
// thread's own; pacer and ended are also read by others, under the server's mu.
type serverRun struct {
	*run
	pacer *pacer
	live  int // streams accepted and not over; of TCP
	ended bool

	peers []peer    // where each stream is; of UDP
	heard time.Time // when its generator last sent anything but data; of UDP
}

// Serve takes streams at an address of the calling thread's network namespace until
// Close or the end of ctx. Port 0 takes any.
func Serve(ctx context.Context, addr netip.AddrPort, udp bool) (*Server, error) {
	thread, err := socket.NewThread()
	if err != nil {
		return nil, fmt.Errorf("streams server: %w", err)
	}
	s := &Server{Thread: thread}
	listen, batch := s.listenTCP, 512
	if udp {
		listen, batch = s.listenUDP, 2
	}
	fd, err := listen(addr)
	if err == nil {
		if err = s.Add(fd, listenID, unix.EPOLLIN); err != nil {
			s.closeAll()
		}
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("streams server: %w", err)
	}
	s.Start(ctx, "gw-serve", func() { s.loop(make([]unix.EpollEvent, batch)) })
	return s, nil
}

func (s *Server) loop(events []unix.EpollEvent) {
	defer s.closeAll()
	for !s.Stopping() {
		ready, err := s.Wait(events, s.patienceMs())
		if err != nil {
			return
		}
		s.handle(ready)
	}
}

// runByID is only for the server's thread, which needs no lock to read.
func (s *Server) runByID(id RunID) *serverRun {
	for _, r := range slices.Backward(s.runs) {
		if r.id == id {
			return r
		}
	}
	return nil
}

// admit finds or makes the run of a stream; nil when the stream does not fit it. With a new
// run it forgets the oldest of the ended ones.
func (s *Server) admit(h header) *serverRun {
	if r := s.runByID(h.id); r != nil {
		if r.ended || r.cfg != h.cfg {
			return nil
		}
		return r
	}
	r := &serverRun{run: newRun(h.id, h.cfg)}
	r.sends = h.cfg.Direction == result.Down
	if h.cfg.UDP {
		r.peers = make([]peer, len(r.streams))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ended := 0
	for _, old := range s.runs {
		if old.ended {
			ended++
		}
	}
	s.runs = slices.DeleteFunc(s.runs, func(old *serverRun) bool {
		if !old.ended {
			return false
		}
		ended--
		return ended >= keepEnded
	})
	s.runs = append(s.runs, r)
	return r
}

// startSending starts the thread that sends a run's payload.
func (s *Server) startSending(r *serverRun, write writeFunc) error {
	p, err := startPacer(r.run, write)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.pacer = p
	return nil
}

// endRun closes what a run holds once its last stream is over.
func (s *Server) endRun(r *serverRun) {
	if r.pacer != nil {
		r.pacer.Close()
	}
	_ = r.closeSockets()
	s.mu.Lock()
	defer s.mu.Unlock()
	r.ended = true
}

func (s *Server) endAll() {
	for _, r := range s.runs {
		if !r.ended {
			s.endRun(r)
		}
	}
}

// newest returns the newest n runs. The caller holds the lock.
func (s *Server) newest(n int) []*serverRun { return s.runs[max(0, len(s.runs)-n):] }

// Stats are the Stats of the newest n runs, in their order: n generators that share a
// load. The CPU time of all the server's receiving is with the first of them, also when
// there was no run yet.
func (s *Server) Stats(n int) []Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	runs := s.newest(n)
	list := make([]Stats, max(1, len(runs)))
	list[0].Threads = []ThreadCPU{{"receive", s.CPUNs()}}
	for i, r := range runs {
		r.addToStats(&list[i])
		if r.pacer != nil {
			list[i].Threads = append(list[i].Threads, ThreadCPU{"send " + strconv.Itoa(i+1), r.pacer.CPUNs()})
		}
	}
	return list
}

// Mark restarts the count of Stats.Shares of the newest n runs.
func (s *Server) Mark(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.newest(n) {
		r.mark()
	}
}
