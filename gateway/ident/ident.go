// Package ident answers queries by RFC 1413 in place of the clients: which user a client's TCP connection belongs to.
//
//	without masquerade   peer ── CLIENT:113 ──▶ ident_in ──▶ Server   the client is the address that the peer asked
//	with masquerade      peer ── GATEWAY:113 ─────────────▶ Server   connection tracking names the client
//
// By IPv6 it is always as without masquerade.
//
// A Server names the user who logged in at the gateway. It answers only about a connection between the client and the
// asking host that exists and began in the client's present session.
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

// Policy says how replies identify a user.
type Policy int

const (
	Name   Policy = iota // the user's name
	Token                // a token of Config.Sealer
	Hidden               // the error HIDDEN-USER
)

// User is a logged-in client's user.
type User struct {
	Name  string    // empty for a login without a user; queries get NO-USER then
	Since time.Time // time of the login
}

// Config is what a Server needs.
type Config struct {
	Masquerade   bool // on the WAN clients have the gateway's IPv4 address
	Policy       Policy
	UserPolicies map[string]Policy // by the user's name, in place of Policy
	Sealer       *Sealer           // for policy Token
	Rate         budget.Rate       // limit of each asking host's queries, or of an IPv6 network's of 64 bits
	// UserOf returns the user who is logged in at a client's address. ok is false if nobody is.
	UserOf func(client netip.Addr) (user User, ok bool)
	Log    *slog.Logger
}

const (
	maxConns   = 1024 // open connections; further ones are closed
	maxPerHost = 32   // open connections of one asking host, or of an IPv6 network of 64 bits
	maxBudgets = 4096 // hosts with a budget of their own
)

// queryTimeout is the time for a query and its reply. proftpd sends the query 5 s after it connects. Tests change it.
var queryTimeout = 30 * time.Second

// maxDiscard is the largest number of bytes that answerQuery reads after a line that is too long.
const maxDiscard = 64 << 10

// Stats counts queries since the start.
type Stats struct {
	Named     uint64 // answered with a name, a token or HIDDEN-USER
	NoUser    uint64 // answered with NO-USER: no such connection, or no user
	Invalid   uint64 // malformed queries
	Throttled uint64 // connections closed without an answer: beyond the rate, or too many at once
	Failed    uint64 // answered with UNKNOWN-ERROR: the kernel did not answer
}

// Server answers queries.
type Server struct {
	cfg      Config
	watch    *ConnWatch
	budget   budget.Senders[netip.Addr]
	queryLog budget.OncePerMinute

	mu    sync.Mutex         // guards open and total
	open  map[netip.Addr]int // number of open connections by asking host (payer)
	total int                // number of all open connections

	named, noUser, invalid, throttled, failed atomic.Uint64
}

// New returns a Server that asks a ConnWatch for connections. The caller closes the ConnWatch.
func New(cfg Config, watch *ConnWatch) *Server {
	return &Server{
		cfg: cfg, watch: watch, open: map[netip.Addr]int{},
		budget: budget.Senders[netip.Addr]{Rate: cfg.Rate, Size: maxBudgets},
	}
}

// Stats returns the counters.
func (s *Server) Stats() Stats {
	return Stats{Named: s.named.Load(), NoUser: s.noUser.Load(), Invalid: s.invalid.Load(), Throttled: s.throttled.Load(),
		Failed: s.failed.Load()}
}

// Where returns the network and the address on which a gateway listens for queries: by IPv4, or by both families.
func Where(ipv6 bool) (network string, addr netip.AddrPort) {
	if ipv6 {
		return "tcp", netip.AddrPortFrom(netip.IPv6Unspecified(), Port) // IPv4 hosts have mapped addresses there
	}
	return "tcp4", netip.AddrPortFrom(netip.IPv4Unspecified(), Port)
}

// Listen listens on the port for queries that arrive at an interface: by IPv4, and by IPv6 too where ipv6 says so.
func Listen(ctx context.Context, device string, ipv6 bool) (net.Listener, error) {
	network, addr := Where(ipv6)
	lc := net.ListenConfig{KeepAlive: -1, Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if e := c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), device) }); e != nil {
			return e
		}
		return err
	}}
	listener, err := lc.Listen(ctx, network, addr.String())
	if err != nil {
		return nil, fmt.Errorf("ident: listening on %s: %w", device, err)
	}
	return listener, nil
}

