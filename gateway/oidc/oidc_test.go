// Tests of logins at a real provider (main_test.go). Each presses the button, logs in at the provider's pages, and
// brings the answer back, or another one.

package oidc

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/internal/oidctest"
)

// TestLogin: the user is the verified e-mail address, the hosts are open during the login and closed after it, for each
// way in which a gateway proves to the provider who it is.
func TestLogin(t *testing.T) {
	for _, conform := range []bool{true, false} { // false: all claims are in the ID token
		p := startProvider(t, 9443, func(c *oidctest.Config) { c.Conform = conform })
		for _, id := range []string{"gw", "post", "public"} {
			c := campus(p)
			c.ClientID = id
			if id == "public" {
				c.ClientSecret = ""
			}
			d, v := newDesk(t, Config{Providers: []Provider{c}})
			b := begin(t, d, "campus", phone)
			if got := v.hosts(phone); !slices.Equal(got, []string{"127.0.0.1"}) || len(v.hosts(laptop)) > 0 {
				t.Errorf("open are %q, and for others %q", got, v.hosts(laptop))
			}
			done, err := finish(t, d, "campus", phone, b, p.LogIn(t, b.URL, "alice").RawQuery)
			if err != nil || done.Login.User != "alice@example.org" || done.Login.For != phone ||
				done.Link != "http://some.site/" {
				t.Errorf("as %s: %+v, %v", id, done, err)
			}
			if got := v.hosts(phone); len(got) > 0 {
				t.Errorf("after the login %q are open", got)
			}
		}
		p.Stop()
	}
}

// TestWhoMayLogIn: users are named by a claim, refused by conditions, and limited by profiles. Long: a table.
func TestWhoMayLogIn(t *testing.T) {
	p := startProvider(t, 9443, nil)
	gold := session.Limits{DownBps: 1e8}
	for _, c := range []struct {
		label, account string
		change         func(*Provider)
		want           string // the user; "": refused
		limits         session.Limits
	}{
		{"an address that is not verified", "carol", nil, "carol", session.Limits{}},
		{"no address", "dave", nil, "dave", session.Limits{}},
		{"a claim", "alice", func(p *Provider) { p.UserClaim = "sub" }, "alice", session.Limits{}},
		{"a claim that is a number", "alice", func(p *Provider) { p.UserClaim = "number" }, "12345678", session.Limits{}},
		{"the address, which is not verified", "carol", func(p *Provider) { p.UserClaim = "email" }, "", session.Limits{}},
		{"the address", "alice", func(p *Provider) { p.UserClaim = "email" }, "alice@example.org", session.Limits{}},
		{"a claim that names a voucher's user", "bob", func(p *Provider) { p.UserClaim = "number" }, "", session.Limits{}},
		{"a claim that is missing", "alice", func(p *Provider) { p.UserClaim = "nick" }, "", session.Limits{}},
		{"the domain", "alice", func(p *Provider) { p.Domains = []string{"EXAMPLE.org"} }, "alice@example.org",
			session.Limits{}},
		{"another domain", "bob", func(p *Provider) { p.Domains = []string{"example.org"} }, "", session.Limits{}},
		{"a domain of an address that is not verified", "carol", func(p *Provider) { p.Domains = []string{"example.org"} },
			"", session.Limits{}},
		{"a group", "alice",
			func(p *Provider) { p.RequiredClaim, p.RequiredValues = "groups", []string{"a", "students"} },
			"alice@example.org", session.Limits{}},
		{"a group that is a text", "bob",
			func(p *Provider) { p.RequiredClaim, p.RequiredValues = "groups", []string{"staff"} },
			"bob@elsewhere.example", session.Limits{}},
		{"another group", "bob", func(p *Provider) { p.RequiredClaim, p.RequiredValues = "groups", []string{"students"} },
			"", session.Limits{}},
		{"a profile", "bob", func(p *Provider) { p.Profile = "gold" }, "bob@elsewhere.example", gold},
		{"a profile of a claim, and a time", "alice", func(p *Provider) {
			p.ProfileClaim, p.SessionTimeout = "groups", time.Hour
		}, "alice@example.org", session.Limits{DownBps: 1e8, SessionTimeout: time.Hour}},
		{"no profile of a claim", "bob", func(p *Provider) { p.ProfileClaim = "groups" }, "", session.Limits{}},
	} {
		t.Run(c.label, func(t *testing.T) {
			config := campus(p)
			if c.change != nil {
				c.change(&config)
			}
			d, _ := newDesk(t, Config{Providers: []Provider{config}, Profiles: map[string]Profile{"gold": {Limits: gold}}})
			login, err := logIn(t, d, p, c.account)
			if c.want == "" && !errors.Is(err, session.ErrUnfit) || c.want != "" && err != nil ||
				login.User != c.want || login.Limits != c.limits {
				t.Errorf("%+v, %v", login, err)
			}
		})
	}
}

