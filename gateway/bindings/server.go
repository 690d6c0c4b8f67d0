package bindings

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/framelink"
)

// Config configures a Server.
type Config struct {
	Interface string // the network's Ethernet interface
	Rules     Rules
	// Source is the gateway's link-local address, from which it asks. Zero: the one that its MAC address makes.
	Source netip.Addr
	// Proxy answers solicitations of clients for global addresses of others with the gateway's MAC address, where
	// Rules.Isolated says that clients do not hear each other (RFC 4389, section 4.1.3).
	Proxy bool
	// Frames opens the source of frames: one Ethernet frame a Read, which holds a message of the types 133 to 137. It is
	// opened again when the interface has been down. nil: a packet socket.
	Frames func() (io.ReadCloser, error)
	// Bound and Gone are told who may use addresses from now on and an address no longer: of one address in order, of
	// several at once from several goroutines, so that those which write to a disk can do it together. Bound has together
	// what a client takes while others are told. They may call the Server's methods, and may take their time: meanwhile
	// frames wait.
	Bound func(Anchor, ...netip.Addr)
	Gone  func(Anchor, netip.Addr)
	// Redirects is told of a client that sends redirects, as only routers do, once for each MAC address that is
	// remembered. Meanwhile frames wait. nil: they are only counted.
	Redirects func(MAC)
	Store     Store        // nil: bindings end with the Server
	Log       *slog.Logger // nil: slog.Default
}

// Store keeps bindings for a Server's successor. Put and Delete are called as Bound and Gone are. They may put
// off writing: a binding that is lost is made again by the client's next packet. Their errors are logged.
type Store interface {
	// Load returns all bindings that were put and not deleted. It is called once, before the other methods.
	Load() ([]Saved, error)
	// Put saves who has an address. Putting it again replaces the anchor.
	Put(Saved) error
	// Delete removes an address. It need not exist.
	Delete(netip.Addr) error
}

// messages is how many messages a MAC address may send: a device that comes probes up to 20 addresses, looks for
// routers, and answers for these addresses; then it looks for its router and its neighbours from time to time. Answers
// to the gateway's questions are not counted.
var messages = budget.Rate{AtOnce: 64, EachSecond: 8}

// everybody is how many messages all MAC addresses together may send. Those that are not known clients may send 2,048 a
// second of them.
var everybody = budget.Rate{AtOnce: 20_000, EachSecond: 10_000}

// reports is how many clients are reported because they redirect.
var reports = budget.Rate{AtOnce: 16, EachSecond: 1}

const (
	maxSenders = 32_768 // MAC addresses whose messages are counted, as with DHCP and ARP
	maxRogues  = 1024   // MAC addresses that are remembered as reported
	// maxNews is how many changes wait for Bound, Gone and the Store before frames do.
	maxNews = 4096
	// together is how many stories (tell.go) are told at once: as many as the newcomers that a data path reports at once.
	together = 64
	// pace is the time between calls of Advance, which makes 25,000 questions a second at most.
	pace = 10 * time.Millisecond
)

// Server drives the Table of a network by the neighbour discovery on its interface. Its methods may be called by
// several goroutines.
type Server struct {
	cfg     Config
	log     *slog.Logger
	link    *framelink.Link
	source  netip.Addr
	senders budget.Senders[MAC]
	all     budget.Clock
	rogues  rogues
	stats   counters
	wake    chan struct{} // the table is due earlier than it was
	told    chan struct{} // there is news

	storeErrors, sendErrors budget.OncePerMinute

	mu    sync.Mutex // guards what follows
	table *Table
	news  []Action   // for Bound, Gone and the Store
	fewer *sync.Cond // news has become short, or the server has ended
	ended bool
}

// Open opens a server's sockets, and restores what its Store has. Bound is told of that by Run.
func Open(cfg Config) (*Server, error) {
	log := cmp.Or(cfg.Log, slog.Default())
	l, err := framelink.Open(framelink.Config{Interface: cfg.Interface, Frames: cfg.Frames, Socket: socket, Log: log})
	if err != nil {
		return nil, fmt.Errorf("neighbour discovery on %s: %w", cfg.Interface, err)
	}
	s := &Server{cfg: cfg, log: log, link: l, source: cfg.Source,
		senders: budget.Senders[MAC]{Rate: messages, Size: maxSenders},
		wake:    make(chan struct{}, 1), told: make(chan struct{}, 1), table: NewTable(cfg.Rules, time.Now())}
	s.fewer = sync.NewCond(&s.mu)
	if !s.source.IsValid() {
		s.source = linkLocalOf(l.MAC())
	}
	if cfg.Store != nil {
		saved, err := cfg.Store.Load()
		if err != nil {
			l.Close()
			return nil, fmt.Errorf("loading bindings of %s: %w", cfg.Interface, err)
		}
		s.change(func(t *Table, now time.Time) []Action { return t.Restore(saved, now) })
	}
	return s, nil
}

// Close closes the sockets. Run has returned.
func (s *Server) Close() error {
	s.link.Close()
	return nil
}

// Run serves until ctx ends. Then Bound, Gone and the Store have been told all. While the interface is down it waits.
func (s *Server) Run(ctx context.Context) error {
	var timing, telling sync.WaitGroup
	untold, endTelling := context.WithCancel(context.WithoutCancel(ctx))
	timing.Go(func() { s.keepTime(ctx) })
	telling.Go(func() { s.tellAll(untold) })
	defer context.AfterFunc(ctx, s.end)()
	s.link.Run(ctx, s.handle, nil)
	timing.Wait()
	endTelling()
	telling.Wait()
	return nil
}

// change changes the table, and sends and tells what follows.
func (s *Server) change(f func(*Table, time.Time) []Action) {
	s.mu.Lock()
	var asks []Action
	before, was := s.table.Next()
	for _, a := range f(s.table, time.Now()) {
		if a.Kind == Ask || a.Kind == Defend {
			asks = append(asks, a)
		} else {
			s.news = append(s.news, a)
		}
	}
	next, is := s.table.Next()
	news := len(s.news) > 0
	s.mu.Unlock()
	if is && (!was || next.Before(before)) {
		signal(s.wake)
	}
	if news {
		signal(s.told)
	}
	for _, a := range asks {
		s.send(a)
	}
}

// signal wakes the reader of a channel with room for one value.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// send sends a question or a defence.
func (s *Server) send(a Action) {
	from := sender{s.link.MAC(), s.source}
	if a.Kind == Ask {
		s.stats.asked.Add(1)
		s.sendFrame(from.question(a.Anchor, a.Addr))
	} else {
		s.stats.defended.Add(1)
		s.sendFrame(from.defence(a.Anchor, a.Addr))
	}
}

func (s *Server) sendFrame(frame []byte, err error) {
	if err == nil {
		err = s.link.Send(frame)
	}
	if err != nil {
		s.stats.sendErrors.Add(1)
		s.sendErrors.Do(func() { s.log.Warn("sending neighbour discovery", "interface", s.cfg.Interface, "err", err) })
	}
}

// keepTime does what the table has due, until ctx ends.
func (s *Server) keepTime(ctx context.Context) {
	for {
		s.change((*Table).Advance)
		s.waitForRoom()
		s.mu.Lock()
		next, is := s.table.Next()
		s.mu.Unlock()
		wait := time.Hour
		if is {
			wait = max(time.Until(next), pace)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-s.wake:
			timer.Stop()
		case <-timer.C:
		}
	}
}
