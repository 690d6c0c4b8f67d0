package dhcp6

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/framelink"
	"github.com/gateweigh/gateweigh/gateway/ticker"
)

// Server is a DHCPv6 server on one interface.
type Server struct {
	cfg        Config
	events     Events
	log        *slog.Logger
	stats      counters
	senders    budget.Senders[MAC]
	logBudgets budget.Senders[refusal]      // bounds what the log says of them
	rogues     budget.Recent[MAC, struct{}] // that were reported; of the receiving goroutine
	link       *framelink.Link
	source     netip.Addr    // of replies; zero: not found yet. Of the receiving goroutine
	wake       chan struct{} // there are pending changes

	// Log limiters for events that clients cause.
	refusalLog budget.OncePerMinute // the disk rejects leases
	refused    budget.OncePerMinute // Events rejects leases
	full       budget.OncePerMinute // a pool is empty
	inUse      budget.OncePerMinute // an address was declined
	forged     budget.OncePerMinute // a client still answers for the address that it is said to leave
	badPools   budget.OncePerMinute // pools cannot be used
	noSource   budget.OncePerMinute // the interface has no link-local address

	running sync.WaitGroup // Run
	stop    context.CancelFunc
	stopped context.Context // done: Close was called

	asking     sync.WaitGroup  // clients that are asked whether they are there
	questions  context.Context // of these questions
	stopAsking context.CancelFunc

	mu        sync.Mutex // guards what follows
	table     *table
	pending   []job
	nowAsking int // clients that are asked
}

const (
	maxSenders = 32_768 // MAC addresses whose messages are counted
	maxNotes   = 128    // refusals that the log has named: half of it at once, and so many a minute
	maxRogues  = 1_024  // servers on the LAN that are remembered as reported
)

// New opens the interface's sockets and restores the stored leases. Messages are received from now on; Run answers
// them.
func New(cfg Config, events Events) (*Server, error) {
	s, err := restored(cfg, events)
	if err != nil {
		return nil, err
	}
	if s.link, err = framelink.Open(linkConfig(s.cfg)); err != nil {
		return nil, fmt.Errorf("serving DHCPv6 on %s: %w", s.cfg.Interface, err)
	}
	s.source = s.findSource()
	return s, nil
}

// restored returns a server with the stored leases and without sockets.
func restored(cfg Config, events Events) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	secret, err := cfg.Store.Secret()
	if err != nil {
		return nil, fmt.Errorf("reading the secret of IPv6 addresses: %w", err)
	}
	s := &Server{
		cfg: cfg, events: events, log: cfg.Log.With("interface", cfg.Interface),
		table: newTable(cfg, secret), wake: make(chan struct{}, 1),
		senders:    budget.Senders[MAC]{Rate: cfg.PerMAC, Size: maxSenders},
		logBudgets: budget.Senders[refusal]{Rate: budget.Minutely, Size: maxNotes},
	}
	s.stopped, s.stop = context.WithCancel(context.Background())
	s.questions, s.stopAsking = context.WithCancel(s.stopped)
	return s, s.takeUp(time.Now())
}

// takeUp restores the stored leases. Those that have expired end when Run begins.
func (s *Server) takeUp(now time.Time) error {
	records, damaged, err := s.cfg.Store.Load()
	if err != nil {
		return fmt.Errorf("reading IPv6 leases: %w (move their file away to begin without leases)", err)
	}
	if damaged > 0 {
		s.log.Warn("leaving damaged IPv6 leases out", "count", damaged)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range records {
		s.table.restore(r, now)
	}
	return nil
}

// restore restores what an identity has. The clock may have been wrong when it was written, or may be wrong now: a
// lease never runs longer than a new one. Later steps of the clock change nothing, because ends have a monotonic
// reading.
func (t *table) restore(r Record, now time.Time) {
	longest := t.cfg.Lease
	if r.Kind == Registered {
		longest = maxRegistration
	}
	id := identity{r.Kind, r.MAC, r.Session, r.IAID, r.DUID}
	for _, one := range r.Items {
		if t.taken[one.Prefix] != nil {
			continue // two records of one prefix: the file was changed
		}
		it := t.add(id, one.Prefix, now.Add(min(one.End.Sub(now), longest)))
		it.acked, it.wished = true, one.Wished
		it.owner.via = r.Via
	}
}

// Run serves until ctx ends or Close is called, and then completes what has begun. It survives the interface's going
// down, disappearing and coming back. It may be called once.
func (s *Server) Run(ctx context.Context) error {
	s.running.Add(1)
	defer s.running.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.stopped, cancel)()
	// Outlives ctx until all sources of changes have ended.
	committing, endCommits := context.WithCancel(context.WithoutCancel(ctx))
	var commits, expiry sync.WaitGroup
	commits.Go(func() { s.commitAll(committing) })
	expiry.Go(func() { s.expireAll(ctx) })
	s.link.Run(ctx, s.handle, func() { s.source = s.findSource() })
	expiry.Wait()
	s.stopAsking()
	s.asking.Wait()
	endCommits()
	commits.Wait()
	return nil
}

// Close ends Run, waits for it and closes the sockets. Leases stay in the store.
func (s *Server) Close() error {
	s.stop()
	s.running.Wait()
	s.asking.Wait()
	s.link.Close()
	return nil
}

// Leases returns all leases, ordered by address.
func (s *Server) Leases() []Lease {
	s.mu.Lock()
	list := make([]Lease, 0, len(s.table.taken))
	for _, it := range s.table.taken {
		if it.owner != nil {
			list = append(list, it.lease())
		}
	}
	s.mu.Unlock()
	slices.SortFunc(list, func(a, b Lease) int { return a.Prefix.Compare(b.Prefix) })
	return list
}

// expireAll ends leases when they expire, until ctx ends.
func (s *Server) expireAll(ctx context.Context) {
	tick := ticker.Every(time.Second)
	defer tick.Stop()
	for {
		for s.expire(time.Now()) { // in parts, so that messages are answered in between
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// expire ends some of the leases that have expired, and reports whether there were any.
func (s *Server) expire(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	over := s.table.expire(now, maxBatch)
	for _, it := range over {
		s.stats.expired.Add(1)
		s.push(it.owner.mac, outcome{ended: []Lease{it.lease()}, touched: []identity{it.owner.identity}}, nil)
	}
	return len(over) > 0
}