// TestForeignAnswers: an answer is good once, for the device and the browser that pressed the button, from the provider
// whose button it was. Long: the steps of one run, each of which needs the logins that those before left.
func TestForeignAnswers(t *testing.T) {
	p := startProvider(t, 9443, nil)
	q := startProvider(t, 9444, nil)
	other := campus(q)
	other.Name, other.RedirectURL = "other", redirectOf+"other/callback"
	d, v := newDesk(t, Config{Providers: []Provider{campus(p), other}})
	stale := func(label string, provider string, k session.Key, b Begun, query string) {
		t.Helper()
		done, err := finish(t, d, provider, k, b, query)
		if !errors.Is(err, ErrStale) || done.Login.User != "" {
			t.Errorf("%s: %+v, %v", label, done, err)
		}
	}
	b := begin(t, d, "campus", phone)
	answer := p.LogIn(t, b.URL, "alice").RawQuery
	stale("another device", "campus", laptop, b, answer)
	stale("the device with another address", "campus", session.Key{MAC: phone.MAC, Addr: laptop.Addr}, b, answer)
	stale("another browser", "campus", phone, begin(t, d, "campus", laptop), answer)
	stale("no cookie", "campus", phone, Begun{}, answer)
	if _, err := finish(t, d, "campus", phone, b, answer); err != nil {
		t.Errorf("after all these: %v", err) // a stranger's answer does not end the login
	}
	stale("a second time, with a code that is new", "campus", phone, b, p.LogIn(t, b.URL, "alice").RawQuery)
	stale("a state of nobody", "campus", phone, b, "code=x&state="+secret())

	one, two := begin(t, d, "campus", phone), begin(t, d, "campus", phone)
	first, err := url.ParseQuery(p.LogIn(t, one.URL, "alice").RawQuery)
	netnstest.Must(t, err)
	second, err := url.ParseQuery(p.LogIn(t, two.URL, "bob").RawQuery)
	netnstest.Must(t, err)
	second.Set("code", first.Get("code"))
	stale("another login's code", "campus", phone, two, second.Encode())

	b = begin(t, d, "campus", phone)
	stale("a provider's answer at the other's path", "other", phone, b, p.LogIn(t, b.URL, "alice").RawQuery)
	b = begin(t, d, "campus", phone)
	answer = p.LogIn(t, b.URL, "alice").RawQuery
	stale("with the other provider as issuer", "campus", phone, b,
		replaced(t, answer, url.QueryEscape(p.Issuer), url.QueryEscape(q.Issuer)))
	b = begin(t, d, "campus", phone)
	stale("without the issuer", "campus", phone, b,
		replaced(t, p.LogIn(t, b.URL, "alice").RawQuery, "iss="+url.QueryEscape(p.Issuer), "x=y"))

	b = begin(t, d, "campus", phone)
	forged, err := url.Parse(b.URL)
	netnstest.Must(t, err)
	values := forged.Query()
	values.Set("nonce", secret())
	forged.RawQuery = values.Encode()
	done, err := finish(t, d, "campus", phone, b, p.LogIn(t, forged.String(), "alice").RawQuery)
	if err == nil || !strings.Contains(err.Error(), "nonce") || done.Login.User != "" {
		t.Errorf("another nonce: %+v, %v", done, err)
	}
	d.Close(phone.MAC)
	if got := v.hosts(phone); len(got) > 0 {
		t.Errorf("in the end %q are open", got)
	}
}