// Serve answers until ctx ends, and closes the listener.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	var running sync.WaitGroup
	defer running.Wait()
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), closeConn(conn))
		}
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil { // such as too many open files, which may pass
			s.queryLog.Do(func() { s.cfg.Log.Warn("ident: accepting a query", "err", err) })
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		peer := payer(conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap())
		if !s.budget.Spend(peer, false, budget.Now()) || !s.admit(peer) {
			s.throttled.Add(1)
			conn.Close()
			continue
		}
		running.Go(func() {
			defer s.release(peer)
			s.answerQuery(ctx, conn)
		})
	}
}

// payer returns the address whose budget a peer's queries use. An IPv6 host can have all addresses of its network of 64
// bits, so these share the budget of the network's first address.
func payer(peer netip.Addr) netip.Addr {
	if peer.Is4() {
		return peer
	}
	return netip.PrefixFrom(peer.WithZone(""), 64).Masked().Addr()
}

func closeConn(conn net.Conn) error {
	if conn == nil {
		return nil
	}
	return conn.Close()
}

// admit counts a connection of a host. It returns false when too many are open.
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

// answerQuery reads a query, answers it and closes the connection, which RFC 1413, 3, allows after one query.
func (s *Server) answerQuery(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	conn.SetDeadline(time.Now().Add(queryTimeout))
	line, err := bufio.NewReaderSize(io.LimitReader(conn, maxLine), maxLine).ReadString('\n')
	if err != nil && len(line) < maxLine { // the peer left, or took too long
		s.invalid.Add(1)
		return
	}
	near, far := conn.LocalAddr().(*net.TCPAddr).AddrPort(), conn.RemoteAddr().(*net.TCPAddr).AddrPort()
	io.WriteString(conn,
		s.reply(strings.TrimRight(line, "\r\n"), near.Addr().Unmap(), netip.AddrPortFrom(far.Addr().Unmap(), far.Port())))
	if err != nil { // the line is too long: closing with unread bytes would reset the connection before the reply
		conn.(*net.TCPConn).CloseWrite()
		io.CopyN(io.Discard, conn, maxDiscard)
	}
}

// reply returns the reply to a query of a peer. near is the address to which the peer connected.
func (s *Server) reply(line string, near netip.Addr, peer netip.AddrPort) string {
	asked, err := parseQuery(line)
	if err != nil {
		s.invalid.Add(1)
		return refusal(asked, invalidPort)
	}
	client, user, ok, err := s.owner(asked, near, peer)
	switch {
	case err != nil:
		s.failed.Add(1)
		s.queryLog.Do(func() { s.cfg.Log.Error("ident: a query was not answered", "peer", peer.Addr(), "err", err) })
		return refusal(asked, unknownError)
	case !ok || user == "":
		s.noUser.Add(1)
		return refusal(asked, noUser)
	}
	s.named.Add(1)
	policy, excepted := s.cfg.UserPolicies[user]
	if !excepted {
		policy = s.cfg.Policy
	}
	switch policy {
	case Hidden:
		return refusal(asked, hiddenUser)
	case Token:
		return tokenReply(asked, s.cfg.Sealer.Seal(Answer{User: user, Client: client, At: time.Now()}))
	}
	return nameReply(asked, user)
}

// owner finds the client of the connection that a query asks about, and the client's user.
func (s *Server) owner(asked query, near netip.Addr, peer netip.AddrPort) (
	client netip.Addr, user string, ok bool, err error) {
	far := netip.AddrPortFrom(peer.Addr(), asked.Far)
	if s.cfg.Masquerade && peer.Addr().Is4() {
		var from netip.AddrPort
		if from, ok, err = masqueradedClient(netip.AddrPortFrom(near, asked.Near), far); err != nil || !ok {
			return client, "", false, err
		}
		client = from.Addr()
	} else {
		if client, ok, err = s.watch.Client(peer); err != nil || !ok {
			return client, "", false, err
		}
		near = client
	}
	began, ok, err := s.watch.Began(netip.AddrPortFrom(near, asked.Near), far)
	if err != nil || !ok {
		return client, "", false, err
	}
	// A connection from before the login belongs to another session's user.
	u, ok := s.cfg.UserOf(client)
	return client, u.Name, ok && !began.Before(u.Since), nil
}
