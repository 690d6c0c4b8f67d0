package dhcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/framelink"
	"github.com/gateweigh/gateweigh/gateway/ticker"
)

// Server is a DHCP server on one interface.
type Server struct {
	cfg        Config
	listener   Listener
	log        *slog.Logger
	store      *store
	stats      counters
	senders    budget.Senders[MAC]
	logBudgets budget.Senders[refusal] // bounds what the log says of refused devices
	naks       budget.Senders[MAC]     // the same of NAKs, which devices from other networks get: no fault
	link       *framelink.Link
	mac        func() MAC    // of the interface
	wake       chan struct{} // there are pending changes

	// Log limiters for events that clients cause.
	refusalLog budget.OncePerMinute // the disk rejects leases
	refused    budget.OncePerMinute // the listener rejects leases
	full       budget.OncePerMinute // the pool is empty
	inUse      budget.OncePerMinute // an address was declined
	forged     budget.OncePerMinute // a client still answers for the address that it is said to leave

	running sync.WaitGroup // Run
	stop    context.CancelFunc
	stopped context.Context // done: Close was called

	asking     sync.WaitGroup  // clients that are asked whether they are there
	questions  context.Context // ends these questions
	stopAsking context.CancelFunc

	mu       sync.Mutex              // guards what follows
	segments []*segment              // that of the LAN first
	relays   map[netip.Addr]*segment // their clients' links, by giaddr
	pending  []change
}

// New opens the leases file and the interface's sockets, and restores the stored leases. Requests are received from now
// on; Run answers them.
func New(cfg Config, l Listener) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, listener: l, log: cfg.Log.With("interface", cfg.Interface), wake: make(chan struct{}, 1),
		senders:    budget.Senders[MAC]{Rate: cfg.PerMAC, Size: maxSenders},
		logBudgets: budget.Senders[refusal]{Rate: budget.Minutely, Size: maxNotes},
		naks:       budget.Senders[MAC]{Rate: budget.Minutely, Size: maxNotes},
	}
	s.segments, s.relays = segments(cfg)
	s.stopped, s.stop = context.WithCancel(context.Background())
	s.questions, s.stopAsking = context.WithCancel(s.stopped)
	if s.store, err = openStore(cfg.Path); err != nil {
		return nil, err
	}
	if err := s.takeUp(); err != nil {
		s.store.Close()
		return nil, err
	}
	if s.link, err = framelink.Open(linkConfig(cfg)); err != nil {
		s.store.Close()
		return nil, fmt.Errorf("serving DHCP on %s: %w", cfg.Interface, err)
	}
	s.mac = s.link.MAC
	return s, nil
}

