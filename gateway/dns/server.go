package dns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	miekg "github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/budget"
)

const (
	perClientConns = 8 // TCP connections at once
	totalConns     = 256
	strangerConns  = 64               // of these, for unauthenticated clients together, 2 each
	perConn        = 100              // queries
	idleTime       = 10 * time.Second // to receive a complete query and to send a reply
)

// Server forwards queries. Its limits bound its goroutines and memory, whatever clients send.
type Server struct {
	cfg          Config
	log          *slog.Logger
	policy       *policy
	opener       Opener
	upstreams    upstreams
	sockets      []sockets
	queries      *limiter
	conns        *limiter
	budgets      *budgets
	queryBudgets budget.Senders[device]
	stats        counters

	running sync.WaitGroup // Run
	stop    context.CancelFunc
	stopped context.Context // done: Close was called

	mu     sync.Mutex              // held while the data path opens an address, so that no answer is sent before
	opened map[openPlace]time.Time // until when; guarded by mu

	unopened budget.OncePerMinute // warnings that the data path opens no address
	reported budget.OncePerMinute // warnings about dropped queries
}

// New listens. Queries are received from now on; Run answers them.
func New(cfg Config, o Opener) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, log: cfg.Log, opener: o, opened: map[openPlace]time.Time{},
		queries: newLimiter(
			class{perClient: cfg.PerClient, total: cfg.Total},
			class{perClient: cfg.PerStranger, total: cfg.UnauthenticatedTotal}),
		conns: newLimiter(
			class{perClient: perClientConns, total: totalConns}, class{perClient: perClientConns / 4, total: strangerConns}),
		budgets:      &budgets{perDevice: cfg.Budget},
		queryBudgets: budget.Senders[device]{Rate: cfg.PerDevice, Size: maxBudgets},
	}
	if s.policy, err = newPolicy(cfg); err != nil {
		return nil, err
	}
	for _, u := range cfg.Upstreams {
		s.upstreams = append(s.upstreams, &upstream{addr: u, log: cfg.Log})
	}
	if err := s.listen(); err != nil {
		return nil, err
	}
	s.stopped, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// sockets are the UDP and TCP sockets of one address.
type sockets struct {
	udp *net.UDPConn
	tcp net.Listener
}

// listen opens the sockets of the addresses.
func (s *Server) listen() error {
	for _, addr := range []netip.AddrPort{s.cfg.Listen, s.cfg.Listen6} {
		if !addr.IsValid() {
			continue
		}
		both, err := s.openSockets(addr)
		if err != nil {
			s.closeSockets()
			return fmt.Errorf("serving DNS on %s: %w%s", addr, err, hint(err))
		}
		s.sockets = append(s.sockets, both)
	}
	return nil
}

// openSockets opens the sockets of an address, with the same port.
func (s *Server) openSockets(addr netip.AddrPort) (sockets, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		err2 := c.Control(func(fd uintptr) {
			if s.cfg.Interface != "" {
				err = unix.BindToDevice(int(fd), s.cfg.Interface)
			}
			if addr.Addr().Is6() { // the kernel may still look whether another host has it (RFC 4862, 5.4)
				err = errors.Join(err, unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_FREEBIND, 1))
			}
		})
		return errors.Join(err, err2)
	}}
	ctx := context.Background()
	tcp, err := lc.Listen(ctx, "tcp", addr.String())
	if err != nil {
		return sockets{}, err
	}
	udp, err := lc.ListenPacket(ctx, "udp", tcp.Addr().String())
	if err != nil {
		tcp.Close()
		return sockets{}, err
	}
	return sockets{udp.(*net.UDPConn), tcp}, nil
}

func hint(err error) string {
	if errors.Is(err, unix.EADDRINUSE) {
		return ": another DNS server has the port: stop it, or configure DNS as external"
	}
	return ""
}

// Addr is the server's first address, for UDP and TCP.
func (s *Server) Addr() netip.AddrPort {
	return s.sockets[0].udp.LocalAddr().(*net.UDPAddr).AddrPort()
}

