// Package ident answers queries by RFC 1413 in the clients' place: which user a TCP connection of a client belongs to.
//
//	NAT method           peer ── CLIENT:113 ──▶ ident_in ──▶ Server   the client is whom the peer asked
//	masquerade method    peer ── GATEWAY:113 ─────────────▶ Server   the client is whom connection tracking names
//
// A Server says who logged in at the gateway, never what a client says of itself, and only of a connection between that
// client and the asking host that exists and began in the present session.
package ident

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/budget"
)

// Port is the port of queries.
const Port = 113

// Policy says what replies tell about a user: the name, a token, or that it is hidden.
type Policy int

const (
	Name   Policy = iota // the user's name
	Token                // a token that Sealer made
	Hidden               // HIDDEN-USER
)

// User is a logged-in client's user.
type User struct {
	Name  string    // "": it stands for nobody in particular
	Since time.Time // of the login
}

// Config is what a Server needs.
type Config struct {
	Masquerade   bool // clients have the gateway's address outside
	Policy       Policy
	UserPolicies map[string]Policy // by user's name, in place of Policy
	Sealer       *Sealer           // of Token
	Rate         budget.Rate       // of each asking host's queries
	// Who returns who is logged in at a client's address. ok is false if nobody is.
	UserOf func(client netip.Addr) (u User, ok bool)
	Log    *slog.Logger
}

const (
	maxConns   = 1024 // connections at once; further ones are closed
	maxPerHost = 32   // of them of one asking host
	maxBudgets = 4096 // that have a budget of their own
)

// queryTimeout is for a query and its reply: proftpd sends the query 5 s after it connects. Tests change it.
var queryTimeout = 30 * time.Second

// drained bounds what is read behind a line that is too long, bytes.
const drained = 64 << 10

// Stats counts queries since the start.
type Stats struct {
	Named     uint64 // answered with a name, a token or HIDDEN-USER
	NoUser    uint64 // no such connection, or nobody's
	Invalid   uint64 // not a query, or its ports are none
	Throttled uint64 // connections closed unanswered: beyond a rate, or too many at once
	Failed    uint64 // the kernel did not answer
}

// Server answers queries.
type Server struct {
	cfg      Config
	watch    *ConnWatch
	budget   budget.Senders[netip.Addr]
	queryLog budget.OncePerMinute

	mu    sync.Mutex         // guards what follows
	open  map[netip.Addr]int // connections at once of each asking host
	total int                // and of all

	named, noUser, invalid, throttled, failed atomic.Uint64
}

// New returns a Server that knows connections from a Watch, which stays the caller's.
func New(cfg Config, w *ConnWatch) *Server {
	return &Server{
		cfg: cfg, watch: w, open: map[netip.Addr]int{},
		budget: budget.Senders[netip.Addr]{Rate: cfg.Rate, Size: maxBudgets},
	}
}

// Stats returns the counters.
func (s *Server) Stats() Stats {
	return Stats{Named: s.named.Load(), NoUser: s.noUser.Load(), Invalid: s.invalid.Load(), Throttled: s.throttled.Load(),
		Failed: s.failed.Load()}
}

// Listen opens the port for queries that arrive at an interface.
func Listen(ctx context.Context, device string) (net.Listener, error) {
	lc := net.ListenConfig{KeepAlive: -1, Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if e := c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), device) }); e != nil {
			return e
		}
		return err
	}}
	l, err := lc.Listen(ctx, "tcp4", fmt.Sprintf("0.0.0.0:%d", Port))
	if err != nil {
		return nil, fmt.Errorf("ident: listening on %s: %w", device, err)
	}
	return l, nil
}

// Serve answers until ctx ends, and closes the listener.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	var running sync.WaitGroup
	defer running.Wait()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), closed(c))
		}
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil { // such as too many open files: later there may be fewer
			s.queryLog.Do(func() { s.cfg.Log.Warn("ident: accepting a query", "err", err) })
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		peer := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
		if !s.budget.Spend(peer, false, budget.Now()) || !s.admit(peer) {
			s.throttled.Add(1)
			c.Close()
			continue
		}
		running.Go(func() {
			defer s.release(peer)
			s.converse(ctx, c)
		})
	}
}

func closed(c net.Conn) error {
	if c == nil {
		return nil
	}
	return c.Close()
}

// admit takes a place among the connections at once.
func (s *Server) admit(peer netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total == maxConns || s.open[peer] == maxPerHost {
		return false
	}
	s.total++
	s.open[peer]++
	return true
}

func (s *Server) release(peer netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.open[peer]--; s.open[peer] == 0 {
		delete(s.open, peer)
	}
}

// converse reads a query, answers it and closes the connection (RFC 1413, 3, lets the server close it after one).
func (s *Server) converse(ctx context.Context, c net.Conn) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	c.SetDeadline(time.Now().Add(queryTimeout))
	line, err := bufio.NewReaderSize(io.LimitReader(c, maxLine), maxLine).ReadString('\n')
	if err != nil && len(line) < maxLine { // the peer left, or took too long
		s.invalid.Add(1)
		return
	}
	near, far := c.LocalAddr().(*net.TCPAddr).AddrPort(), c.RemoteAddr().(*net.TCPAddr).AddrPort()
	io.WriteString(c,
		s.reply(strings.TrimRight(line, "\r\n"), near.Addr().Unmap(), netip.AddrPortFrom(far.Addr().Unmap(), far.Port())))
	if err != nil { // the line goes on: what closing leaves unread would reset the reply
		c.(*net.TCPConn).CloseWrite()
		io.CopyN(io.Discard, c, drained)
	}
}

// reply returns the reply to a query of a peer that connected to the address near.
func (s *Server) reply(line string, near netip.Addr, peer netip.AddrPort) string {
	q, err := parseQuery(line)
	if err != nil {
		s.invalid.Add(1)
		return refusal(q, invalidPort)
	}
	client, user, ok, err := s.owner(q, near, peer)
	switch {
	case err != nil:
		s.failed.Add(1)
		s.queryLog.Do(func() { s.cfg.Log.Error("ident: a query was not answered", "peer", peer.Addr(), "err", err) })
		return refusal(q, unknownError)
	case !ok || user == "":
		s.noUser.Add(1)
		return refusal(q, noUser)
	}
	s.named.Add(1)
	policy, excepted := s.cfg.UserPolicies[user]
	if !excepted {
		policy = s.cfg.Policy
	}
	switch policy {
	case Hidden:
		return refusal(q, hiddenUser)
	case Token:
		return tokenReply(q, s.cfg.Sealer.Seal(Answer{User: user, Client: client, At: time.Now()}))
	}
	return nameReply(q, user)
}

// owner finds the client of a connection, and its user.
func (s *Server) owner(q query, near netip.Addr, peer netip.AddrPort) (
	client netip.Addr, user string, ok bool, err error) {
	far := netip.AddrPortFrom(peer.Addr(), q.Far)
	if s.cfg.Masquerade {
		var from netip.AddrPort
		if from, ok, err = original(netip.AddrPortFrom(near, q.Near), far); err != nil || !ok {
			return client, "", false, err
		}
		client = from.Addr()
	} else {
		if client, ok, err = s.watch.Client(peer); err != nil || !ok {
			return client, "", false, err
		}
		near = client
	}
	began, ok, err := s.watch.Began(netip.AddrPortFrom(near, q.Near), far)
	if err != nil || !ok {
		return client, "", false, err
	}
	// A connection of the session before is its user's, who is not the present one.
	u, ok := s.cfg.UserOf(client)
	return client, u.Name, ok && !began.Before(u.Since), nil
}
