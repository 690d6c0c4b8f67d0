// A server's port: its sockets, the identifiers of packets in flight, and whether the server is alive.

package radius

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"layeh.com/radius"

	"github.com/gateweigh/gateweigh/gateway/budget"
)

// health is the state of a server.
type health int

const (
	alive health = iota
	due          // dead long enough: the caller must try it
	dead
)

// endpoint is one port of a server, with the sockets connected to it, its state and its counts.
type endpoint struct {
	addr     netip.AddrPort
	source   netip.Addr
	secret   []byte
	timeout  time.Duration
	deadTime time.Duration
	logins   *endpoint // the endpoint of the same server for logins; nil in that one itself

	mu          sync.Mutex
	sockets     []*socket      // those that take requests, guarded by mu
	draining    []*socket      // retired sockets that still expect answers, guarded by mu
	closed      bool           // guarded by mu
	lastHeard   time.Time      // guarded by mu
	deadUntil   time.Time      // zero: alive, guarded by mu
	lastFailure *noAnswerError // of the last request without an answer, while it is not alive; guarded by mu

	silentSince time.Time     // guarded by mu: begin of the first request without an answer since lastHeard
	logged      bool          // guarded by mu: the present failure was logged
	lateBy      time.Duration // guarded by mu: how long the last late answer took; zero: later answers came in time
	lingering   int           // exchanges that are over and still listened to, guarded by mu

	log        *slog.Logger
	slow       budget.OncePerMinute // to log late answers
	failureLog budget.OncePerMinute // to log trouble
	closing    chan struct{}        // ends waits
	readers    sync.WaitGroup
	counts     counts
}

// socket is connected, so it receives only packets of its server. The kernel chooses a random port. It has 256
// identifiers.
type socket struct {
	conn    *net.UDPConn
	waiters [256]*waiter // guarded by the endpoint's mu
	inUse   int          // guarded by the endpoint's mu
	nextID  byte         // next identifier: in turn, so that reuse is as late as possible; guarded by the endpoint's mu
	retired bool         // guarded by the endpoint's mu
}

// heldID is a packet identifier that waits for its answer.
type heldID struct {
	socket *socket
	id     byte
}

// counts are an endpoint's counts since New.
type counts struct {
	requests, retransmits, answers, timeouts atomic.Uint64
	unsigned, forged, malformed, unexpected  atomic.Uint64
	late                                     atomic.Uint64
}

// Stats are the counts of one server and purpose.
type Stats struct {
	Server     netip.AddrPort
	Accounting bool // for accounting; false: authentication
	Dead       bool // did not answer and is skipped
	Asked      bool // it answered, or should have
	// Trouble is why the last request that it should have answered had no answer, as long as none has had one since.
	Trouble string

	Requests, Retransmits uint64 // packets: first transmissions, and further ones
	Answers               uint64 // authentic ones
	Timeouts              uint64 // requests that got no answer through all transmissions
	// Dropped packets: without Message-Authenticator, with a wrong authenticator, not RADIUS, answers to no request, and
	// authentic ones that came when nobody waited any more.
	Unsigned, Forged, Malformed, Unexpected, Late uint64
}

// Stats returns one entry for each server and purpose, in order.
func (c *Client) Stats() []Stats {
	var all []Stats
	for _, s := range []*service{c.auth, c.acct} {
		for _, e := range s.endpoints {
			st := e.stats(time.Now())
			st.Accounting = s == c.acct
			all = append(all, st)
		}
	}
	return all
}

func (e *endpoint) stats(now time.Time) Stats {
	n := &e.counts
	e.mu.Lock()
	defer e.mu.Unlock()
	reason := ""
	if e.lastFailure != nil {
		reason = e.lastFailure.advice()
	}
	return Stats{
		Server: e.addr, Dead: now.Before(e.deadUntil), Asked: reason != "" || !e.lastHeard.IsZero(), Trouble: reason,
		Requests: n.requests.Load(), Retransmits: n.retransmits.Load(), Answers: n.answers.Load(),
		Timeouts: n.timeouts.Load(),
		Unsigned: n.unsigned.Load(), Forged: n.forged.Load(), Malformed: n.malformed.Load(), Unexpected: n.unexpected.Load(),
		Late: n.late.Load(),
	}
}

func (s *service) add(c Config, addr netip.AddrPort, secret string) {
	s.endpoints = append(s.endpoints, &endpoint{
		addr: addr, source: c.Source, secret: []byte(secret), timeout: c.Timeout, deadTime: c.DeadTime,
		log: c.Log, closing: make(chan struct{}),
	})
}

// health returns the server's state. A caller that gets due must try the server: for other callers it stays dead for
// another DeadTime.
func (e *endpoint) health(now time.Time) health {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.deadUntil.IsZero():
		return alive
	case now.Before(e.deadUntil):
		return dead
	}
	e.deadUntil = now.Add(e.deadTime)
	return due
}

// isDead reports whether the server is skipped.
func (e *endpoint) isDead(now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return now.Before(e.deadUntil)
}

