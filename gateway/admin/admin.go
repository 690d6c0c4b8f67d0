// Package admin is the page, and the JSON API, of those who look after the gateway.
//
//	browser ── cookie ──▶ pages ─┐
//	                             ├─▶ desk ── audit log ──▶ control.Answers ──▶ sessions, vouchers
//	program ── Basic, Bearer ──▶ API ─┘
//
// Pages and API ask the same desk, and the desk asks what the control socket asks. Whoever asks has an account with a
// role (package users). A change is in the audit log before it is made, and is not made where the log cannot be
// written.
package admin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/gateweigh/gateweigh/gateway/certificate"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/flowlog"
	"github.com/gateweigh/gateweigh/gateway/guesses"
	"github.com/gateweigh/gateweigh/gateway/users"
)

// Finding is a warning of check-config.
type Finding struct {
	Weight string `json:"weight"` // "warning" or "error"
	Text   string `json:"text"`
}

// Config is what the admin page needs of the daemon. Functions may be called at any time from several goroutines.
type Config struct {
	Listen  string // where it is served, for messages
	Answers control.Answers
	// Whois searches the flow logs until ctx ends.
	Whois func(context.Context, netip.AddrPort, time.Time) ([]flowlog.Search, error)
	// Findings are what check-config would say now. It may take a second.
	Findings func() []Finding
	// IsClients reports whether a peer is of a network of clients. Connections from there are closed. nil: none is.
	IsClients func(netip.Addr) bool

	Accounts       string // file
	Cert, Key      string // PEM files; empty: plain HTTP
	TrustedProxies []netip.Prefix
	UserHeader     string        // empty: people log in here
	Idle, Longest  time.Duration // of a login
	StateDir       string        // of the audit log and of usage
	Log            *slog.Logger
}

// Server serves the page and the API.
type Server struct {
	cfg       Config
	log       *slog.Logger
	operators *users.Operators
	cert      *certificate.Certificate // nil: plain HTTP
	guard     guesses.Guard
	logins    logins
	audit     *auditLog
	usage     *usage
	findings  findings
	key       []byte        // of forms' tokens
	searching chan struct{} // has an element while somebody searches the flow logs
	handler   http.Handler
	counters  counters
	closed    atomic.Pointer[string] // why it is not served; nil: it is
	toldAt    atomic.Int64           // when the log said last that the certificate has expired, in Unix time
}

// counters are the live counters behind Stats.
type counters struct {
	login, rejected, backedOff, forged, denied, turnedAway, changes, whois atomic.Uint64
}

// Stats are a server's counts since New.
type Stats struct {
	Logins     uint64 // at the page
	Rejected   uint64 // wrong passwords and tokens
	BackedOff  uint64 // not tried, so soon after wrong ones
	Forged     uint64 // forms of other sites
	Denied     uint64 // what an account may not do
	TurnedAway uint64 // connections of clients, and beyond the limits
	Changes    uint64
	Whois      uint64 // searches for who used an address
}

// Stats returns the present counts.
func (s *Server) Stats() Stats {
	c := &s.counters
	return Stats{
		Logins: c.login.Load(), Rejected: c.rejected.Load(), BackedOff: c.backedOff.Load(), Forged: c.forged.Load(),
		Denied: c.denied.Load(), TurnedAway: c.turnedAway.Load(), Changes: c.changes.Load(), Whois: c.whois.Load(),
	}
}

// New opens the accounts, the certificate, the audit log and the usage. Close closes what is open.
func New(cfg Config) (s *Server, err error) {
	s = &Server{cfg: cfg, log: cfg.Log, key: make([]byte, 32), logins: logins{idle: cfg.Idle, longest: cfg.Longest},
		guard: guesses.Guard{NoHome: true}, searching: make(chan struct{}, 1)}
	rand.Read(s.key)
	if s.operators, err = users.OpenOperators(cfg.Accounts, cfg.Log); err != nil {
		return nil, fmt.Errorf("admin.accounts: %w", err)
	}
	if cfg.Cert != "" {
		if s.cert, err = certificate.Open(cfg.Cert, cfg.Key, "the admin page", "", cfg.Log); err != nil {
			return nil, err
		}
	}
	if s.audit, err = openAudit(cfg.StateDir, cfg.Log); err != nil {
		return nil, err
	}
	if s.usage, err = openUsage(cfg.StateDir, cfg.Log); err != nil {
		return nil, errors.Join(err, s.audit.close())
	}
	s.findings.read = cfg.Findings
	s.handler, err = s.routes()
	return s, err
}

// Close writes the usage, and closes the audit log.
func (s *Server) Close() error { return errors.Join(s.usage.save(), s.audit.close()) }

// Reload has the accounts and the certificate read again at once.
func (s *Server) Reload() {
	if s.cert != nil {
		s.cert.Recheck()
	}
	s.operators.State()
}

// State is what gatewayd status says of the page.
func (s *Server) State() control.AdminPage {
	a := control.AdminPage{Listen: s.cfg.Listen, Accounts: s.operators.State().Number}
	if problem := s.operators.State().Problem; problem != nil {
		a.Problem = problem.Error()
	}
	if err := s.unfit(); err != nil {
		a.Closed = err.Error()
	} else if why := s.closed.Load(); why != nil {
		a.Closed = *why
	}
	return a
}

// unfit is why the certificate must not be used; nil: it may, or there is none.
func (s *Server) unfit() error {
	if s.cert == nil {
		return nil
	}
	return s.cert.Valid()
}

// follow keeps accounts and usage up to date until ctx ends.
func (s *Server) follow(ctx context.Context) {
	if err := s.unfit(); err != nil {
		s.expired(err)
	}
	every := time.NewTicker(sampleEvery)
	defer every.Stop()
	s.sample()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			s.sample()
			if err := s.unfit(); err != nil {
				s.expired(err)
			}
		}
	}
}

// sample adds the traffic since the last time to the usage.
func (s *Server) sample() {
	if err := s.usage.add(time.Now(), s.cfg.Answers.Status()); err != nil {
		s.log.Warn("the usage of networks is not kept: free space at state_dir", "err", err)
	}
}

// expired says once in a while that the certificate is not used.
func (s *Server) expired(err error) {
	now := time.Now().Unix()
	if last := s.toldAt.Load(); now-last >= int64(toldEvery/time.Second) && s.toldAt.CompareAndSwap(last, now) {
		s.log.Error("the admin page lets nobody in", "err", err)
	}
}

const toldEvery = time.Minute