// Run serves until ctx ends or Close is called, closes the sockets and waits for queries in progress. It may be called
// once.
func (s *Server) Run(ctx context.Context) error {
	s.running.Add(1)
	defer s.running.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.stopped, cancel)()
	defer context.AfterFunc(ctx, s.closeSockets)()

	var wg sync.WaitGroup
	for _, at := range s.sockets {
		wg.Go(func() { s.serveUDP(ctx, at.udp, &wg) })
		wg.Go(func() { s.serveTCP(ctx, at.tcp, &wg) })
	}
	wg.Wait()
	return nil
}

// Close ends Run, waits for it and closes the sockets. Opened addresses stay open for their time.
func (s *Server) Close() error {
	s.stop()
	s.running.Wait()
	s.closeSockets()
	return nil
}

func (s *Server) closeSockets() {
	for _, at := range s.sockets {
		at.udp.Close()
		at.tcp.Close()
	}
}

// serveUDP reads queries. It answers what needs no upstream at once, and starts a goroutine of wg for each other query
// within the limits. It is the only reader of its socket, so a device that sends more than it may is dropped before its
// messages are decoded.
func (s *Server) serveUDP(ctx context.Context, socket *net.UDPConn, wg *sync.WaitGroup) {
	buf := make([]byte, maxQuery)
	for ctx.Err() == nil {
		n, from, err := socket.ReadFromUDPAddrPort(buf)
		if err != nil {
			s.pause(ctx, err)
			continue
		}
		if !s.serves(bare(from.Addr())) {
			continue
		}
		c := s.client(from.Addr())
		if !s.mayAsk(c) {
			continue
		}
		q, reply := s.screen(buf[:n], replySize)
		if q == nil {
			if reply != nil {
				socket.WriteToUDPAddrPort(reply, from)
			}
			continue
		}
		if leave, ok := s.admitQuery(c, n); ok {
			wg.Go(func() {
				reply := s.forward(ctx, q, replySize(q))
				leave(len(reply))
				socket.WriteToUDPAddrPort(reply, from) // a client that is gone asks no more
			})
		}
	}
}

// serveTCP accepts connections and starts a goroutine of wg for each that is within the limits.
func (s *Server) serveTCP(ctx context.Context, socket net.Listener, wg *sync.WaitGroup) {
	for ctx.Err() == nil {
		conn, err := socket.Accept()
		if err != nil {
			s.pause(ctx, err)
			continue
		}
		c := s.client(conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr())
		if !s.serves(c.addr) || !s.conns.admit(c.addr, c.admitted) {
			conn.Close()
			continue
		}
		wg.Go(func() {
			defer s.conns.release(c.addr, c.admitted)
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			s.serveConn(ctx, conn, c.addr)
		})
	}
}

// serveConn answers a connection's queries one by one.
func (s *Server) serveConn(ctx context.Context, conn net.Conn, addr netip.Addr) {
	for range perConn {
		conn.SetDeadline(time.Now().Add(idleTime))
		raw, err := readFrame(conn, maxQuery)
		if err != nil {
			return
		}
		c := s.client(addr) // who may have logged in since
		if !s.mayAsk(c) {
			return
		}
		q, reply := s.screen(raw, func(*miekg.Msg) int { return maxBytes })
		if q != nil {
			leave, ok := s.admitQuery(c, len(raw))
			if !ok {
				return
			}
			reply = s.forward(ctx, q, maxBytes)
			leave(len(reply))
		}
		conn.SetDeadline(time.Now().Add(idleTime))
		if reply == nil || writeFrame(conn, reply) != nil {
			return
		}
	}
}

// client is the sender of a query.
type client struct {
	addr     netip.Addr
	device   device
	admitted bool
}

func (s *Server) client(addr netip.Addr) client {
	c := client{addr: bare(addr)}
	c.device.mac, c.admitted = s.cfg.ClientOf(c.addr)
	if c.device.mac == [6]byte{} {
		c.device.addr = c.addr
	}
	return c
}

