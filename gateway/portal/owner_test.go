// Tests that only the browser that logged in may end a session or see whose it is: another device can have copied its
// MAC address. start (world_test.go) serves a portal, whose table of clients is w.table. request(t, client, url, form,
// change...) sends one request as a client: GET where form is nil, else POST. logIn logs a client in and returns the
// change that adds the cookie of that browser to a request; browserOf does so from a reply.

package portal

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/guesses"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// logOut sends the status page's form with a name.
func logOut(t testing.TB, client netip.Addr, name string, change ...func(*http.Request)) reply {
	t.Helper()
	return request(t, client, base+"/logout", url.Values{"token": {token(t, client, "/status")}, "username": {name}},
		change...)
}

// TestCopiedDevice: a device with a client's MAC and IP address gets all pages of the client, but neither learns the
// user's name from them nor ends the session.
func TestCopiedDevice(t *testing.T) {
	w := start(t, Config{})
	browser := logIn(t, clientA)
	strange := map[string]func(*http.Request){
		"no cookie":        func(*http.Request) {},
		"garbage":          func(r *http.Request) { r.AddCookie(&http.Cookie{Name: cookieName, Value: "x"}) },
		"an empty one":     func(r *http.Request) { r.AddCookie(&http.Cookie{Name: cookieName}) },
		"another client's": logIn(t, clientB),
		"a form's token": func(r *http.Request) {
			r.AddCookie(&http.Cookie{Name: cookieName, Value: token(t, clientA, "/status")})
		},
		"many, none of them": func(r *http.Request) { r.Header.Set("Cookie", strings.Repeat(cookieName+"=AAAA;", 500)) },
	}
	for name, clone := range strange {
		for _, path := range []string{"/status", "/logout", "/login", "/", "/api/captive-portal"} {
			if r := request(t, clientA, base+path, nil, clone); strings.Contains(r.body+fmt.Sprint(r.Header), goodUser) {
				t.Errorf("%s with %s shows the user's name:\n%s", path, name, r.main())
			}
		}
		if r := logOut(t, clientA, "", clone); !strings.Contains(r.body, english.OtherUser) && r.StatusCode != 429 {
			t.Errorf("log-out with %s: %s\n%s", name, r.Status, r.main())
		}
	}
	// Guessing the name is slowed down as guessing a password is.
	if r := logOut(t, clientA, "a guess"); r.StatusCode != 429 || r.Header.Get("Retry-After") == "" {
		t.Errorf("after many guesses: %s", r.Status)
	}
	if s, _ := w.table.Get(clientA); s.State != session.Authenticated || len(w.table.causes()) > 0 {
		t.Fatal("a copy has logged the client out")
	}
	if r := request(t, clientA, base+"/status", nil, browser); !strings.Contains(r.body, goodUser) ||
		strings.Contains(r.body, `name="username"`) {
		t.Errorf("the browser that logged in does not see its user, or is asked for the name:\n%s", r.main())
	}
	if r := logOut(t, clientA, "", browser); r.StatusCode != 303 {
		t.Errorf("log-out by the browser that logged in: %s\n%s", r.Status, r.main())
	}
}

// TestOtherBrowser: with the user's name, people log out with a browser other than the one that logged in, as after a
// phone's sign-in sheet.
func TestOtherBrowser(t *testing.T) {
	w := start(t, Config{})
	logIn(t, clientA)
	if r := logOut(t, clientA, " "+strings.ToUpper(goodUser)+" "); r.StatusCode != 303 {
		t.Errorf("log-out with the name: %s\n%s", r.Status, r.main())
	}
	if s, _ := w.table.Get(clientA); s.State == session.Authenticated {
		t.Error("still logged in")
	}
	w.stop()
	guest := start(t, Config{Methods: Methods{Login: true, ClickThrough: true}})
	request(t, clientA, base+"/login", url.Values{"token": {token(t, clientA, "/login")}, "method": {"click"}})
	if r := logOut(t, clientA, ""); r.StatusCode != 303 {
		t.Errorf("log-out of a click-through client: %s\n%s", r.Status, r.main())
	}
	if s, _ := guest.table.Get(clientA); s.State == session.Authenticated {
		t.Error("the click-through client is still logged in")
	}
}

