package oidc

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/internal/oidctest"
)

func TestMain(m *testing.M) { netnstest.Main(m, "ip link set lo up") }

// Devices of the tests.
var (
	phone  = session.Key{MAC: [6]byte{2, 0, 0, 0, 0, 1}, Addr: netip.MustParseAddr("10.1.0.11")}
	laptop = session.Key{MAC: [6]byte{2, 0, 0, 0, 0, 2}, Addr: netip.MustParseAddr("10.1.0.12")}
)

// visits records what devices may reach.
type visits struct {
	mu      sync.Mutex
	now     map[[6]byte][]Visit // guarded by mu
	watched []string            // guarded by mu
}

func (v *visits) Watch(all []Host) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, h := range all {
		v.watched = append(v.watched, h.Pattern)
	}
}

func (v *visits) watches() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.watched)
}

func (v *visits) Prepare(context.Context, []Host) {}

func (v *visits) Allow(mac [6]byte, all []Visit) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.now == nil {
		v.now = map[[6]byte][]Visit{}
	}
	v.now[mac] = all
	return nil
}

// hosts are those that a device may reach.
func (v *visits) hosts(k session.Key) (all []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, one := range v.now[k.MAC] {
		all = append(all, one.Host.Pattern)
	}
	return all
}

var accounts = map[string]map[string]any{
	"alice": {"email": "alice@example.org", "email_verified": true, "groups": []string{"students", "gold"},
		"number": 12345678},
	"bob": {"email": "bob@elsewhere.example", "email_verified": true, "groups": "staff",
		"number": "Voucher:lobby-1"},
	"carol": {"email": "alice@example.org", "email_verified": false, "groups": []string{}},
	"dave":  {},
}

const redirectOf = "https://portal.example:8443/oidc/"

// startProvider starts a provider at which gatewayd is known as "gw" with a secret, and as the public client "public".
func startProvider(t *testing.T, port uint16, change func(*oidctest.Config)) *oidctest.Provider {
	t.Helper()
	back := []string{redirectOf + "campus/callback", redirectOf + "other/callback"}
	c := oidctest.Config{Host: "127.0.0.1", Listen: netip.MustParseAddr("127.0.0.1"), Port: port, Accounts: accounts,
		Conform: true, Clients: []oidctest.Client{
			{ID: "gw", Secret: "an obviously fake secret", RedirectURIs: back},
			{ID: "post", Secret: "an obviously fake secret", AuthMethod: "client_secret_post", RedirectURIs: back},
			{ID: "public", AuthMethod: "none", RedirectURIs: back}}}
	if change != nil {
		change(&c)
	}
	return oidctest.Start(t, c)
}

// campus is the configuration of a provider.
func campus(p *oidctest.Provider) Provider {
	return Provider{Name: "campus", Label: "Campus", Issuer: p.Issuer, ClientID: "gw",
		ClientSecret: "an obviously fake secret", Scopes: []string{"email", "groups"}, CAFile: p.Cert,
		RedirectURL: redirectOf + "campus/callback"}
}

// newDesk makes a desk with its visits.
func newDesk(t *testing.T, c Config) (*Desk, *visits) {
	t.Helper()
	v := &visits{}
	c.Visitors, c.Log = v, slog.New(slog.NewTextHandler(t.Output(), nil))
	d, err := New(c)
	netnstest.Must(t, err)
	return d, v
}

// begin presses a provider's button.
func begin(t *testing.T, d *Desk, provider string, k session.Key) Begun {
	t.Helper()
	b, err := d.Begin(t.Context(), Wish{Provider: provider, Key: k, Link: "http://some.site/"})
	netnstest.Must(t, err)
	return b
}

// finish brings an answer of the provider.
func finish(t *testing.T, d *Desk, provider string, k session.Key, b Begun, query string) (Done, error) {
	t.Helper()
	return d.Finish(t.Context(), Answer{Provider: provider, Key: k, Cookie: b.Cookie, Query: query})
}

// logIn is a whole login.
func logIn(t *testing.T, d *Desk, p *oidctest.Provider, name string) (session.Login, error) {
	t.Helper()
	b := begin(t, d, "campus", phone)
	done, err := finish(t, d, "campus", phone, b, p.LogIn(t, b.URL, name).RawQuery)
	return done.Login, err
}

// replaced is a text with one part in place of another, which it must have.
func replaced(t *testing.T, s, old, with string) string {
	t.Helper()
	if !strings.Contains(s, old) {
		t.Fatalf("%s has no %s", s, old)
	}
	return strings.Replace(s, old, with, 1)
}

// later is a clock that is so much ahead.
func later(by time.Duration) func() time.Time { return func() time.Time { return time.Now().Add(by) } }

// recorded counts requests by their path, and lets those of one path fail.
type recorded struct {
	http.RoundTripper
	fails string

	mu    sync.Mutex
	paths []string // guarded by mu
}

func (r *recorded) RoundTrip(q *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.paths = append(r.paths, q.URL.Path)
	r.mu.Unlock()
	if q.URL.Path == r.fails {
		return nil, errors.New("no way there")
	}
	return r.RoundTripper.RoundTrip(q)
}

func (r *recorded) count(path string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.paths {
		if p == path {
			n++
		}
	}
	return n
}
