// Package pppoe is an access concentrator: it offers PPP over Ethernet (RFC 2516), has subscribers log in, and keeps
// their links. A subscriber has no interface of its own; data paths take the header off and put it on.
//
//	          PADR with a right cookie        LCP            its turn       Access.Login          IPCP
//	(none) ───────────────────────────▶ begun ───▶ queued ────────▶ asked ──────────────▶ admitted ────▶ up
//	   ▲                                  │          │                │                      │           │
//	   └─ PADT ◀─ Terminate-Request, no answer, rejected, Access.Logout ◀────────────────────┴───────────┘
//
// What a stranger can have done without a login is bounded: a PADI costs no memory, because the cookie in the offer is
// a keyed hash; a PADR needs the cookie of its sender's address, sessions that have not logged in have a bound of their
// own, and one that is not logged in after some seconds ends.
package pppoe

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/due"
	"github.com/gateweigh/gateweigh/ppp"
	"github.com/gateweigh/gateweigh/ppp/pppoe"
)

// Config is the configuration of a concentrator.
type Config struct {
	Interface string
	Name      string       // AC-Name; "" is "gatewayd"
	Services  []string     // Service-Names offered; nil: any
	Address   netip.Addr   // of the gateway, for all links
	DNS       []netip.Addr // at most two are sent
	Methods   []ppp.Method // in the order in which they are asked for; nil: ppp.Methods
	// InterfaceID is the gateway's IPv6 interface identifier in all links (RFC 5072, 4.1); zero: IPv6 is refused.
	// Opened6 is told of sessions in which IPv6 is agreed on, also where it was before. It must not wait, nor call the
	// Server.
	InterfaceID [8]byte
	Opened6     func(mac [6]byte, session uint16)
	// MaxPayload is the largest PPP-Max-Payload that is granted (RFC 4638), bytes; 0: 1492.
	MaxPayload  int
	PerMAC      int           // sessions of a MAC address at once; 0: 1
	MaxSessions int           // sessions at once; 0: 65,535
	Waiting     int           // of them, those that have not logged in; 0: 16,384
	Logins      int           // calls of Access.Login at once; 0: 4096
	Delay       time.Duration // before a PADO, for a second concentrator behind the first
	// Echo is the time between LCP Echo-Requests, 0: 20 s; a link ends after EchoFailures, 0: 3, without a reply.
	Echo         time.Duration
	EchoFailures int
	Carrier      datapath.Carrier // nil: none, the concentrator receives all frames itself
	Log          *slog.Logger
}

// Request is a subscriber that wants to log in.
type Request struct {
	MAC         [6]byte
	Session     uint16 // PPPoE's
	Credentials ppp.Credentials
	// Circuit and Remote name the access line, as the access node does (TR-101, R-124): unchecked.
	Circuit, Remote string
	// State is the link's as far as Restore needs it; Grant is not part of it yet.
	State ppp.State
}

// Access decides whether subscribers may log in, and gets to know when their sessions end.
type Access interface {
	// Login checks a subscriber and admits it with the address in the grant. An error rejects it; the data path then has
	// no entry of it. The concentrator calls it from many goroutines.
	Login(context.Context, Request) (ppp.Grant, error)
	// Logout ends a session that Login admitted, because the link has ended.
	Logout(mac [6]byte, session uint16, addr netip.Addr, why error)
}

// Overhead is how much larger than a client's MTU that of its interface must be, bytes.
const Overhead = pppoe.Overhead

// Limits of what strangers can have done.
var (
	eachMAC = budget.Rate{EachSecond: 2, AtOnce: 10}    // PADI and PADR of one address
	strays  = budget.Rate{EachSecond: 100, AtOnce: 100} // PADT for sessions that are none
)

const (
	sendersKept  = 2 * waitingUsual // half of them may come at once: see budget.Newcomers
	loginTime    = 60 * time.Second // from PADR to Access.Login
	loginsUsual  = 4096
	waitingUsual = 16384
	maxEnds      = 128   // addresses whose early ends the log has named: half of it at once, and so many a minute
	freeSessions = 65535 // session IDs; 0 is none
)

// Counts are the concentrator's counters.
type Counts struct {
	PADI, PADR, Offered, Begun, Refused, Displaced, Throttled, Malformed, Strays uint64
	// frames that came while receiveBuffer was full
	Lost uint64
}

