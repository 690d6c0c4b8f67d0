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
)

const (
	perClientConns = 8 // TCP connections at once
	totalConns     = 256
	perConn        = 100              // queries
	idleTime       = 10 * time.Second // to receive a complete query and to send a reply
)

// Server forwards queries. Its limits bound its goroutines and memory, whatever clients
// send.
type Server struct {
	cfg       Config
	log       *slog.Logger
	policy    *policy
	opener    Opener
	upstreams upstreams
	udp       *net.UDPConn
	tcp       net.Listener
	queries   *limiter
	conns     *limiter
	stats     counters

	running sync.WaitGroup // Run
	stop    context.CancelFunc
	stopped context.Context // done: Close was called

	mu     sync.Mutex               // held while the data path opens an address, so that no answer is sent before
	opened map[netip.Addr]time.Time // until when; guarded by mu
	warned time.Time                // of the last logged error; guarded by mu
}

// New listens. Queries are received from now on; Run answers them.
func New(cfg Config, o Opener) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, log: cfg.Log, opener: o, opened: map[netip.Addr]time.Time{},
		queries: newLimiter(cfg.PerClient, cfg.Total), conns: newLimiter(perClientConns, totalConns),
	}
	if s.policy, err = newPolicy(cfg); err != nil {
		return nil, err
	}
	for _, u := range cfg.Upstreams {
		s.upstreams = append(s.upstreams, &upstream{addr: u})
	}
	if err := s.listen(); err != nil {
		return nil, err
	}
	s.stopped, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// listen opens both sockets, with the same port.
func (s *Server) listen() error {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if s.cfg.Interface == "" {
			return nil
		}
		err2 := c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), s.cfg.Interface) })
		return errors.Join(err, err2)
	}}
	ctx := context.Background()
	tcp, err := lc.Listen(ctx, "tcp", s.cfg.Listen.String())
	if err != nil {
		return fmt.Errorf("serving DNS on %s: %w%s", s.cfg.Listen, err, hint(err))
	}
	udp, err := lc.ListenPacket(ctx, "udp", tcp.Addr().String())
	if err != nil {
		tcp.Close()
		return fmt.Errorf("serving DNS on %s: %w%s", s.cfg.Listen, err, hint(err))
	}
	s.tcp, s.udp = tcp, udp.(*net.UDPConn)
	return nil
}

func hint(err error) string {
	if errors.Is(err, unix.EADDRINUSE) {
		return ": another DNS server has the port: stop it, or configure DNS as external"
	}
	return ""
}

// Addr is the server's address, for UDP and TCP.
func (s *Server) Addr() netip.AddrPort {
	return s.udp.LocalAddr().(*net.UDPAddr).AddrPort()
}

// Run serves until ctx ends or Close is called, closes the sockets and waits for queries
// in progress. It may be called once.
func (s *Server) Run(ctx context.Context) error {
	s.running.Add(1)
	defer s.running.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.stopped, cancel)()
	defer context.AfterFunc(ctx, s.closeSockets)()

	var wg sync.WaitGroup
	wg.Go(func() { s.serveUDP(ctx, &wg) })
	wg.Go(func() { s.serveTCP(ctx, &wg) })
	wg.Wait()
	return nil
}

// Close ends Run, waits for it and closes the sockets. Opened addresses stay open for
// their time.
func (s *Server) Close() error {
	s.stop()
	s.running.Wait()
	s.closeSockets()
	return nil
}

func (s *Server) closeSockets() {
	s.udp.Close()
	s.tcp.Close()
}

// serveUDP reads queries and starts a goroutine of wg for each that is within the
// limits.
func (s *Server) serveUDP(ctx context.Context, wg *sync.WaitGroup) {
	buf := make([]byte, maxQuery)
	for ctx.Err() == nil {
		n, from, err := s.udp.ReadFromUDPAddrPort(buf)
		if err != nil {
			s.pause(ctx, err)
			continue
		}
		client := from.Addr().Unmap()
		if !s.serves(client) || !s.queries.enter(client) {
			continue
		}
		raw := slices.Clone(buf[:n])
		wg.Go(func() {
			defer s.queries.leave(client)
			if reply := s.resolve(ctx, raw, replySize); reply != nil {
				s.udp.WriteToUDPAddrPort(reply, from) // a client that is gone asks no more
			}
		})
	}
}

// serveTCP accepts connections and starts a goroutine of wg for each that is
// within the limits.
func (s *Server) serveTCP(ctx context.Context, wg *sync.WaitGroup) {
	for ctx.Err() == nil {
		conn, err := s.tcp.Accept()
		if err != nil {
			s.pause(ctx, err)
			continue
		}
		client := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
		if !s.serves(client) || !s.conns.enter(client) {
			conn.Close()
			continue
		}
		wg.Go(func() {
			defer s.conns.leave(client)
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			s.serveConn(ctx, conn, client)
		})
	}
}

// serveConn answers a connection's queries one by one.
func (s *Server) serveConn(ctx context.Context, conn net.Conn, client netip.Addr) {
	for range perConn {
		conn.SetDeadline(time.Now().Add(idleTime))
		raw, err := readFrame(conn, maxQuery)
		if err != nil || !s.queries.enter(client) {
			return
		}
		reply := s.resolve(ctx, raw, func(*miekg.Msg) int { return maxBytes })
		s.queries.leave(client)
		conn.SetDeadline(time.Now().Add(idleTime))
		if reply == nil || writeFrame(conn, reply) != nil {
			return
		}
	}
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

// serves reports whether a client's queries are answered.
func (s *Server) serves(client netip.Addr) bool {
	if len(s.cfg.Clients) == 0 || slices.ContainsFunc(s.cfg.Clients, func(p netip.Prefix) bool { return p.Contains(client) }) {
		return true
	}
	s.stats.foreign.Add(1)
	return false
}

// resolve returns the reply to a message, or nil for no reply; size returns the largest
// size of the reply.
func (s *Server) resolve(ctx context.Context, raw []byte, size func(*miekg.Msg) int) []byte {
	s.stats.queries.Add(1)
	q, r := s.policy.screen(raw)
	switch {
	case q == nil && r == nil:
		s.stats.garbage.Add(1)
		return nil
	case q == nil && r.Rcode != miekg.RcodeSuccess:
		s.stats.refused.Add(1)
	case q == nil:
		s.stats.local.Add(1)
	default:
		r = s.forward(ctx, q)
	}
	if q == nil {
		q = r // for size: the reply has an OPT record like the query's
	}
	out, err := pack(r, size(q))
	if err != nil { // the answer could be decoded but not encoded
		s.stats.failed.Add(1)
		out, _ = pack(respond(q, miekg.RcodeServerFailure), miekg.MinMsgSize)
	}
	return out
}

// forward asks the upstreams and opens the addresses of the answer.
func (s *Server) forward(ctx context.Context, q *miekg.Msg) *miekg.Msg {
	answer, err := s.upstreams.ask(ctx, q, s.cfg.Timeout)
	if answer == nil {
		s.stats.failed.Add(1)
		s.log.Debug("no upstream answers", "name", q.Question[0].Name, "err", err)
		return respond(q, miekg.RcodeServerFailure)
	}
	s.stats.forwarded.Add(1)
	r, open := s.policy.judge(q, answer)
	for _, o := range open {
		s.open(o, q.Question[0].Name)
	}
	return r
}
