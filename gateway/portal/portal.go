// Package portal is the web side of the captive portal: it redirects clients before login, logs them in and out, shows
// what remains of their session, and answers the probes by which operating systems detect a captive portal.
//
//	client ── GET http://anything/ ──▶ data path ──▶ Listen's socket
//	       ◀─ 302 Location: BASE/login?url=… ───────  captured: not our address, or not our Host
//	       ── GET /login, POST /login ───────────▶  Authenticator, Sessions.Admit
//	       ◀─ 303 /status ──────────────────────────
//
// The data path hands over connections of unauthenticated clients to port 80 of any address: such a connection's local
// address is that of the requested site. A client is identified by the remote address of its connection, which the data
// path ties to a MAC, and by nothing in its requests.
//
// Paths: /login, /status and /logout for people; /api/captive-portal for devices (RFC 8908). With TLS the pages are
// served over https only, and the API over https and over plain HTTP; devices that got its URL by DHCP option 114 or a
// router advertisement (RFC 8910, 2) use https only.
package portal

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/certificate"
	"github.com/gateweigh/gateweigh/gateway/guesses"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/uam"
	"github.com/gateweigh/gateweigh/gateway/weblink"
)

// Sessions is the table of clients. Its methods may be called at any time from several goroutines.
type Sessions interface {
	// Get returns a client's entry, with its counts up to now.
	Get(netip.Addr) (session.Session, bool)
	// Shown records that a client was redirected to the portal.
	Shown(netip.Addr) error
	// Admit starts a session. On error the client is as it was.
	Admit(netip.Addr, session.Login) (session.Session, error)
	// End ends a client's session; the client has to log in again.
	End(netip.Addr, session.Cause) (session.Session, error)
}

// Authenticator checks credentials. An error that has, anywhere in its chain, a method RejectMessage() string means
// that the credentials are wrong; its message, if any, is for the user. Any other error means that the credentials
// could not be checked. It ends in reasonable time by itself: a client waits for it.
type Authenticator interface {
	Authenticate(context.Context, Credentials) (session.Login, error)
}

// rejected is implemented by an Authenticator's error when the credentials are wrong.
type rejected interface{ RejectMessage() string }

// Credentials are a client's user name and password. User has 1 to 253 bytes of UTF-8 without control characters (RFC
// 2865, 5.1), Password 1 to 128 bytes (5.2).
type Credentials = session.Credentials

// Config is the portal's configuration. Zero values are usable except for Address and Methods.
type Config struct {
	// Address is the portal's own on the LAN, "10.1.0.1:8080"; IPv4.
	Address netip.AddrPort
	// Address6 is its IPv6 address, with the ports of Address and TLS; zero: IPv6 clients have no portal.
	Address6 netip.Addr
	// Name is a host name that clients resolve to Address, "portal.example"; empty: links use the address. The address
	// always works.
	Name string
	// TLS serves the pages over https; the zero value: plain HTTP only.
	TLS TLS
	// Methods are the ways to log in; at least one.
	Methods Methods
	// RememberDays is for how many days a person may have the device logged in again; 0: the login page does not ask.
	RememberDays int
	// Terms are shown on the login page: plain text, paragraphs separated by empty lines.
	Terms string
	// Title is the network's name; default "Wi-Fi".
	Title string
	// SuccessURL is where clients are sent after login; empty: the status page.
	SuccessURL string
	// VenueURL is a page about the place, for devices that show it (RFC 8908, 5).
	VenueURL string
	// Templates is a folder whose login.html, status.html, logout.html, error.html, layout.html and style.css replace the
	// built-in ones, each if it exists. They are html/template files that are executed with a Page.
	Templates string
	// Key protects the forms against other sites: 32 random bytes or more, kept over restarts. Empty: a new random key, so
	// that a form loaded before a restart must be sent twice.
	Key []byte
	// MaxConns bounds open connections: some 2 KiB each between two requests, 14 KiB over TLS, and 40 KiB meanwhile;
	// default 10,000, or half of the files that the process may open. MaxConnsPerClient bounds those of one client;
	// default 64, and an eighth of it while half of all are in use. When all are in use, a new connection replaces the
	// one whose client the portal has waited for longest, or waits as long as others end.
	MaxConns, MaxConnsPerClient int
	waitAtMost                  time.Duration // how long new connections wait although none ends; 0: defaultPatience
	// Click is what clients accept and say that come in by a click.
	Click Click
	// Guard counts wrong passwords; nil: one of the portal's own.
	Guard *guesses.Guard
	// VoucherUsers begins the users of sessions that vouchers admit, and UserOfCode is the user of a voucher with a code
	// as typed, "" of none. Needed with Methods.Voucher.
	VoucherUsers string
	UserOfCode   func(typed string) string
	// WISPr lets smart clients log in, by name and password; it needs TLS.
	WISPr bool
	// Elsewhere speaks with a portal elsewhere, to which clients are sent instead of the login page. It answers all
	// requests for the portal but those of the API. Nil: there is none.
	Elsewhere *uam.Server
	// Providers are the OpenID providers at which clients log in; nil: none. They need TLS and Name.
	Providers Providers
	// Log is slog.Default() when nil.
	Log *slog.Logger
}

