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
	"sync"
	"sync/atomic"
	"time"
)

// Limits of one connection. What a client sends is small, so that seconds are
// enough on any network; a slow one ties up no more than a goroutine.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	// authTimeout ends an Authenticator's work: RADIUS with two servers and
	// their retransmissions takes its time.
	authTimeout = 30 * time.Second
	// writeTimeout counts from the request's header on; a log-in may have to wait
	// for another one of its client.
	writeTimeout = 2*authTimeout + readTimeout
	idleTimeout  = 15 * time.Second
	// goodbye is how long Serve lets answers finish when it ends.
	goodbye = time.Second
	// maxHeaderBytes has room for the cookies of whatever site the client wanted.
	maxHeaderBytes = 16 << 10
	maxFormBytes   = 8 << 10
)

// Stats count what happened since New.
type Stats struct {
	Redirects   uint64 // captured requests sent to the login page
	Probes      uint64 // probes of admitted clients told that all is well
	Logins      uint64 // clients admitted
	Rejected    uint64 // wrong passwords
	Unavailable uint64 // log-ins that nobody could decide
	BackedOff   uint64 // log-ins too soon after wrong passwords
	Forged      uint64 // forms without the token of their client
	Logouts     uint64 // sessions that their client ended
	Turned      uint64 // connections beyond the limits
}

// counters are Stats while they grow.
type counters struct {
	redirects, probes, logins, rejected, unavailable, backedOff, forged, logouts, turned atomic.Uint64
}

// Stats reads the counters; each is exact, together they are of about one moment.
func (p *Portal) Stats() Stats {
	c := &p.counters
	return Stats{
		Redirects: c.redirects.Load(), Probes: c.probes.Load(), Logins: c.logins.Load(),
		Rejected: c.rejected.Load(), Unavailable: c.unavailable.Load(), BackedOff: c.backedOff.Load(),
		Forged: c.forged.Load(), Logouts: c.logouts.Load(), Turned: c.turned.Load(),
	}
}

// Run listens and serves until ctx ends. The data path should be given
// connections only once it runs: before, they are refused.
func (p *Portal) Run(ctx context.Context) error {
	plain, err := Listen(ctx, p.cfg.Address)
	if err != nil {
		return err
	}
	var secure net.Listener
	if p.cert != nil {
		if secure, err = Listen(ctx, p.cfg.TLS.Address); err != nil {
			plain.Close()
			return err
		}
	}
	return p.Serve(ctx, plain, secure)
}

// Serve serves connections of both listeners, which it closes, until ctx ends;
// that is no error. secure is for https and may be nil. All handlers have
// returned when it does.
func (p *Portal) Serve(ctx context.Context, plain, secure net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &crowd{max: p.cfg.MaxConns, maxPerClient: p.cfg.MaxConnsPerClient, patience: p.cfg.patience, clients: map[netip.Addr]int{}}
	turned := func() { p.counters.turned.Add(1) }
	srv := p.server(ctx, c)
	var conns sync.WaitGroup // added to by the Serve loops, waited for when they have ended
	srv.ConnState = func(conn net.Conn, s http.ConnState) {
		c.changed(conn, s)
		switch s {
		case http.StateNew:
			conns.Add(1)
		case http.StateClosed:
			conns.Done()
		}
	}
	ended := make(chan error, 2)
	running := 1
	go func() { ended <- srv.Serve(&door{plain, c, turned, ctx.Done()}) }()
	if secure != nil {
		running++
		go func() { ended <- srv.Serve(tls.NewListener(&door{secure, c, turned, ctx.Done()}, srv.TLSConfig)) }()
	}

	var failed error
	select {
	case <-ctx.Done():
	case failed = <-ended:
		running--
	}
	cancel() // ends authentications, so that their requests are answered
	stop, done := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer done()
	if err := srv.Shutdown(stop); err != nil { // somebody is not done in time
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

// server is an HTTP/1 server: captured requests are HTTP/1, and for three small
// pages HTTP/2 is only more to attack.
func (p *Portal) server(ctx context.Context, all *crowd) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	// Every phase has its limit: a client that sends or reads slowly loses its
	// connection instead of holding one for ever (slowloris).
	srv := &http.Server{
		Handler: p, Protocols: &protocols,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes, DisableGeneralOptionsHandler: true, // "OPTIONS *" may be captured as well
		// What clients do wrong would fill the log.
		ErrorLog:    slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(_ context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, peerKey{}, &peer{
				client: addrPort(c.RemoteAddr()).Addr(), local: addrPort(c.LocalAddr()), life: ctx, crowd: all,
			})
		},
	}
	if p.cert != nil {
		srv.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: p.cert.get}
	}
	return srv
}

// peer is what is known of a connection.
type peer struct {
	client netip.Addr      // who
	local  netip.AddrPort  // where it believes to be
	life   context.Context // of the server: outlives the request
	crowd  *crowd          // whom it is one of
}

// peerKey finds the peer in a request's context.
type peerKey struct{}

func peerOf(r *http.Request) *peer { return r.Context().Value(peerKey{}).(*peer) }

// ServeHTTP answers a request of a connection made by Serve.
func (p *Portal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer p.survive(w, r)
	c := peerOf(r)
	if p.captured(c, r) {
		p.answerCaptured(w, r, c)
		return
	}
	for _, h := range p.pageHints {
		w.Header()[h.name] = h.value
	}
	if c.crowd.pressed() {
		w.Header()["Connection"] = closeValue
	}
	if p.cert != nil && r.TLS == nil && r.URL.Path != apiPath {
		p.toTLS(w, r)
		return
	}
	p.mux.ServeHTTP(w, r)
}

// toTLS sends what was asked over plain HTTP to where it is served. Of a form
// nothing is kept: its password has crossed the network readable, and should not
// seem to be welcome.
func (p *Portal) toTLS(w http.ResponseWriter, r *http.Request) {
	to := p.base + "/"
	if r.Method == http.MethodGet && r.URL.Path == "/login" {
		to = p.base + "/login"
		if link, ok := parseLink(r.URL.Query().Get("url")); ok {
			to = withLink(to, link)
		}
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// survive keeps a defect in one answer from hiding at debug level, where net/http
// would log it.
func (p *Portal) survive(w http.ResponseWriter, r *http.Request) {
	failure := recover()
	if failure == nil {
		return
	}
	if err, ok := failure.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
		p.log.Error("answering a portal request", "method", r.Method, "path", r.URL.Path, "panic", failure, "stack", string(debug.Stack()))
	}
	panic(http.ErrAbortHandler) // net/http closes the connection
}

var _ http.Handler = (*Portal)(nil)
