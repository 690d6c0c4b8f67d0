// Tests of logins at a certified OpenID provider that runs in the tests' namespace. start (world_test.go) serves the
// portal, over TLS too; clientA and clientB have leases.

package portal

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/oidc"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/internal/oidctest"
)

// visitors counts what devices may reach.
type visitors struct {
	mu   sync.Mutex
	open map[[6]byte]int // guarded by mu
}

func (v *visitors) Watch([]oidc.Host) {}

func (v *visitors) Prepare(context.Context, []oidc.Host) {}

func (v *visitors) Allow(mac [6]byte, all []oidc.Visit) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open[mac] = len(all)
	return nil
}

func (v *visitors) hosts(w *world, client netip.Addr) int {
	s, _ := w.table.Get(client)
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.open[s.MAC]
}

// scene is a portal with a provider.
type scene struct {
	*world
	visitors *visitors
	provider *oidctest.Provider
	pool     *x509.CertPool
	log      *bytes.Buffer
}

// newScene starts a portal and its provider.
func newScene(t *testing.T, change func(*oidc.Config), portal Config) *scene {
	t.Helper()
	s := &scene{visitors: &visitors{open: map[[6]byte]int{}}, log: &bytes.Buffer{}}
	local := netip.MustParseAddr("127.0.0.1")
	s.provider = oidctest.Start(t, oidctest.Config{Host: local.String(), Listen: local, Port: 9443, Conform: true,
		Accounts: map[string]map[string]any{"alice": {"email": "alice@example.org", "email_verified": true}, "bob": {}},
		Clients: []oidctest.Client{{ID: "public", AuthMethod: "none", RedirectURIs: []string{
			secure + "/oidc/campus/callback"}}}})
	c := oidc.Config{Visitors: s.visitors, Log: slog.New(slog.DiscardHandler), Providers: []oidc.Provider{{Name: "campus",
		Label: "Campus & <Co>", Issuer: s.provider.Issuer, ClientID: "public", Scopes: []string{"email"},
		CAFile: s.provider.Cert, Domains: []string{"example.org"}, RedirectURL: secure + "/oidc/campus/callback"}}}
	if change != nil {
		change(&c)
	}
	desk, err := oidc.New(c)
	netnstest.Must(t, err)
	portal.Name, portal.Providers = portalName, desk
	portal.TLS, s.pool = writeCertificate(t, t.TempDir(), portalName, 1)
	portal.Log = slog.New(slog.NewTextHandler(s.log, nil))
	s.world = start(t, portal)
	return s
}

