// Package uam lets a portal elsewhere, made for CoovaChilli, log clients in: it speaks CoovaChilli's protocol of
// redirects, challenges and answers, the "universal access method".
//
//	client ── GET http://anything/ ─────────▶ gateway
//	       ◀─ 302 PORTAL?res=notyet&uamip=…&challenge=…&md=… ─
//	       ── name and password ────────────▶ the portal, which knows the secret
//	       ◀─ 302 http://uamip:uamport/logon?username=…&response=… ─
//	       ── GET /logon?… ─────────────────▶ gateway ── Authenticator, Sessions.Admit
//	       ◀─ 302 PORTAL?res=success&… ─────
//
// The protocol, as CoovaChilli 1.7 speaks it: names and meanings of parameters are facts of its source (src/redir.c,
// src/session.c). Requests are GET with a query: /logon, /logoff, /prelogin, /status and /abort are answered with a
// redirect to the portal; below /json/ they are answered with JSON. A client is known by its address, as everywhere in
// the gateway, and by nothing in its requests.
//
// Differences, all of them for safety: a challenge is used once; nobody is ever sent elsewhere than to the portal; JSON
// as a script ("callback") and passwords over plain HTTP are off unless the configuration says otherwise.
package uam

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/guesses"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// Sessions is the table of clients, as the portal's.
type Sessions interface {
	Get(netip.Addr) (session.Session, bool)
	Admit(netip.Addr, session.Login) (session.Session, error)
	End(netip.Addr, session.Cause) (session.Session, error)
}

// Authenticator checks credentials, as the portal's.
type Authenticator interface {
	Authenticate(context.Context, session.Credentials) (session.Login, error)
}

// Scheme is how a portal sends a client's proof of its password.
type Scheme string

const (
	// CHAP is MD5 of an identifier, the password and the challenge (RFC 1994), of which the server needs the plain
	// password. The challenge is that of the redirect, hashed with the secret.
	CHAP Scheme = "chap"
	// MSCHAPv2 is the response of RFC 2759 to the same challenge ("ntresponse").
	MSCHAPv2 Scheme = "mschapv2"
	// PAP is the password, exclusive-or'ed with the challenge hashed with the secret.
	PAP Scheme = "pap"
	// Plain is the password itself.
	Plain Scheme = "plain"
)

// Schemes are all schemes.
var Schemes = []Scheme{CHAP, MSCHAPv2, PAP, Plain}

// Config is the configuration. Needed are PortalURL, Address and Schemes.
type Config struct {
	PortalURL string // of the portal, http or https, perhaps with a query
	Secret    string // shared with the portal ("uamsecret"); empty: none, and redirects have no checksum
	NASID     string // tells the portal which gateway this is
	Called    string // the gateway's MAC address, "02-00-00-00-00-01"
	Location  string // the place's name
	// Address is the gateway's for plain HTTP, "10.1.0.1:3990"; IPv4. Address6 is its IPv6 address, or zero.
	Address  netip.AddrPort
	Address6 netip.Addr
	// Secure is the URL of the same over https, "https://portal.example:4990/"; empty: there is none.
	Secure  string
	Schemes []Scheme
	HTTP    bool // passwords may come over plain HTTP too, in a scheme other than Plain
	Script  bool // JSON may be called as a script ("callback"), which any page that the client opens can do
	Guard   *guesses.Guard
	Log     *slog.Logger
}

// Server answers clients that a portal elsewhere sends. Create it with New.
type Server struct {
	cfg        Config
	portal     *url.URL
	sessions   Sessions
	auth       Authenticator
	log        *slog.Logger
	challenges challenges
	counters   counters
	overHTTP   budget.OncePerMinute // messages of logins over plain HTTP
}

// Stats are counts since New.
type Stats struct {
	Logins      uint64 // clients admitted
	Rejected    uint64 // wrong passwords, and requests that had none
	Unavailable uint64 // logins that could not be decided
	Failed      uint64 // logins that were accepted, and logouts, that the gateway could not carry out
	BackedOff   uint64 // logins too soon after wrong passwords
	Stale       uint64 // logins that answered no challenge, or one that was too old
	Logouts     uint64 // sessions ended by their client
}

// counters are the live counters behind Stats.
type counters struct {
	logins, rejected, unavailable, failed, backedOff, stale, logouts atomic.Uint64
}

// Stats reads the counters.
func (s *Server) Stats() Stats {
	c := &s.counters
	return Stats{c.logins.Load(), c.rejected.Load(), c.unavailable.Load(), c.failed.Load(), c.backedOff.Load(),
		c.stale.Load(), c.logouts.Load()}
}

// New checks cfg.
func New(cfg Config, sessions Sessions, auth Authenticator) (*Server, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("uam: "+format, args...)) }
	portal, err := url.Parse(cfg.PortalURL)
	if err != nil || portal.Scheme != "http" && portal.Scheme != "https" || portal.Host == "" || portal.User != nil ||
		portal.Fragment != "" {
		bad("portal %q: give a complete http or https URL", cfg.PortalURL)
	}
	if !cfg.Address.Addr().Is4() || cfg.Address.Port() == 0 {
		bad("address %q: give the gateway's IPv4 address and a port", cfg.Address)
	}
	for _, one := range cfg.Schemes {
		if !slices.Contains(Schemes, one) {
			bad("scheme %q is unknown", one)
		}
	}
	if len(cfg.Schemes) == 0 || cfg.has(PAP) && cfg.has(Plain) {
		bad("schemes %v: give one at least, and not both pap and plain, whose requests look the same", cfg.Schemes)
	}
	if auth == nil {
		bad("nobody knows the users")
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if cfg.Guard == nil {
		cfg.Guard = &guesses.Guard{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Server{cfg: cfg, portal: portal, sessions: sessions, auth: auth, log: cfg.Log}, nil
}

func (c *Config) has(s Scheme) bool { return slices.Contains(c.Schemes, s) }

// challenged reports whether any scheme answers a challenge.
func (c *Config) challenged() bool {
	return slices.ContainsFunc(c.Schemes, func(s Scheme) bool { return s != Plain })
}

// client returns a client's entry as it is now.
func (s *Server) client(addr netip.Addr) (session.Session, bool) {
	one, ok := s.sessions.Get(addr)
	return one.At(time.Now()), ok
}

// uamIP is the gateway's address for a client: of IPv6 only for a client that has no other.
func (s *Server) uamIP(key session.Key) string {
	if key.Addr.Is6() && !key.Addr.Is4In6() && s.cfg.Address6.IsValid() {
		return "[" + s.cfg.Address6.String() + "]"
	}
	return s.cfg.Address.Addr().String()
}

// base is the prefix of the gateway's URLs for a client, over https where there is one.
func (s *Server) base(key session.Key) string {
	if s.cfg.Secure != "" {
		return strings.TrimSuffix(s.cfg.Secure, "/")
	}
	return fmt.Sprintf("http://%s:%d", s.uamIP(key), s.cfg.Address.Port())
}