// answered records an authentic answer.
func (e *endpoint) answered() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lastHeard, e.deadUntil, e.lastFailure = time.Now(), time.Time{}, nil
	e.lateBy, e.silentSince = 0, time.Time{}
}

// unanswered records that a request first sent at the given time got no answer. The server is dead only if no other
// request got an answer since. A server may leave some requests unanswered, such as those for a realm it cannot reach,
// and a client must not be able to disable it for others with such requests.
func (e *endpoint) unanswered(began time.Time, trouble *noAnswerError) {
	e.counts.timeouts.Add(1)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lastHeard.After(began) {
		return
	}
	if e.silentSince.IsZero() {
		e.silentSince = began
	}
	e.deadUntil, e.lastFailure = time.Now().Add(e.deadTime), trouble
	// The cause may be on our side: a source address that is no longer ours, or a NAT mapping that expired. New sockets
	// avoid both.
	for len(e.sockets) > 0 {
		e.retireLocked(e.sockets[0])
	}
}

// claim reserves an identifier that no packet in flight uses.
func (e *endpoint) claim(w *waiter) (heldID, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return heldID{}, net.ErrClosed
	}
	for _, s := range e.sockets {
		if s.inUse < len(s.waiters) {
			return s.claim(w), nil
		}
	}
	s, err := e.dial()
	if err != nil {
		return heldID{}, err
	}
	e.sockets = append(e.sockets, s)
	e.readers.Go(func() { e.read(s) })
	return s.claim(w), nil
}

// dial opens a socket to the server.
func (e *endpoint) dial() (*socket, error) {
	var from *net.UDPAddr
	if e.source.IsValid() {
		from = net.UDPAddrFromAddrPort(netip.AddrPortFrom(e.source, 0))
	}
	conn, err := net.DialUDP("udp", from, net.UDPAddrFromAddrPort(e.addr))
	if err != nil {
		// The error concerns this server only; another one may work.
		return nil, &noAnswerError{server: e.addr.String(), cause: fmt.Errorf("opening a socket: %w", err)}
	}
	return &socket{conn: conn}, nil
}

// claim reserves the next free identifier of a socket.
func (s *socket) claim(w *waiter) heldID {
	for s.waiters[s.nextID] != nil {
		s.nextID++
	}
	h := heldID{s, s.nextID}
	s.waiters[h.id] = w
	s.inUse++
	s.nextID++
	return h
}

// giveBack frees an identifier.
func (e *endpoint) giveBack(h heldID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h.socket.waiters[h.id] = nil
	h.socket.inUse--
	if h.socket.retired && h.socket.inUse == 0 {
		e.draining = slices.DeleteFunc(e.draining, func(s *socket) bool { return s == h.socket })
		h.socket.conn.Close()
	}
}

// retire stops using a socket; it stays open for outstanding answers.
func (e *endpoint) retire(s *socket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.retireLocked(s)
}

func (e *endpoint) retireLocked(s *socket) {
	if s.retired {
		return
	}
	s.retired = true
	e.sockets = slices.DeleteFunc(e.sockets, func(other *socket) bool { return other == s })
	if s.inUse == 0 {
		s.conn.Close()
		return
	}
	e.draining = append(e.draining, s)
}

// close ends all waits and sockets, and waits for their readers.
func (e *endpoint) close() {
	e.mu.Lock()
	if !e.closed {
		e.closed = true
		close(e.closing)
		for _, s := range slices.Concat(e.sockets, e.draining) {
			s.conn.Close()
		}
	}
	e.mu.Unlock()
	e.readers.Wait()
}

// read passes received packets to their waiters until the socket is closed.
func (e *endpoint) read(s *socket) {
	buf := make([]byte, radius.MaxPacketLength)
	for {
		n, err := s.conn.Read(buf)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case errors.Is(err, syscall.ECONNREFUSED):
			e.refused(s) // by ICMP, reported once for each packet
		case err != nil:
			// A socket that cannot receive is useless.
			e.retire(s)
			e.refused(s)
			return
		case n < headerSize:
			e.counts.malformed.Add(1)
		default:
			e.receive(s, buf[:n])
		}
	}
}

// receive classifies and counts a datagram before it passes an answer to its waiter, so that the count includes the
// answer when the waiter has it.
func (e *endpoint) receive(s *socket, data []byte) {
	e.mu.Lock()
	w := s.waiters[data[1]]
	e.mu.Unlock()
	if w == nil || !w.sent.Load() {
		e.counts.unexpected.Add(1)
		return
	}
	p, err := w.receive(data)
	switch {
	case errors.Is(err, errUnsigned):
		e.counts.unsigned.Add(1)
	case errors.Is(err, errForged):
		e.counts.forged.Add(1)
	case err != nil:
		e.counts.malformed.Add(1)
	case w.x.abandoned.Load():
		e.cameLate(w.x)
	default:
		e.counts.answers.Add(1)
		w.deliver(p)
	}
}

// refused notifies all waiters of a socket.
func (e *endpoint) refused(s *socket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, w := range s.waiters {
		if w != nil {
			w.refuse()
		}
	}
}