// takeUp restores the stored leases. Leases that have expired, or that the configuration no longer allows, end when Run
// begins.
func (s *Server) takeUp() error {
	records, damaged, err := s.store.load()
	if err != nil {
		return fmt.Errorf("reading leases file %s: %w (move it away to begin without leases)", s.cfg.Path, err)
	}
	if damaged > 0 {
		s.log.Warn("leaving damaged leases out", "file", s.cfg.Path, "count", damaged)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, r := range records {
		if !s.segmentOf(r.addr).restore(r, now) && r.state == leased {
			r.state = known
			s.push(change{record: r, event: ended})
		}
	}
	return nil
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
	s.link.Run(ctx, s.handle, nil)
	expiry.Wait()
	s.stopAsking()
	s.asking.Wait()
	endCommits()
	commits.Wait()
	return nil
}

// Close ends Run, waits for it and closes sockets and file. Leases stay on disk.
func (s *Server) Close() error {
	s.stop()
	s.running.Wait()
	s.asking.Wait()
	s.link.Close()
	return s.store.Close()
}

// Leases returns all leases, ordered by address.
func (s *Server) Leases() []Lease {
	s.mu.Lock()
	var list []Lease
	for _, link := range s.segments {
		list = slices.Grow(list, link.table.leases())
		for _, q := range []*queue{&link.table.queues[leased], &link.table.shortLeased} {
			for b := q.first(); b != nil && b != &q.ring; b = b.next {
				r := b.record()
				list = append(list, r.lease(link.table.static(b)))
			}
		}
	}
	s.mu.Unlock()
	slices.SortFunc(list, func(a, b Lease) int { return a.Addr.Compare(b.Addr) })
	return list
}

// expireAll ends leases and offers when they expire, until ctx ends.
func (s *Server) expireAll(ctx context.Context) {
	tick := ticker.Every(time.Second)
	defer tick.Stop()
	for {
		for s.expire(time.Now()) { // in parts, so that requests are answered in between
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// expire ends some of the leases and offers that have expired, and reports whether there were any.
func (s *Server) expire(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	more := false
	for _, link := range s.segments {
		over := link.table.expire(now, maxBatch)
		for i := range over {
			s.stats.expired.Add(1)
			s.push(change{record: over[i].record(), event: ended})
		}
		more = more || len(over) > 0
	}
	return more
}

const (
	maxSenders = 32_768 // MAC addresses whose requests are counted
	maxNotes   = 128    // refusals that the log has named: half of it at once, and so many a minute
)

// admits reports whether another request is answered. Clients with a lease have a budget apart from that of new ones.
func (s *Server) admits(frame []byte) bool {
	s.mu.Lock()
	mac := s.payer(frame)
	leased := slices.ContainsFunc(s.segments, func(link *segment) bool { return len(link.table.held[mac]) > 0 })
	s.mu.Unlock()
	return s.senders.Spend(mac, leased, budget.Now())
}

// handle answers one frame. Only the receiving goroutine calls it. A device that sends more than it may costs little
// more than reading its frames, so that those of others do not wait in a full buffer.
func (s *Server) handle(frame []byte) {
	if len(frame) >= ethernetLen && !s.admits(frame) {
		s.logRefusal(MAC(frame[6:12]), errFlood)
		return
	}
	rq, err := s.read(frame)
	switch {
	case errors.Is(err, errRelayed):
		s.stats.relayed.Add(1)
	case errors.Is(err, errSpoofed):
		s.stats.spoofed.Add(1)
	case err != nil:
		s.stats.malformed.Add(1)
	default:
		if out := s.answer(rq, time.Now()); out != nil {
			s.send(out)
		}
		return
	}
	if len(frame) >= ethernetLen {
		s.logRefusal(MAC(frame[6:12]), err)
	}
}

// read returns the request in a frame.
func (s *Server) read(frame []byte) (*request, error) {
	d, err := parseFrame(frame)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errMalformed, err)
	case !s.forUs(d):
		return nil, fmt.Errorf("%w here, but at %s", errMalformed, d.dst)
	}
	rq, err := parseRequest(d)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return rq, s.locate(rq)
}

// logRefusal writes to the log why a device gets no answer, or a lesser one: once a minute of each device and reason.
func (s *Server) logRefusal(mac MAC, err error) {
	for _, kind := range []error{errMalformed, errRelayed, errSpoofed, errTooMany, errFlood, errAgent} {
		if errors.Is(err, kind) && s.logBudgets.Spend(refusal{mac, kind}, false, budget.Now()) {
			effect := "gets no answer"
			if kind == errAgent {
				effect = "is answered as if it said nothing of its client's port"
			}
			s.log.Warn("a DHCP message "+effect, "mac", net.HardwareAddr(mac[:]).String(), "reason", err)
		}
	}
}

// refusal is a reason for which a device gets no answer.
type refusal struct {
	mac  MAC
	kind error
}

// forUs reports whether a datagram is addressed to this server or to all hosts.
func (s *Server) forUs(d datagram) bool {
	dst := d.dst.Addr()
	return d.dst.Port() == serverPort &&
		(dst == s.cfg.Server || dst == broadcastOf(s.cfg.Subnet) || dst == limitedBroadcast)
}

// answer carries out a request and returns the frame to send at once, if any.
func (s *Server) answer(rq *request, now time.Time) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch rq.kind {
	case dhcpv4.MessageTypeDiscover:
		s.stats.discovers.Add(1)
		return s.discover(rq, now)
	case dhcpv4.MessageTypeRequest:
		s.stats.requests.Add(1)
		return s.request(rq, now)
	case dhcpv4.MessageTypeDecline:
		s.stats.declines.Add(1)
		s.decline(rq, now)
	case dhcpv4.MessageTypeRelease:
		s.stats.releases.Add(1)
		s.release(rq)
	case dhcpv4.MessageTypeInform:
		s.stats.informs.Add(1)
		return s.inform(rq)
	default:
		s.stats.malformed.Add(1)
		s.logRefusal(rq.client.mac, fmt.Errorf("%w: its type is %d", errMalformed, rq.kind))
	}
	return nil
}

// compose returns a reply's frame. T1 and T2 vary a little, so that clients that arrived together do not renew together
// (RFC 2131, 4.4.5).
func (s *Server) compose(r reply, rq *request) []byte {
	if r.lease > 0 {
		r.earlierBy = rand.N(r.lease/16 + 1)
	}
	return r.frame(rq, rq.segment.cfg, rq.segment.fixed, s.mac())
}

func (s *Server) send(frame []byte) {
	if err := s.link.Send(frame); err != nil && !errors.Is(err, net.ErrClosed) {
		s.stats.sendErrors.Add(1)
		s.log.Debug("sending a reply", "err", err)
	}
}
