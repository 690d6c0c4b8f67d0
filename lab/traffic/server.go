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

// Server is the other end of any number of Generators of one protocol. It accepts their streams, discards the payload
// that they send, and sends them the payload that they ask for. One thread receives. Each run in which the server sends
// has a further thread, with the same pacer as a generator.
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

// serverRun is the server's state of one Generator's run. Only the server's thread uses the fields, except run. Other
// threads may also read pacer and ended, under the server's mu.
type serverRun struct {
	*run
	pacer *pacer
	live  int // TCP: number of open streams
	ended bool

	peers []peer    // UDP: address of each stream's client
	heard time.Time // UDP: when the generator last sent anything other than data
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

// runByID finds a run. Only the server's thread may call it, because it takes no lock.
func (s *Server) runByID(id RunID) *serverRun {
	for _, r := range slices.Backward(s.runs) {
		if r.id == id {
			return r
		}
	}
	return nil
}

// admit finds or makes the run of a stream. It returns nil if the stream's header does not fit the run. When it makes a
// run, it forgets the oldest ended run beyond keepEnded.
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

// Stats returns the Stats of the newest n runs, in their order: those of n generators that share a load. The first one
// also has the CPU time of the server's receiving thread, for all runs.
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