// TestCancelled: the provider's error ends the login, and closes the hosts.
func TestCancelled(t *testing.T) {
	p := startProvider(t, 9443, nil)
	d, v := newDesk(t, Config{Providers: []Provider{campus(p)}})
	login, err := logIn(t, d, p, "")
	if !errors.Is(err, ErrDenied) || login.User != "" || !strings.Contains(err.Error(), "access_denied") {
		t.Errorf("%+v, %v", login, err)
	}
	if got := v.hosts(phone); len(got) > 0 {
		t.Errorf("%q are open", got)
	}
}

// TestClocks: with a clock that is wrong nobody logs in, and the error says whose clock is how wrong.
func TestClocks(t *testing.T) {
	p := startProvider(t, 9443, nil)
	short := startProvider(t, 9444, func(c *oidctest.Config) { c.IDTokenSeconds = 1 })
	for _, c := range []struct {
		by   time.Duration
		p    *oidctest.Provider
		want string // "": it is right enough
	}{{time.Hour, p, "ago"}, {-time.Hour, p, "will make the ID token in"}, {4 * time.Minute, p, ""},
		{-4 * time.Minute, p, ""}, {4 * time.Minute, short, "has expired"}} {
		d, _ := newDesk(t, Config{Providers: []Provider{campus(c.p)}, Now: later(c.by)})
		login, err := logIn(t, d, c.p, "alice")
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) ||
			(login.User == "") != (c.want != "") {
			t.Errorf("a clock that is %s wrong: %+v, %v", c.by, login, err)
		}
		if c.by.Abs() == time.Hour && (!errors.Is(err, ErrClock) || !strings.Contains(err.Error(), "NTP")) {
			t.Errorf("a clock that is %s wrong: %v", c.by, err)
		}
	}
}

