package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Limits of connections. Requests are small, so a slow client holds a place for seconds.
const (
	maxConns        = 128
	maxConnsOfOne   = 24 // of one host; a browser opens 6
	requestTimeout  = 10 * time.Second
	answerTimeout   = 5 * time.Minute // a revocation may end many sessions
	idleTimeout     = 2 * time.Minute
	shutdownTimeout = time.Second
	maxHeaderBytes  = 16 << 10
	maxBodyBytes    = 64 << 10
	socketMode      = 0o660
	retryAfter      = 5 * time.Second // after listening has failed
)

// listen opens the listener of a value of admin.listen.
func listen(ctx context.Context, where string) (net.Listener, error) {
	path, isSocket := strings.CutPrefix(where, "unix:")
	if !isSocket {
		return (&net.ListenConfig{}).Listen(ctx, "tcp", where)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket == 0 {
		return nil, errors.New(path + " is in the way of the socket, and is none: move it away")
	} else if err == nil {
		if c, err := net.Dial("unix", path); err == nil {
			c.Close()
			return nil, errors.New(path + " is another program's socket: name another")
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	// On Linux a socket's file gets the mode of its descriptor, less the umask: it is never open to others.
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), socketMode) }), err)
	}}
	l, err := config.Listen(ctx, "unix", path)
	if err == nil {
		if err = os.Chmod(path, socketMode); err != nil { // the umask may have removed bits
			return nil, errors.Join(err, l.Close())
		}
	}
	return l, err
}

// Run serves until ctx ends. Where it cannot listen it tries again: the gateway's clients do not wait for its admin
// page.
func (s *Server) Run(ctx context.Context) error {
	var following sync.WaitGroup
	following.Go(func() { s.follow(ctx) })
	following.Go(func() { _ = s.operators.Follow(ctx) })
	defer following.Wait()
	told := ""
	for ctx.Err() == nil {
		l, err := listen(ctx, s.cfg.Listen)
		if err == nil {
			s.closed.Store(nil)
			s.log.Info("the admin page is served", "listen", s.cfg.Listen)
			told = ""
			err = s.Serve(ctx, l)
		}
		if err == nil || ctx.Err() != nil {
			break
		}
		why := err.Error()
		s.closed.Store(&why)
		if why != told {
			told = why
			s.log.Error("the admin page is not served: trying again", "listen", s.cfg.Listen, "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryAfter):
		}
	}
	return nil
}

// Serve serves connections of a listener until ctx ends, and closes it.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	srv := &http.Server{
		Handler: s.handler, Protocols: &protocols,
		ReadHeaderTimeout: requestTimeout, ReadTimeout: requestTimeout, WriteTimeout: answerTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes, DisableGeneralOptionsHandler: true,
		ErrorLog:    slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), // strangers' mistakes would fill the log
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	limited := &limitedListener{Listener: l, server: s, conns: map[netip.Addr]int{}}
	inner := net.Listener(limited)
	if s.cert != nil {
		inner = tls.NewListener(limited, &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
			GetCertificate: s.certificate, SessionTicketsDisabled: true})
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(inner) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if srv.Shutdown(late) != nil {
		srv.Close()
	}
	<-ended
	return nil
}

// certificate is a tls.Config's GetCertificate: with a certificate that has expired there is no connection. Connections
// from before, and requests on them, are refused by guardAll.
func (s *Server) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if err := s.unfit(); err != nil {
		s.expired(err)
		return nil, err
	}
	return s.cert.Get(hello)
}

// limitedListener closes connections beyond the limits, and those of clients' networks.
type limitedListener struct {
	net.Listener
	server *Server

	mu    sync.Mutex
	total int                // guarded by mu
	conns map[netip.Addr]int // guarded by mu: by hostOf a peer; none with 0
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer := peerOf(conn.RemoteAddr().String())
		if of := l.server.cfg.IsClients; peer.IsValid() && of != nil && of(peer) || !l.count(peer) {
			l.server.counters.turnedAway.Add(1)
			conn.Close()
			continue
		}
		return &limitedConn{Conn: conn, done: sync.OnceFunc(func() { l.uncount(peer) })}, nil
	}
}

// count takes a place for a connection. Proxies and the socket have all places together.
func (l *limitedListener) count(peer netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	many := !peer.IsValid() || l.server.isProxy(peer)
	host := hostOf(peer)
	if l.total >= maxConns || !many && l.conns[host] >= maxConnsOfOne {
		return false
	}
	l.total++
	l.conns[host]++
	return true
}

func (l *limitedListener) uncount(peer netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	host := hostOf(peer)
	if l.conns[host]--; l.conns[host] == 0 {
		delete(l.conns, host)
	}
}

// limitedConn is a connection of a limitedListener. Its Close frees its place.
type limitedConn struct {
	net.Conn
	done func()
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	defer c.done()
	return c.Conn.Close()
}

// isProxy reports whether a peer is a trusted proxy. Of the socket, whose peer is not valid, everybody is.
func (s *Server) isProxy(peer netip.Addr) bool {
	return !peer.IsValid() || slices.ContainsFunc(s.cfg.TrustedProxies,
		func(p netip.Prefix) bool { return p.Contains(peer) })
}

// peerOf is the address of a connection's other end; zero: it is a socket's.
func peerOf(remote string) netip.Addr {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}

// clientOf is who sent a request: the peer, or whom a trusted proxy names last in X-Forwarded-For.
func (s *Server) clientOf(r *http.Request) netip.Addr {
	peer := peerOf(r.RemoteAddr)
	if !s.isProxy(peer) {
		return peer
	}
	all := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, text := range slices.Backward(all) { // the last that is no proxy of ours
		addr, err := netip.ParseAddr(strings.TrimSpace(text))
		if err != nil {
			break
		}
		if addr = addr.Unmap().WithZone(""); !s.isProxy(addr) {
			return addr
		}
	}
	return peer
}