// TLS is how the pages are served over https.
type TLS struct {
	// Address is the portal's for https, "10.1.0.1:8443".
	Address netip.AddrPort
	// Cert and Key are PEM files. The certificate must be valid for Config.Name, or for the address without a name; a
	// renewed one is loaded within a minute.
	Cert, Key string
}

// Methods are the ways to log in.
type Methods struct {
	// Login accepts user name and password.
	Login bool
	// Voucher accepts the codes of vouchers.
	Voucher bool
	// ClickThrough admits clients that accept the terms, as Guest.
	ClickThrough bool
	// Guest is the login of a click-through client; its User is "guest" when empty.
	Guest session.Login
}

// Portal answers clients. Create it with New.
type Portal struct {
	cfg      Config
	sessions Sessions
	auth     Authenticator
	log      *slog.Logger
	pages    *pages
	tokens   tokens
	guard    *guesses.Guard
	cert     *certificate.Certificate // nil: plain HTTP only
	mux      *http.ServeMux
	counters counters

	manyCodes                budget.OncePerMinute    // messages of too many wrong codes
	buttonTries, answerTries budget.Senders[[6]byte] // devices' buttons, and answers of providers
	// Messages of logins at providers: too many are open, an answer is for none, a provider is away, or a login failed.
	manyLogins, staleLogins, awayProviders, failedProviders budget.OncePerMinute

	terms        []string  // paragraphs
	termsVersion string    // of them; empty: there are none
	forms        formPages // login pages without the token

	site4, site6 familySite // site6 is zero without Address6
	pageHints    []header   // headers of every page
}

// header is a header field and its value as net/http keeps it, so that sending it costs no allocation.
type header struct {
	name  string
	value []string
}

// defaults of Config.
const (
	defaultConns          = 10_000
	defaultConnsPerClient = 64
	defaultTitle          = "Wi-Fi"
	defaultGuest          = "guest"
	minKeyBytes           = 32
)

// New checks cfg and reads its files; it opens no socket. auth may be nil when Methods.Login is false.
func New(cfg Config, sessions Sessions, auth Authenticator) (*Portal, error) {
	if err := errors.Join(cfg.check(auth), cfg.checkWISPr()); err != nil {
		return nil, fmt.Errorf("portal: %w", err)
	}
	cfg.setDefaults()
	p := &Portal{cfg: cfg, sessions: sessions, auth: auth, log: cfg.Log, guard: cfg.Guard}
	p.tokens.set(cfg.Key)
	for _, tries := range []*budget.Senders[[6]byte]{&p.buttonTries, &p.answerTries} {
		tries.Rate, tries.Size = providerRate, providerDevices
	}
	p.setSites()
	var err error
	if p.pages, err = readPages(cfg.Templates); err != nil {
		return nil, ofPortal(err)
	}
	if cfg.TLS != (TLS{}) {
		if p.cert, err = certificate.Open(cfg.TLS.Cert, cfg.TLS.Key, "the portal", p.host(), cfg.Log); err != nil {
			return nil, fmt.Errorf("portal: %w", err)
		}
	}
	p.pageHints = pageHeaders(p.pages.styleHash, cfg.SuccessURL, cfg.Methods.Voucher)
	p.terms = paragraphs(cfg.Terms)
	p.termsVersion = versionOf(p.terms)
	p.forms = p.makeFormPages()
	p.mux = p.routes()
	return p, nil
}

// check returns all mistakes.
func (c *Config) check(auth Authenticator) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !ownAddress(c.Address) {
		bad("address %q: give the portal's own IPv4 address and port, such as 10.1.0.1:8080", c.Address)
	}
	if c.Name != "" && (!weblink.ValidHost(c.Name) || net.ParseIP(c.Name) != nil) {
		bad("name %q is not a host name", c.Name)
	}
	if c.TLS != (TLS{}) {
		if !ownAddress(c.TLS.Address) || c.TLS.Address == c.Address {
			bad("tls address %q: give an IPv4 address and port of its own, such as 10.1.0.1:8443", c.TLS.Address)
		}
		if c.TLS.Cert == "" || c.TLS.Key == "" {
			bad("tls: name both the certificate's and the key's file")
		}
	}
	if a := c.Address6; a.IsValid() && (!a.Is6() || a.Is4In6() || a.IsUnspecified()) {
		bad("address %q: give an IPv6 address", a)
	}
	if !c.Methods.Login && !c.Methods.ClickThrough && !c.Methods.Voucher && c.Providers == nil {
		bad("no method to log in: turn on login, vouchers or click-through")
	}
	if c.Providers != nil && (c.TLS == (TLS{}) || c.Name == "") {
		bad("providers send clients back by https to a name: give a certificate and a name")
	}
	for _, ask := range c.Click.Ask {
		if _, known := clickFields[ask.Field]; !known || ask.Field == FieldRoom && c.Click.Room == nil {
			bad("the click asks for %q, which nothing knows", ask.Field)
		}
	}
	if (c.Methods.Login || c.Methods.Voucher) && auth == nil {
		bad("login needs somebody who knows the users: configure RADIUS, a users file or vouchers")
	}
	for name, link := range map[string]string{"success URL": c.SuccessURL, "venue URL": c.VenueURL} {
		if _, ok := weblink.Parse(link); link != "" && !ok {
			bad("%s %q: give a complete http or https URL", name, link)
		}
	}
	if len(c.Key) > 0 && len(c.Key) < minKeyBytes {
		bad("key of %d bytes is guessable: give %d or more", len(c.Key), minKeyBytes)
	}
	if c.MaxConns < 0 || c.MaxConnsPerClient < 0 {
		bad("numbers of connections below zero: %d and %d", c.MaxConns, c.MaxConnsPerClient)
	}
	return errors.Join(errs...)
}