// TestProviderAway: without the provider no login begins or ends, and none with it as soon as it is there again.
func TestProviderAway(t *testing.T) {
	p := startProvider(t, 9443, nil)
	d, v := newDesk(t, Config{Providers: []Provider{campus(p)}})
	b := begin(t, d, "campus", phone)
	answer := p.LogIn(t, b.URL, "alice").RawQuery
	p.Stop()
	if _, err := finish(t, d, "campus", phone, b, answer); !errors.Is(err, ErrAway) {
		t.Errorf("an answer while the provider is away: %v", err)
	}
	if got := v.hosts(phone); len(got) > 0 {
		t.Errorf("%q are open", got)
	}
	away, _ := newDesk(t, Config{Providers: []Provider{campus(p)}})
	wish := Wish{Provider: "campus", Key: phone}
	if _, err := away.Begin(t.Context(), wish); !errors.Is(err, ErrAway) {
		t.Errorf("a button while the provider is away: %v", err)
	}
	if s := away.States()[0]; s.Name != "campus" || !s.Asked || !strings.Contains(s.Trouble, "refused") {
		t.Errorf("the state of a provider that is away: %+v", s)
	}
	again := startProvider(t, 9443, func(c *oidctest.Config) { c.Cert, c.Key = p.Cert, p.Key })
	for label, d := range map[string]*Desk{"that knew it": d, "that did not": away} {
		if login, err := logIn(t, d, again, "alice"); err != nil {
			t.Errorf("the provider is there again, for the gateway %s: %+v, %v", label, login, err)
		}
		if s := d.States()[0]; !s.Asked || s.Trouble != "" {
			t.Errorf("the state of a provider that is there again, for the gateway %s: %+v", label, s)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Begin(ctx, Wish{Provider: "nobody", Key: phone}); !errors.Is(err, ErrUnknown) {
		t.Errorf("a button that is not there: %v", err)
	}
}

// TestBounds: a device has few logins open, of which the oldest goes, and all devices together not too many.
func TestBounds(t *testing.T) {
	p := startProvider(t, 9443, nil)
	d, v := newDesk(t, Config{Providers: []Provider{campus(p)}, PerDevice: 2, Devices: 2})
	oldest := begin(t, d, "campus", phone)
	answer := p.LogIn(t, oldest.URL, "alice").RawQuery
	begin(t, d, "campus", phone)
	newest := begin(t, d, "campus", phone)
	if got := v.hosts(phone); len(got) != 2 {
		t.Errorf("open are %q", got)
	}
	if _, err := finish(t, d, "campus", phone, oldest, answer); !errors.Is(err, ErrStale) {
		t.Errorf("the oldest login: %v", err)
	}
	begin(t, d, "campus", laptop)
	third := session.Key{MAC: [6]byte{2, 0, 0, 0, 0, 3}, Addr: phone.Addr}
	if _, err := d.Begin(t.Context(), Wish{Provider: "campus", Key: third}); !errors.Is(err, ErrBusy) {
		t.Errorf("a third device: %v", err)
	}
	if _, err := finish(t, d, "campus", phone, newest, p.LogIn(t, newest.URL, "alice").RawQuery); err != nil {
		t.Errorf("the newest login: %v", err)
	}
	d.Close(phone.MAC)
	if _, err := d.Begin(t.Context(), Wish{Provider: "campus", Key: third}); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}

// TestTooLong: a login that takes too long is over, and its hosts are closed, also if nobody comes back.
func TestTooLong(t *testing.T) {
	p := startProvider(t, 9443, nil)
	c := campus(p)
	c.LoginTime = time.Second
	d, v := newDesk(t, Config{Providers: []Provider{c}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- d.Run(ctx) }()
	b := begin(t, d, "campus", phone)
	netnstest.Await(t, "the end of the login", func() error {
		if got := v.hosts(phone); len(got) > 0 {
			return errors.New(strings.Join(got, " "))
		}
		return nil
	})
	u, err := url.Parse(b.URL)
	netnstest.Must(t, err)
	if _, err := finish(t, d, "campus", phone, b, "code=x&state="+u.Query().Get("state")); !errors.Is(err, ErrStale) {
		t.Errorf("an answer that is late: %v", err)
	}
	cancel()
	netnstest.Must(t, <-ended)
}

// TestKeys: the provider's keys are asked for once, and a login without them fails because the provider is away.
func TestKeys(t *testing.T) {
	p := startProvider(t, 9443, nil)
	d, _ := newDesk(t, Config{Providers: []Provider{campus(p)}})
	paths := &recorded{RoundTripper: d.providers[0].client.Transport}
	d.providers[0].client.Transport = paths
	for range 3 {
		if _, err := logIn(t, d, p, "alice"); err != nil {
			t.Fatal(err)
		}
	}
	if n := paths.count("/jwks"); n != 1 {
		t.Errorf("for three logins the keys were asked for %d times", n)
	}
	d, _ = newDesk(t, Config{Providers: []Provider{campus(p)}})
	b := begin(t, d, "campus", phone)
	answer := p.LogIn(t, b.URL, "alice").RawQuery
	d.providers[0].client.Transport = &recorded{RoundTripper: d.providers[0].client.Transport, fails: "/jwks"}
	if done, err := finish(t, d, "campus", phone, b, answer); !errors.Is(err, ErrAway) || done.Login.User != "" {
		t.Errorf("without the keys: %+v, %v", done, err)
	}
}

// TestPagesFirst: of the hosts of several logins those of the login pages come first, and all are watched as soon as
// they are known.
func TestPagesFirst(t *testing.T) {
	p := startProvider(t, 9443, nil)
	c := campus(p)
	c.Garden = []string{"*.cdn.example"}
	d, v := newDesk(t, Config{Providers: []Provider{c}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- d.Run(ctx) }()
	netnstest.Await(t, "the provider's hosts", func() error {
		if got := v.watches(); !slices.Contains(got, "127.0.0.1") || !slices.Contains(got, "*.cdn.example") {
			return errors.New(strings.Join(got, " "))
		}
		return nil
	})
	begin(t, d, "campus", phone)
	begin(t, d, "campus", phone)
	want := []string{"127.0.0.1", "127.0.0.1", "*.cdn.example", "*.cdn.example", "*.cdn.example", "*.cdn.example"}
	if got := v.hosts(phone); !slices.Equal(got, want) {
		t.Errorf("open are %q", got)
	}
	cancel()
	netnstest.Must(t, <-ended)
}
