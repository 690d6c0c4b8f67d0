// Package oidc logs clients in at OpenID providers (OpenID Connect Core 1.0), by the authorization code flow with PKCE
// (RFC 7636), state and nonce.
//
//	client ── the button ──▶ Begin: state, nonce, verifier; opens the provider's hosts for the device
//	       ◀─ to the provider's page ──
//	       ── logs in there, comes back with a code ──▶ Finish: code ▶ tokens ▶ claims ▶ session.Login; closes the hosts
//
// The gateway asks the provider itself, for its metadata, keys, tokens and claims. A state is good for one use, for the
// device and the browser that pressed the button, and for a limited time. States are in memory: a restart forgets them,
// and people press the button again.
package oidc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// Provider is a provider as the operator configures it. Name, Issuer and ClientID are required.
type Provider struct {
	Name, Label  string // of the callback's path, and of the button
	Issuer       string // https
	ClientID     string
	ClientSecret string   // "": a public client
	Scopes       []string // beside openid
	CAFile       string   // PEM; "": the system's certificate authorities
	// UserClaim is the claim that names the user; "": email if it is verified, otherwise sub.
	UserClaim string
	// Domains are those of which the e-mail address must be, and verified; none: any, or no address.
	Domains []string
	// RequiredClaim must have one of RequiredValues; "": nothing is required.
	RequiredClaim  string
	RequiredValues []string
	// Profile names the limits; ProfileClaim is a claim that names them instead, where Profile is for users whose claim
	// names none. Both "": no limits of the provider's own.
	Profile, ProfileClaim string
	SessionTimeout        time.Duration // 0: that of the profile
	LoginTime             time.Duration // how long a login may take; 0: DefaultLoginTime
	// Garden are names that the provider's pages need, beside the authorization endpoint's: "cdn.example.org",
	// "*.example.org".
	Garden []string
	// RedirectURL is the portal's URL for this provider's answers.
	RedirectURL string
}

// Profile is limits with a name.
type Profile struct {
	Limits   session.Limits
	Sessions int // at once of a user; 0: any number
}

// Host is a name, or the names of a pattern, that a client may reach, with a port of TCP.
type Host struct {
	Pattern string // as in Provider.Garden
	Port    uint16
}

// Visit is a host that a client may reach until a time.
type Visit struct {
	Host  Host
	Until time.Time
}

// Visitors lets clients that are not logged in reach hosts.
type Visitors interface {
	// Watch has the addresses of hosts remembered that answers to clients have, from now on.
	Watch([]Host)
	// Prepare finds out the addresses of hosts, in reasonable time. Those that it cannot find are no error: the client's
	// own questions may show them.
	Prepare(context.Context, []Host)
	// Allow replaces what a device may reach. Hosts that come first matter most, where not all can be open. An error means
	// that something of it may be closed that should be open, never the opposite.
	Allow(mac [6]byte, visits []Visit) error
}

// Reasons for which a login ends without a user. Other errors are the gateway's or the provider's own faults.
var (
	// ErrStale means that there is no open login for an answer: it took too long, was answered already, or began on
	// another device or in another browser.
	ErrStale = errors.New("no open login of this device and browser has this state")
	// ErrDenied means that the provider says that the user did not log in (RFC 6749, 4.1.2.1).
	ErrDenied = errors.New("the provider did not log the user in")
	// ErrAway means that the provider does not answer, or cannot at present.
	ErrAway = errors.New("the provider does not answer")
	// ErrBusy means that too many logins are open.
	ErrBusy = errors.New("too many logins are open")
	// ErrUnknown means that there is no such provider.
	ErrUnknown = errors.New("no such provider")
	// ErrClock means that this machine's clock and the provider's differ, so that no token can be judged.
	ErrClock = errors.New("the clocks differ")
)

