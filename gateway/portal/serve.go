// Running the portal: listeners, time limits of a connection, and counts.

package portal

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gateweigh/gateweigh/gateway/uam"
	"github.com/gateweigh/gateweigh/gateway/weblink"
)

// Limits of one connection. Clients send little, so seconds suffice on any network; a slow client occupies only a
// goroutine.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	// writeTimeout counts from the request's header on, and for a login once more from its decision.
	writeTimeout = 70 * time.Second
	idleTimeout  = 15 * time.Second
	// shutdownTimeout is how long Serve waits for unfinished answers when it ends.
	shutdownTimeout = time.Second
	// maxHeaderBytes leaves space for the cookies of the requested site.
	maxHeaderBytes = 16 << 10
	maxFormBytes   = 8 << 10
)

// handshakeTimeout bounds what is written of a TLS handshake. Tests change it.
var handshakeTimeout = headerTimeout

// Stats are counts since New.
type Stats struct {
	Redirects   uint64 // captured requests sent to the login page
	Probes      uint64 // probes of admitted clients answered
	Logins      uint64 // clients admitted
	Rejected    uint64 // wrong passwords
	Unavailable uint64 // logins that could not be decided
	Failed      uint64 // logins that were accepted, and logouts, that the gateway could not carry out
	BackedOff   uint64 // logins too soon after wrong passwords
	Forged      uint64 // forms without the token of their client
	Logouts     uint64 // sessions ended by their client
	Turned      uint64 // connections beyond the limits
}

// counters are the live counters behind Stats.
type counters struct {
	redirects, probes, logins, rejected, unavailable, failed, backedOff, forged, logouts, refused atomic.Uint64
}

// Stats reads the counters. Each is exact; they are not read at the same instant.
func (p *Portal) Stats() Stats {
	c := &p.counters
	return Stats{
		Redirects: c.redirects.Load(), Probes: c.probes.Load(), Logins: c.logins.Load(),
		Rejected: c.rejected.Load(), Unavailable: c.unavailable.Load(), Failed: c.failed.Load(),
		BackedOff: c.backedOff.Load(),
		Forged:    c.forged.Load(), Logouts: c.logouts.Load(), Turned: c.refused.Load(),
	}
}

// Run listens and serves until ctx ends. The data path should hand over connections only after Run has started: earlier
// ones are refused.
func (p *Portal) Run(ctx context.Context) error {
	var all Listeners
	l, err := Listen(ctx, p.site4.addr)
	if err != nil {
		return err
	}
	all.Plain = append(all.Plain, l)
	if p.cert != nil {
		if l, err = Listen(ctx, p.site4.secure); err != nil {
			all.Close()
			return err
		}
		all.Secure = append(all.Secure, l)
	}
	return p.Serve(ctx, all)
}

// Listeners are the sockets that the portal serves: of both families, or of one.
type Listeners struct {
	Plain  []net.Listener // HTTP
	Secure []net.Listener // https
}

// Close closes the listeners that the portal has not closed itself.
func (l Listeners) Close() {
	for _, one := range slices.Concat(l.Plain, l.Secure) {
		one.Close()
	}
}

// Serve serves connections of the listeners until ctx ends, which is no error, and closes them. All handlers have
// returned when Serve returns.
func (p *Portal) Serve(ctx context.Context, all Listeners) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &connLimiter{
		max: p.cfg.MaxConns, maxPerClient: p.cfg.MaxConnsPerClient, waitAtMost: p.cfg.waitAtMost,
		clients: map[netip.Addr]int{}, byFD: map[int32]*limitedConn{},
	}
	srv := p.server(ctx)
	var conns sync.WaitGroup // open idleableConns; the Serve loops add to it, so it is waited for after they have ended
	srv.ConnState = func(conn net.Conn, s http.ConnState) {
		conn.(*idleableConn).answered = s == http.StateIdle
		switch s {
		case http.StateNew:
			conns.Add(1)
		case http.StateClosed:
			conns.Done()
		}
	}
	listeners, err := p.limited(ctx, c, all)
	if err != nil {
		return fmt.Errorf("serving the portal: %w", err)
	}
	ended := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { ended <- srv.Serve(l) }()
	}
	running := len(listeners)

	var failed error
	select {
	case <-ctx.Done():
	case failed = <-ended:
		running--
	}
	cancel() // ends authentications, so that their requests are answered
	stop, done := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer done()
	if err := srv.Shutdown(stop); err != nil { // a request did not finish in time
		srv.Close()
	}
	for range running {
		<-ended
	}
	conns.Wait()
	if failed != nil {
		return fmt.Errorf("serving the portal: %w", failed)
	}
	return nil
}

