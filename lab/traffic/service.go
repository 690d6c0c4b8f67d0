package traffic

import (
	"context"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// service is the thread of a server, and the runs that it has taken.
type service struct {
	arrivals

	poll      *socket.Poller
	stopping  atomic.Bool
	clock     socket.Clock
	done      chan struct{}
	cancel    context.CancelFunc // ends the watch over begin's ctx
	closeOnce sync.Once
}

// duties are what the thread of a service does. It alone calls them.
type duties interface {
	// patienceMs is how long the thread waits at most before it calls handle with nothing,
	// milliseconds; -1: for ever.
	patienceMs() int
	// handle is given what is ready, of at most batch things at a time.
	handle(ready []unix.EpollEvent)
	// closeAll is called last.
	closeAll()
}

// begin starts the thread, which works until Close or the end of ctx.
func (s *service) begin(ctx context.Context, d duties, batch int) {
	s.done = make(chan struct{})
	ctx, s.cancel = context.WithCancel(ctx)
	go s.loop(d, make([]unix.EpollEvent, batch))
	context.AfterFunc(ctx, func() { s.Close() })
}

func (s *service) loop(d duties, events []unix.EpollEvent) {
	defer close(s.done)
	s.clock.Enter("gw-serve")
	defer s.clock.Finish()
	defer d.closeAll()
	for !s.stopping.Load() {
		ready, err := s.poll.Wait(events, d.patienceMs())
		if err != nil {
			return
		}
		d.handle(ready)
	}
}

// Close ends all runs and threads, and closes the socket. It may be called twice.
func (s *service) Close() error {
	s.closeOnce.Do(func() {
		s.stopping.Store(true)
		s.poll.Ring()
		<-s.done
		s.cancel()
	})
	return nil
}

// Stats are those of the n runs that came last, in the order they came: n
// generators that share a load. The CPU time of all the server's receiving since
// it began is with the first of them, also when there was no run yet.
func (s *service) Stats(n int) []Stats { return s.stats(n, &s.clock) }