// mayAsk reports whether the next message of a device is read at all.
func (s *Server) mayAsk(c client) bool {
	if s.queryBudgets.Spend(c.device, c.device.mac != [6]byte{}, budget.Now()) {
		return true
	}
	s.warn("a client asks without end", c.addr)
	return false
}

// admitQuery reports whether a client's query of n bytes may be forwarded; if so, leave must be called with the length
// of the reply. Queries of unauthenticated clients have a budget and a small part of the queries in progress: names
// whose servers never answer keep a query in progress for seconds, and must not take the admitted clients' place.
func (s *Server) admitQuery(c client, n int) (leave func(reply int), ok bool) {
	var clientBucket *bucket
	if !c.admitted {
		if clientBucket, ok = s.budgets.spend(c.device, n, budget.Now()); !ok {
			s.warn("an unauthenticated client asks more than a login needs", c.addr)
			return nil, false
		}
	}
	if !s.queries.admit(c.addr, c.admitted) {
		s.warn("too many queries are in progress", c.addr)
		return nil, false
	}
	return func(reply int) {
		s.queries.release(c.addr, c.admitted)
		if clientBucket != nil {
			s.budgets.charge(clientBucket, reply, budget.Now())
		}
	}, true
}

// warn logs a dropped query, but not every one.
func (s *Server) warn(reason string, client netip.Addr) {
	s.reported.Do(func() {
		st := s.Stats()
		s.log.Warn("dropping DNS queries: "+reason, "client", client, "busy", st.Busy, "throttled", st.Throttled)
	})
}

// pause keeps a repeated error, such as a lack of file descriptors, from using all CPU.
func (s *Server) pause(ctx context.Context, err error) {
	if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
		return
	}
	s.log.Warn("receiving DNS queries", "err", err)
	select {
	case <-ctx.Done():
	case <-time.After(100 * time.Millisecond):
	}
}

// bare is an address without the IPv6 form of an IPv4 one, and a link-local one without its zone.
func bare(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }

// serves reports whether a client's queries are answered.
func (s *Server) serves(client netip.Addr) bool {
	if len(s.cfg.Clients) == 0 ||
		slices.ContainsFunc(s.cfg.Clients, func(p netip.Prefix) bool { return p.Contains(client) }) {
		return true
	}
	s.stats.foreign.Add(1)
	return false
}

// screen reads a message. It returns the query to forward, or the encoded reply to send at once, or neither for
// messages that get no answer; size returns the largest size of a reply.
func (s *Server) screen(raw []byte, size func(*miekg.Msg) int) (q *miekg.Msg, reply []byte) {
	s.stats.queries.Add(1)
	q, r := s.policy.screen(raw)
	switch {
	case q != nil:
		return q, nil
	case r == nil:
		s.stats.garbage.Add(1)
		return nil, nil
	case r.Rcode != miekg.RcodeSuccess:
		s.stats.refused.Add(1)
	default:
		s.stats.local.Add(1)
	}
	return nil, s.pack(r, r, size(r)) // the reply has an OPT record like the query's
}

// forward asks the upstreams, opens the addresses of the answer and returns the encoded reply of at most size bytes.
func (s *Server) forward(ctx context.Context, q *miekg.Msg, size int) []byte {
	answer, err := s.upstreams.exchangeAny(ctx, q, s.cfg.Timeout)
	if answer == nil {
		s.stats.failed.Add(1)
		s.log.Debug("no upstream answers", "name", q.Question[0].Name, "err", err)
		return s.pack(q, respond(q, miekg.RcodeServerFailure), size)
	}
	s.stats.forwarded.Add(1)
	r, open := s.policy.replyFor(q, answer)
	for _, o := range open {
		s.open(o, q.Question[0].Name)
	}
	return s.pack(q, r, size)
}

// pack encodes the reply to q. An answer that could be decoded but not encoded becomes a server failure.
func (s *Server) pack(q, r *miekg.Msg, size int) []byte {
	out, err := pack(r, size)
	if err != nil {
		s.stats.failed.Add(1)
		out, _ = pack(respond(q, miekg.RcodeServerFailure), miekg.MinMsgSize)
	}
	return out
}