// phone is a client's browser, with its cookies.
func (s *scene) phone(t *testing.T, client netip.Addr) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	netnstest.Must(t, err)
	return &http.Client{Jar: jar, Transport: &http.Transport{DialContext: dialFrom(client), DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: s.pool}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// get and post fetch a page.
func (s *scene) get(t *testing.T, phone *http.Client, address string) reply {
	t.Helper()
	r, err := phone.Get(address)
	netnstest.Must(t, err)
	return read(t, r)
}

func (s *scene) post(t *testing.T, phone *http.Client, form url.Values) reply {
	t.Helper()
	r, err := phone.PostForm(secure+"/login", form)
	netnstest.Must(t, err)
	return read(t, r)
}

// press presses the provider's button.
func (s *scene) press(t *testing.T, phone *http.Client) reply {
	t.Helper()
	return s.pressIn(t, phone, url.Values{"method": {"oidc"}})
}

// pressIn presses it in a form with other fields.
func (s *scene) pressIn(t *testing.T, phone *http.Client, form url.Values) reply {
	t.Helper()
	page := s.get(t, phone, secure+"/login?url=http%3A%2F%2Fsome.site%2F")
	m := tokenPattern.FindStringSubmatch(page.body)
	if m == nil {
		t.Fatalf("no form: %s", page.body)
	}
	form["token"], form["url"], form["provider"] = m[1:2], []string{"http://some.site/"}, []string{"campus"}
	return s.post(t, phone, form)
}

// to is where a page leads by itself.
func to(t *testing.T, r reply) string {
	t.Helper()
	_, at, found := strings.Cut(r.Header.Get("Refresh"), "url=")
	if !found || r.StatusCode != http.StatusOK {
		t.Fatalf("%s leads nowhere:\n%s", r.Status, r.main())
	}
	return at
}

// TestProviderLogin: the button leads to the provider, whose answer logs the client in, once, and leads to the page
// that it asked for.
func TestProviderLogin(t *testing.T) {
	s := newScene(t, nil, Config{})
	phone := s.phone(t, clientA)
	page := s.get(t, phone, secure+"/login")
	if !strings.Contains(page.body, "Sign in with Campus &amp; &lt;Co&gt;") {
		t.Errorf("no button:\n%s", page.main())
	}
	begun := s.press(t, phone)
	cookie := begun.Cookies()
	if len(cookie) != 1 || !cookie[0].Secure || !cookie[0].HttpOnly || cookie[0].SameSite != http.SameSiteLaxMode ||
		cookie[0].Path != "/" || cookie[0].Domain != "" || !strings.HasPrefix(cookie[0].Name, "__Host-") {
		t.Errorf("cookies %v", cookie)
	}
	if s.visitors.hosts(s.world, clientA) == 0 || s.visitors.hosts(s.world, clientB) > 0 {
		t.Error("the hosts are not open for this device alone")
	}
	answer := s.provider.LogIn(t, to(t, begun), "alice").String()
	plain := request(t, clientA, strings.Replace(answer, secure, base, 1), nil)
	if plain.Header.Get("Location") != secure+"/" {
		t.Errorf("an answer by plain HTTP: %s to %s", plain.Status, plain.Header.Get("Location"))
	}
	r := s.get(t, phone, answer)
	at := r.Header.Get("Location")
	if r.StatusCode != http.StatusSeeOther || at != "/status?url=http%3A%2F%2Fsome.site%2F" {
		t.Errorf("%s to %s", r.Status, at)
	}
	now, _ := s.table.Get(clientA)
	if now.State != session.Authenticated || now.User != "alice@example.org" || s.visitors.hosts(s.world, clientA) > 0 {
		t.Errorf("%+v", now)
	}
	if r := s.get(t, phone, answer); r.Header.Get("Location") != "/status" {
		t.Errorf("loaded again: %s to %s", r.Status, r.Header.Get("Location"))
	}
	_, err := s.table.End(clientA, session.UserRequest)
	netnstest.Must(t, err)
	answer = s.provider.LogIn(t, to(t, begun), "alice").String() // a new code with the old state
	if r := s.get(t, phone, answer); !strings.Contains(r.body, "Please begin again") ||
		strings.Contains(r.body, `class="languages"`) {
		t.Errorf("once more after the log-out: %s\n%s", r.Status, r.main())
	}
	if now, _ := s.table.Get(clientA); now.State == session.Authenticated {
		t.Error("an answer logs in twice")
	}
	to(t, s.pressIn(t, phone, url.Values{"username": {"x"}, "password": {""}})) // in the form of the name
}

// TestProviderRefusals: whatever is wrong with an answer, the page says what the person can do, nobody is admitted, and
// nothing leads elsewhere. Long: the mistakes of one table, of which each needs a login of its own.
func TestProviderRefusals(t *testing.T) {
	s := newScene(t, nil, Config{})
	phone, other := s.phone(t, clientA), s.phone(t, clientB)
	says := func(label string, r reply, status int, words string) {
		t.Helper()
		if r.StatusCode != status || !strings.Contains(r.body, words) || r.Header.Get("Location") != "" ||
			r.Header.Get("Refresh") != "" {
			t.Errorf("%s: %s %v, want %q:\n%s", label, r.Status, r.Header, words, r.main())
		}
		for _, c := range []netip.Addr{clientA, clientB} {
			if now, _ := s.table.Get(c); now.State == session.Authenticated {
				t.Fatalf("%s: %s is admitted", label, c)
			}
		}
	}
	const again, unfit = "Please begin again", "this account cannot be used in this network"
	callback := secure + "/oidc/campus/callback"
	at := to(t, s.press(t, phone))
	answer := s.provider.LogIn(t, at, "alice").String()
	says("another device", s.get(t, other, answer), 200, again)
	says("another browser", s.get(t, s.phone(t, clientA), answer), 200, again)
	says("no query", s.get(t, phone, callback), 200, again)
	says("a redirection", s.get(t, phone, callback+"?state=x&code=y&url=https%3A%2F%2Fevil.example&iss=https%3A%2F%2Fe"),
		200, again)
	says("another provider", s.get(t, phone, strings.Replace(answer, "campus", "nobody", 1)), 200, again)
	answer = s.provider.LogIn(t, to(t, s.press(t, phone)), "bob").String()
	says("a user of another domain", s.get(t, phone, answer), 200, unfit)
	says("cancelled", s.get(t, phone, s.provider.LogIn(t, to(t, s.press(t, phone)), "").String()), 200,
		"Campus &amp; &lt;Co&gt; did not sign you in")
	says("a form of another site", s.post(t, s.phone(t, clientB), url.Values{"method": {"oidc"}, "provider": {"campus"}}),
		200, "open for too long")
	if s.visitors.hosts(s.world, clientB) > 0 {
		t.Error("a form of another site opens hosts")
	}
	begun := to(t, s.press(t, phone))
	s.provider.Stop()
	says("the provider is away", s.get(t, phone, callback+"?code=x&iss="+url.QueryEscape(s.provider.Issuer)+"&state="+
		stateOf(t, begun)), http.StatusServiceUnavailable, "does not answer")
	for _, secret := range []string{"code=x", stateOf(t, begun)} {
		if strings.Contains(s.log.String(), secret) {
			t.Errorf("the log has %s:\n%s", secret, s.log)
		}
	}
}

// stateOf is the state in the address of the provider's page.
func stateOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	netnstest.Must(t, err)
	return u.Query().Get("state")
}