// Server is a running concentrator.
type Server struct {
	cfg    Config
	access Access
	dev    *net.Interface
	wire   *wire
	cookie cookies
	mac    pppoe.MAC

	mu          sync.Mutex // guards what follows
	sessions    map[uint16]*session
	byMAC       map[pppoe.MAC][]*session
	dues        due.Queue[*session] // by the time at which something is to be done
	waiting     waiting
	lastID      uint16 // session ID
	senders     budget.Senders[pppoe.MAC]
	strayBudget budget.Clock
	logBudgets  budget.Senders[pppoe.MAC] // bounds what the log says of sessions that ended before their login
	counts      Counts
	logins      int
	closed      bool

	sooner  chan struct{}
	delayed chan waitingPADO
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// New opens the sockets on the interface. Nothing is answered before Serve.
func New(cfg Config, access Access) (*Server, error) {
	cfg.Name = cmp.Or(cfg.Name, "gatewayd")
	cfg.MaxPayload = cmp.Or(cfg.MaxPayload, pppoe.MTU)
	cfg.PerMAC, cfg.MaxSessions = cmp.Or(cfg.PerMAC, 1), min(cmp.Or(cfg.MaxSessions, freeSessions), freeSessions)
	cfg.Waiting, cfg.Logins = cmp.Or(cfg.Waiting, waitingUsual), cmp.Or(cfg.Logins, loginsUsual)
	cfg.Echo, cfg.EchoFailures = cmp.Or(cfg.Echo, 20*time.Second), cmp.Or(cfg.EchoFailures, 3)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		cfg: cfg, access: access, sessions: map[uint16]*session{}, byMAC: map[pppoe.MAC][]*session{},
		senders:    budget.Senders[pppoe.MAC]{Rate: eachMAC, Size: sendersKept},
		logBudgets: budget.Senders[pppoe.MAC]{Rate: budget.Minutely, Size: maxEnds},
		sooner:     make(chan struct{}, 1), delayed: make(chan waitingPADO, 1024),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	rand.Read(s.cookie.key[:])
	var err error
	if s.dev, err = net.InterfaceByName(cfg.Interface); err != nil {
		return nil, fmt.Errorf("pppoe: interface %s: %w", cfg.Interface, err)
	}
	if len(s.dev.HardwareAddr) != len(s.mac) {
		return nil, fmt.Errorf("pppoe: %s is no Ethernet interface", cfg.Interface)
	}
	s.mac = pppoe.MAC(s.dev.HardwareAddr)
	if s.wire, err = openWire(s.dev, cfg.Carrier == nil); err != nil {
		return nil, fmt.Errorf("pppoe: %w", err)
	}
	return s, nil
}

// Serve answers subscribers until ctx ends, or the interface is gone. Sessions do not end with it: their data path goes
// on, and Restore takes them up in another process.
func (s *Server) Serve(ctx context.Context) error {
	defer s.Close()
	errs := make(chan error, 2)
	s.running.Go(func() { errs <- s.wire.discovery(s.receive) })
	if s.cfg.Carrier != nil {
		s.running.Go(func() { errs <- s.cfg.Carrier.Frames(s.ctx, s.handleCarried) })
	} else {
		s.running.Go(func() { errs <- s.wire.control(s.receive) })
	}
	s.running.Go(s.tick)
	s.running.Go(s.offerLater)
	select {
	case <-ctx.Done():
		return nil
	case err := <-errs:
		return fmt.Errorf("pppoe: reading from %s: %w", s.cfg.Interface, err)
	}
}

// Close ends Serve and waits for its goroutines. Twice is harmless.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.wire.close()
	s.running.Wait()
}

// Counts returns the counters so far.
func (s *Server) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Lost += s.wire.droppedFrames()
	return s.counts
}

// Sessions is the number of sessions, those that have not logged in included.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// ErrNoSession is wrapped for a session whose frames the Carrier cannot receive.
var ErrNoSession = errors.New("its line has ended")

// Restore takes up a session of a former process. An ID that is in use is an error.
func (s *Server) Restore(mac [6]byte, id uint16, state ppp.State) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id == 0 || s.sessions[id] != nil {
		return fmt.Errorf("pppoe: restoring the session %d of %s: the number is in use", id, net.HardwareAddr(mac[:]))
	}
	n, err := s.add(mac, id)
	if err != nil {
		return fmt.Errorf("pppoe: restoring the session %d of %s: %w: %w", id, net.HardwareAddr(mac[:]), ErrNoSession, err)
	}
	n.admitted = state.Grant.Addr
	n.link = ppp.Restore(s.linkConfig(max(pppoe.MTU, state.PeerMRU)), n, state, time.Now())
	s.schedule(n)
	return nil
}

// End closes a session in order, because its owner ended it: the subscriber is told, and Logout is not called. A
// session that does not exist is no error.
func (s *Server) End(mac [6]byte, id uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.sessions[id]
	if n == nil || n.mac != mac {
		return
	}
	n.admitted = netip.Addr{}
	if n.waitElement != nil {
		n.setStage(terminating)
	}
	n.link.Close(time.Now(), errEnded)
	s.schedule(n)
}

var errEnded = errors.New("the gateway ended the session")

// linkConfig is the configuration of a subscriber's link.
func (s *Server) linkConfig(payload int) ppp.Config {
	return ppp.Config{
		Server: true, MRU: payload, MaxMRU: payload, Methods: s.cfg.Methods, Name: s.cfg.Name, Address: s.cfg.Address,
		InterfaceID: s.cfg.InterfaceID, IPv6: s.cfg.InterfaceID != [8]byte{},
		EchoInterval: s.cfg.Echo, EchoFailures: s.cfg.EchoFailures,
	}
}

// tick does timed work when it is due, until Close.
func (s *Server) tick() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(s.due(time.Now()))
		select {
		case <-s.ctx.Done():
			return
		case <-s.sooner:
		case <-timer.C:
		}
	}
}

// due does the timed work that is due, and returns the time until the next.
func (s *Server) due(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := s.dues.First(); n != nil; n = s.dues.First() {
		if left := n.due.Sub(now); left > 0 {
			return left
		}
		if !n.began.IsZero() && now.Sub(n.began) >= loginTime {
			n.link.Abort(fmt.Errorf("%w: not logged in after %s", ppp.ErrSilent, loginTime))
		} else {
			n.link.Tick(now)
		}
		s.schedule(n)
	}
	return time.Hour
}

// schedule puts a session where its next time belongs. The caller holds mu.
func (s *Server) schedule(n *session) {
	next := n.link.Next()
	if !n.began.IsZero() {
		if end := n.began.Add(loginTime); next.IsZero() || end.Before(next) {
			next = end
		}
	}
	if n.ended || next.IsZero() {
		s.dues.Remove(n)
		return
	}
	n.due = next
	if s.dues.Put(n) {
		select {
		case s.sooner <- struct{}{}:
		default:
		}
	}
}

// Before implements due.Item.
func (n *session) Before(other *session) bool { return n.due.Before(other.due) }