// cookieOf is the cookie of a session.
func cookieOf(w *world, s session.Session) string {
	return base64.RawURLEncoding.EncodeToString(w.tokens.sessionCookie(s))
}

// TestNoCookieBeforeLogin: a cookie from before the login, which somebody may have planted in the browser, is worth
// nothing after it, and neither is that of a former session.
func TestNoCookieBeforeLogin(t *testing.T) {
	w := start(t, Config{Key: []byte(strings.Repeat("k", minKeyBytes))})
	if r := request(t, clientA, base+"/login", nil); len(r.Cookies()) > 0 {
		t.Errorf("before login: %v", r.Cookies())
	}
	s, _ := w.table.Get(clientA)
	planted := func(r *http.Request) {
		r.AddCookie(&http.Cookie{Name: cookieName, Value: cookieOf(w, s)})
	}
	r := request(t, clientA, base+"/login", loginForm(t, clientA, goodUser, goodPassword), planted)
	if len(r.Cookies()) != 1 {
		t.Fatalf("after login: %v", r.Cookies())
	}
	if c := r.Cookies()[0]; !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Secure || c.Path != "/" ||
		c.Domain != "" {
		t.Errorf("the cookie is %v", c)
	}
	first := browserOf(r)
	if r := request(t, clientA, base+"/status", nil, planted); strings.Contains(r.body, goodUser) {
		t.Error("a cookie planted before login is the session's")
	}
	w.stop()
	again := start(t, Config{Key: w.cfg.Key})
	s, _ = w.table.Get(clientA)
	again.table.set(s)
	if r := request(t, clientA, base+"/status", nil, first); !strings.Contains(r.body, goodUser) {
		t.Error("after a restart the cookie is not the session's")
	}
	if r := logOut(t, clientA, "", first); r.StatusCode != 303 {
		t.Errorf("log-out: %s", r.Status)
	}
	second := logIn(t, clientA)
	if r := request(t, clientA, base+"/status", nil, first); strings.Contains(r.body, goodUser) {
		t.Error("the cookie of the former session is the new one's")
	}
	if r := request(t, clientA, base+"/status", nil, second); !strings.Contains(r.body, goodUser) {
		t.Error("the cookie of the new session is not its own")
	}
}

// FuzzForms sends any form and cookie as a copy of a logged-in device, with a valid token: nothing shows the user's
// name or ends the session.
func FuzzForms(f *testing.F) {
	const name = "Anna Petrovna, room 1107, of the grand hotel"
	f.Add("/logout", "username=anna", "")
	f.Add("/login", "username=anna&password=x&url=http://example.org/", "gatewayd=AAAA; gatewayd=")
	f.Add("/status", "%zz", "gatewayd=\"\"")
	tb := &table{clients: map[netip.Addr]session.Session{}}
	p, err := New(Config{Address: portalAddr, Methods: Methods{Login: true}, Log: slog.New(slog.DiscardHandler)}, tb,
		&users{})
	if err != nil {
		f.Fatal(err)
	}
	tb.lease(clientA)
	if _, err := tb.Admit(clientA, session.Login{User: name}); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, path, form, cookie string) {
		s, _ := tb.Get(clientA)
		req := httptest.NewRequest(
			http.MethodPost, "/", strings.NewReader("token="+p.tokens.formToken(s.Key, time.Now())+"&"+form))
		req.URL = &url.URL{Path: path}
		req.Host = portalAddr.String()
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Cookie", cookie)
		p.guard = &guesses.Guard{}
		c := &peer{client: clientA, local: portalAddr, serverCtx: t.Context(), limiter: &connLimiter{}}
		w := httptest.NewRecorder()
		p.ServeHTTP(w, req.WithContext(context.WithValue(t.Context(), peerKey{}, c)))
		if strings.Contains(fmt.Sprint(w.Body, w.Header()), name) {
			t.Errorf("%s shows the name", path)
		}
		if s, _ := tb.Get(clientA); s.State != session.Authenticated || len(tb.causes()) > 0 {
			t.Fatalf("%s ended the session", path)
		}
	})
}