// limited returns what the server listens to: the listeners within the limits, and idle connections. On error they are
// closed.
func (p *Portal) limited(ctx context.Context, c *connLimiter, all Listeners) ([]net.Listener, error) {
	idle, err := newIdleConns(c)
	listeners := []net.Listener{idle}
	if err != nil {
		all.Close()
		return listeners, err
	}
	for i, l := range slices.Concat(all.Plain, all.Secure) {
		limited := &limitedListener{Listener: l, limiter: c, idle: idle, ctx: ctx,
			rejected: func() { p.counters.refused.Add(1) }}
		if i >= len(all.Plain) {
			limited.tls = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: p.cert.Get}
		}
		listeners = append(listeners, limited)
	}
	return listeners, nil
}

// server returns an HTTP/1 server: captured requests are HTTP/1, and HTTP/2 would only add attack surface for three
// small pages.
func (p *Portal) server(ctx context.Context) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	// Every phase has a time limit: a client that sends or reads slowly loses its connection (slowloris).
	return &http.Server{
		Handler: p, Protocols: &protocols,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes, DisableGeneralOptionsHandler: true, // "OPTIONS *" may be a captured request too
		// Clients' mistakes would fill the log.
		ErrorLog:    slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(_ context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, peerKey{}, &c.(*idleableConn).peer)
		},
	}
}

// peer describes a connection.
type peer struct {
	client    netip.Addr      // remote address
	local     netip.AddrPort  // local address: the portal's, or that of the requested site
	secure    bool            // TLS
	serverCtx context.Context // the server's context: outlives the request
	limiter   *connLimiter    // the limiter that counts the connection
	httpConn  *idleableConn   // the connection as net/http has it now
}

// work has the connection stay open from now on, until its answer begins: its request has been read.
func (c *peer) work() {
	if c.httpConn != nil && !c.httpConn.work() {
		panic(http.ErrAbortHandler) // it was closed for another one
	}
}

// peerKey finds the peer in a request's context.
type peerKey struct{}

func peerOf(r *http.Request) *peer { return r.Context().Value(peerKey{}).(*peer) }

// ServeHTTP answers a request of a connection made by Serve.
func (p *Portal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer p.recoverPanic(w, r)
	c := peerOf(r)
	if r.ContentLength == 0 {
		c.work()
	}
	if p.captured(c, r) {
		p.answerCaptured(w, r, c)
		return
	}
	if p.cfg.Elsewhere != nil && r.URL.Path != apiPath {
		p.cfg.Elsewhere.Serve(w, r, uam.Peer{Client: c.client, Secure: c.secure, Life: c.serverCtx})
		return
	}
	for _, h := range p.pageHints {
		w.Header()[h.name] = h.value
	}
	if c.limiter.hasWaiting() {
		w.Header()["Connection"] = closeValue
	}
	if p.cert != nil && !c.secure && r.URL.Path != apiPath {
		p.toTLS(w, r)
		return
	}
	p.mux.ServeHTTP(w, r)
}

// toTLS redirects a plain HTTP request to https. A form's content is discarded: its password has crossed the network in
// plain text, which must not appear to work.
func (p *Portal) toTLS(w http.ResponseWriter, r *http.Request) {
	base := p.siteOf(peerOf(r)).base
	target := base + "/"
	if r.Method == http.MethodGet && r.URL.Path == "/login" {
		target = base + "/login"
		if link, ok := weblink.Parse(r.URL.Query().Get("url")); ok {
			target = withLink(target, link)
		}
	}
	p.redirect(w, r, target)
}

// recoverPanic logs a panic in a handler at error level; net/http would log it at debug level, which hides it.
func (p *Portal) recoverPanic(w http.ResponseWriter, r *http.Request) {
	failure := recover()
	if failure == nil {
		return
	}
	if err, ok := failure.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
		p.log.Error("answering a portal request", "method", r.Method, "path", r.URL.Path, "panic", failure, "stack",
			string(debug.Stack()))
	}
	panic(http.ErrAbortHandler) // net/http closes the connection
}

var _ http.Handler = (*Portal)(nil)