// Config is the configuration of a Desk. Zero values of times and numbers are their defaults.
type Config struct {
	Providers []Provider
	Profiles  map[string]Profile
	Visitors  Visitors
	// PerDevice bounds the logins of a device that are open at once, and Devices the devices that have some; default 4 and
	// DefaultDevices.
	PerDevice, Devices int
	// Now is the clock that tokens are judged by; nil: time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// Desk takes clients' logins. Create it with New, and call Run.
type Desk struct {
	cfg       Config
	providers []*provider
	logins    logins
}

// Defaults of Config.
const (
	DefaultLoginTime = 10 * time.Minute
	DefaultDevices   = 1024
	defaultPerDevice = 4
)

// New reads the providers' files. It asks no provider.
func New(cfg Config) (*Desk, error) {
	if cfg.PerDevice == 0 {
		cfg.PerDevice = defaultPerDevice
	}
	if cfg.Devices == 0 {
		cfg.Devices = DefaultDevices
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	d := &Desk{cfg: cfg, logins: newLogins(cfg)}
	for _, c := range cfg.Providers {
		c.LoginTime = cmp.Or(c.LoginTime, DefaultLoginTime)
		p, err := newProvider(c, cfg.Visitors, cfg.Log)
		if err != nil {
			return nil, fmt.Errorf("provider %q: %w", c.Name, err)
		}
		d.providers = append(d.providers, p)
	}
	return d, nil
}

// Button is what the login page shows of a provider.
type Button struct{ Name, Label string }

// Buttons are those of the login page, in the configuration's order.
func (d *Desk) Buttons() (all []Button) {
	for _, p := range d.providers {
		all = append(all, Button{p.cfg.Name, p.cfg.Label})
	}
	return all
}

func (d *Desk) find(name string) *provider {
	i := slices.IndexFunc(d.providers, func(p *provider) bool { return p.cfg.Name == name })
	if i < 0 {
		return nil
	}
	return d.providers[i]
}

// Run keeps the providers' metadata up to date, and ends logins that take too long, until ctx ends.
func (d *Desk) Run(ctx context.Context) error {
	done := make(chan struct{})
	for _, p := range d.providers {
		d.cfg.Visitors.Watch(p.garden(httpsPort))
		go func() { p.follow(ctx); done <- struct{}{} }()
	}
	d.logins.expire(ctx)
	for range d.providers {
		<-done
	}
	return nil
}

// Close ends the open logins of a device, which logged in otherwise.
func (d *Desk) Close(mac [6]byte) { d.logins.endAll(mac) }

// Wish is what a client wants when it presses the button.
type Wish struct {
	Provider string
	Key      session.Key
	Cookie   string // that the browser has of an earlier login, "": none
	Link     string // the page that the client asked for first
	Remember bool
}

// Begun is a login that has begun.
type Begun struct {
	URL    string // of the provider's page
	Cookie string // for the browser
}

// Begin begins a login and opens the provider's hosts for the device.
func (d *Desk) Begin(ctx context.Context, w Wish) (Begun, error) {
	p := d.find(w.Provider)
	if p == nil {
		return Begun{}, fmt.Errorf("%w: %q", ErrUnknown, w.Provider)
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	m, err := p.metadata(ctx)
	if err != nil {
		return Begun{}, fmt.Errorf("%w: %w", ErrAway, err)
	}
	hosts := p.hosts(m)
	d.cfg.Visitors.Prepare(ctx, hosts)
	l, cookie, err := d.logins.begin(p, w, hosts)
	if err != nil {
		return Begun{}, err
	}
	return Begun{URL: p.loginURL(m, l), Cookie: cookie}, nil
}

// Answer is what the provider sends by the client's browser.
type Answer struct {
	Provider string // of the path
	Key      session.Key
	Cookie   string
	Query    string // raw
}

// Done is a login that has ended well. Of a login that ended otherwise only Link and Remember are set.
type Done struct {
	Login    session.Login
	Link     string
	Remember bool
}

// Finish ends a login by the provider's answer, and closes the provider's hosts. Its errors are those of this package,
// or session.ErrUnfit for a user who may not log in here.
func (d *Desk) Finish(ctx context.Context, a Answer) (Done, error) {
	c, err := parseCallback(a.Query)
	if err != nil {
		return Done{}, fmt.Errorf("%w: %w", ErrStale, err)
	}
	p := d.find(a.Provider)
	if p == nil {
		return Done{}, fmt.Errorf("%w: %q", ErrUnknown, a.Provider)
	}
	l, err := d.logins.take(c.state, p, a)
	if err != nil {
		return Done{}, err
	}
	done := Done{Link: l.wish.Link, Remember: l.wish.Remember}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	claims, err := d.claims(ctx, p, l, c)
	d.logins.end(l)
	if err != nil {
		return done, err
	}
	done.Login, err = d.judge(p.cfg, claims)
	done.Login.For = a.Key
	return done, err
}