// TestProviderClock: with a clock that is wrong the log says which, and the page that it is not the person's fault.
func TestProviderClock(t *testing.T) {
	s := newScene(t, func(c *oidc.Config) {
		c.Now = func() time.Time { return time.Now().Add(time.Hour) }
	}, Config{})
	phone := s.phone(t, clientA)
	r := s.get(t, phone, s.provider.LogIn(t, to(t, s.press(t, phone)), "alice").String())
	if !strings.Contains(r.body, "through no fault of yours") {
		t.Errorf("%s\n%s", r.Status, r.main())
	}
	if log := s.log.String(); !strings.Contains(log, "the clocks differ") || !strings.Contains(log, "1h0m") {
		t.Errorf("the log says:\n%s", log)
	}
}

// TestManyProviderLogins: while too many logins are open, further people wait.
func TestManyProviderLogins(t *testing.T) {
	s := newScene(t, func(c *oidc.Config) { c.Devices = 1 }, Config{})
	to(t, s.press(t, s.phone(t, clientA)))
	r := s.press(t, s.phone(t, clientB))
	if r.StatusCode != http.StatusTooManyRequests || r.Header.Get("Retry-After") == "" {
		t.Errorf("%s\n%s", r.Status, r.main())
	}
}

// TestProviderBudget: a device that presses the button or brings answers on and on has to wait, and others do not.
func TestProviderBudget(t *testing.T) {
	s := newScene(t, nil, Config{})
	phone := s.phone(t, clientA)
	for label, try := range map[string]func() reply{
		"the button": func() reply { return s.press(t, phone) },
		"answers":    func() reply { return s.get(t, phone, secure+"/oidc/campus/callback?state=x&code=y") },
	} {
		waits := 0
		for range 3 * providerRate.AtOnce {
			if r := try(); r.StatusCode == http.StatusTooManyRequests && r.Header.Get("Retry-After") != "" {
				waits++
			}
		}
		if waits == 0 {
			t.Errorf("%s: it never has to wait", label)
		}
	}
	to(t, s.press(t, s.phone(t, clientB)))
	if n := strings.Count(s.log.String(), "an answer for no open login"); n != 1 {
		t.Errorf("the log has %d lines of answers for no login", n)
	}
}

// TestNoProviders: without providers there is no callback, and no method by a form.
func TestNoProviders(t *testing.T) {
	start(t, Config{})
	if r := request(t, clientA, base+"/oidc/campus/callback?state=x&code=y", nil); r.StatusCode != http.StatusNotFound {
		t.Errorf("%s", r.Status)
	}
	form := loginForm(t, clientA, "", "")
	form.Set("method", "oidc")
	form.Set("provider", "campus")
	if r := request(t, clientA, base+"/login", form); r.StatusCode != http.StatusOK || r.Header.Get("Refresh") != "" {
		t.Errorf("%s", r.Status)
	}
}