// ownAddress reports whether an address is usable for the portal.
func ownAddress(a netip.AddrPort) bool {
	return a.Addr().Is4() && !a.Addr().IsUnspecified() && a.Port() != 0
}

// connsWith is how many connections are open at most in a process that may open so many files: the other half is for
// everything else, such as sockets of RADIUS and DNS.
func connsWith(files uint64) int { return int(min(defaultConns, files/2)) }

// openFiles is how many files the process may open. Go has raised the soft limit.
func openFiles() uint64 {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return unix.RLIM_INFINITY
	}
	return l.Cur
}

func (c *Config) setDefaults() {
	if c.waitAtMost == 0 {
		c.waitAtMost = defaultPatience
	}
	if c.MaxConns == 0 {
		c.MaxConns = connsWith(openFiles())
	}
	if c.MaxConnsPerClient == 0 {
		c.MaxConnsPerClient = defaultConnsPerClient
	}
	if c.Title == "" {
		c.Title = defaultTitle
	}
	if c.Methods.Guest.User == "" {
		c.Methods.Guest.User = defaultGuest
	}
	c.Methods.Guest.Shared = true
	if c.Guard == nil {
		c.Guard = &guesses.Guard{}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if len(c.Key) == 0 {
		c.Key = make([]byte, minKeyBytes)
		rand.Read(c.Key) // never fails
	}
	c.Name = strings.ToLower(c.Name)
}

// SetKey replaces Config.Key. Forms and cookies that were made with former keys stay valid until the portal ends.
func (p *Portal) SetKey(secret []byte) { p.tokens.set(secret) }

// host is the portal's host in links.
func (p *Portal) host() string {
	switch {
	case p.cfg.Name != "":
		return p.cfg.Name
	case p.cfg.TLS != (TLS{}):
		return p.cfg.TLS.Address.Addr().String()
	}
	return p.cfg.Address.Addr().String()
}

// APIURL is the value of DHCP option 114 (RFC 8910, 2). It is empty without TLS, which devices require.
func (p *Portal) APIURL() string { return p.apiURL(&p.site4) }

// APIURL6 is APIURL for clients of IPv6, in router advertisements and DHCPv6; empty also without an IPv6 address.
func (p *Portal) APIURL6() string { return p.apiURL(&p.site6) }

func (p *Portal) apiURL(s *familySite) string {
	if p.cert == nil || !s.addr.IsValid() {
		return ""
	}
	return s.base + apiPath
}

// routes returns the handlers of the portal's own paths. Captured requests are answered earlier.
func (p *Portal) routes() *http.ServeMux {
	m := http.NewServeMux()
	m.HandleFunc("GET /{$}", p.getHome)
	m.HandleFunc("GET /login", p.getLogin)
	m.HandleFunc("POST /login", p.postLogin)
	m.HandleFunc("GET "+callbackPath("{provider}"), p.getCallback)
	m.HandleFunc("GET /status", p.getStatus)
	m.HandleFunc("GET /logout", p.getLogout)
	m.HandleFunc("POST /logout", p.postLogout)
	m.HandleFunc("GET "+apiPath, p.getAPI)
	m.HandleFunc("GET "+themePath, func(w http.ResponseWriter, r *http.Request) { p.pages.images.serve(w, r, p.notFound) })
	if p.cfg.WISPr {
		p.wisprRoutes(m)
	}
	m.HandleFunc("GET /", p.notFound)
	return m
}

// pageHeaders restricts pages to being shown and sending their forms. Browsers also apply form-action to the redirect
// after a form, so the success URL must be listed.
func pageHeaders(styleHash, successURL string, vouchers bool) []header {
	policy := "default-src 'none'; style-src '" + styleHash +
		"'; img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"
	if vouchers {
		policy = "script-src '" + voucherScriptHash() + "'; " + policy
	}
	if u, err := url.Parse(successURL); err == nil && u.Host != "" {
		policy += " " + u.Scheme + "://" + u.Host
	}
	return []header{
		{"Content-Security-Policy", []string{policy}},
		{"X-Content-Type-Options", []string{"nosniff"}},
		{"X-Frame-Options", []string{"DENY"}},
		{"Referrer-Policy", []string{"same-origin"}},
		{"Cache-Control", []string{"no-store"}},
	}
}
