// Tests of login and logout by the pages. start (world_test.go) serves a portal: w.table is its table of clients, and
// w.users decides logins and knows only goodUser with goodPassword. request(t, client, url, form, change...) sends one
// request as a client: GET where form is nil, else POST; the changes edit it before it is sent. loginForm is a filled-
// in form with its token, the hidden field that proves that the form comes from the portal's own page. logIn logs a
// client in and returns the change that adds the cookie of that browser.

package portal

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

func TestLogin(t *testing.T) {
	w := start(t, Config{Title: "Café <Milano>"})
	wanted := "http://example.org/a?b=c&d"
	login := request(t, clientA, base+"/login?url="+url.QueryEscape(wanted), nil)
	if login.StatusCode != 200 || !strings.Contains(login.body, "http://example.org/a?b=c&amp;d") ||
		!strings.Contains(login.body, "Café &lt;Milano&gt;") {
		t.Fatalf("login page: %s\n%s", login.Status, login.main())
	}
	f := url.Values{"token": {tokenPattern.FindStringSubmatch(login.body)[1]}, "url": {wanted}, "username": {goodUser +
		" "}, "password": {"wrong"}}
	r := request(t, clientA, base+"/login", f)
	if r.StatusCode != 200 || !strings.Contains(r.body, english.WrongPassword) || !strings.Contains(r.body, goodUser) {
		t.Errorf("wrong password: %s\n%s", r.Status, r.main())
	}
	if !strings.Contains(r.body, "&lt;script&gt;alert(1)&lt;/script&gt; account expired[31m") {
		t.Errorf("the server's message is not shown, or not as text:\n%s", r.main())
	}
	if s, _ := w.table.Get(clientA); s.State == session.Authenticated {
		t.Fatal("admitted with a wrong password")
	}

	f.Set("password", goodPassword)
	r = request(t, clientA, base+"/login", f)
	if to := r.Header.Get("Location"); r.StatusCode != 303 || to != "/status?url="+url.QueryEscape(wanted) {
		t.Fatalf("log-in: %s to %q\n%s", r.Status, to, r.main())
	}
	s, _ := w.table.Get(clientA)
	if s.State != session.Authenticated || s.User != goodUser {
		t.Errorf("after login: %+v", s)
	}
	s.UpBytes, s.DownBytes = 1_500_000, 2_500_000_000
	w.table.set(s)
	browser := browserOf(r)
	status := request(t, clientA, base+r.Header.Get("Location"), nil, browser)
	for _, want := range []string{
		goodUser, "1.5 MB", "2.5 GB", "99 days", `<b dir="ltr">example.org</b>`, `href="http://example.org/a?b=c&amp;d"`} {
		if !strings.Contains(status.body, want) {
			t.Errorf("the status page lacks %q:\n%s", want, status.main())
		}
	}
	if r := request(t, clientA, base+"/login", nil); r.StatusCode != 303 || r.Header.Get("Location") != "/status" {
		t.Errorf("the login page of an admitted client: %s to %q", r.Status, r.Header.Get("Location"))
	}

	checkLogout(t, w, browser)
	if got, want := w.Stats(), (Stats{Logins: 1, Rejected: 1, Logouts: 1}); got != want {
		t.Errorf("Stats() = %+v, want %+v", got, want)
	}
}

// checkLogout logs clientA out through the status page.
func checkLogout(t *testing.T, w *world, browser func(*http.Request)) {
	t.Helper()
	r := request(t, clientA, base+"/logout", url.Values{"token": {token(t, clientA, "/status")}}, browser)
	if to := r.Header.Get("Location"); r.StatusCode != 303 || to != "/login?note=out" {
		t.Fatalf("logout: %s to %q", r.Status, to)
	}
	if r := request(t, clientA, base+r.Header.Get("Location"), nil); !strings.Contains(r.body, english.LoggedOut) {
		t.Errorf("after logout:\n%s", r.main())
	}
	if s, _ := w.table.Get(clientA); s.State != session.PreAuth ||
		!slices.Equal(w.table.causes(), []session.Cause{session.UserRequest}) {
		t.Errorf("after logout: %q, ended by %q", s.State, w.table.causes())
	}
}

// TestTooManyDevices: a right login beyond the user's sessions is refused with the reason.
func TestTooManyDevices(t *testing.T) {
	w := start(t, Config{Methods: Methods{Login: true}})
	w.table.lease(clientA)
	w.table.fails(fmt.Errorf("admit %s: %w", clientA, session.ErrSessions))
	r := request(t, clientA, base+"/login",
		url.Values{"token": {token(t, clientA, "/login")}, "username": {goodUser}, "password": {goodPassword}})
	if r.StatusCode != 200 || !strings.Contains(r.body, english.Devices) || !strings.Contains(r.body, `name="password"`) {
		t.Errorf("%s\n%s", r.Status, r.main())
	}
	if st := w.Stats(); st.Rejected != 1 || st.Unavailable != 0 || st.Logins != 0 {
		t.Errorf("stats %+v", st)
	}
}

// TestAcceptedInVain: who is accepted on terms that cannot be carried out, or asked for more, is told so, and not that
// the password is wrong. Such logins are no guesses: they make nobody wait.
func TestAcceptedInVain(t *testing.T) {
	w := start(t, Config{})
	f := loginForm(t, clientA, goodUser, goodPassword)
	for range 3 {
		for want, err := range map[string]error{
			english.Unfit:     fmt.Errorf("radius: %w: the server grants Service-Type 5", session.ErrUnfit),
			english.MoreAsked: fmt.Errorf("radius: %w", &session.Challenge{Message: "Your token?"}),
			"Your token?":     &session.Challenge{Message: "Your token?"},
		} {
			w.users.answers(err, nil)
			r := request(t, clientA, base+"/login", f)
			if r.StatusCode != 200 || !strings.Contains(r.body, want) || strings.Contains(r.body, english.WrongPassword) ||
				strings.Contains(r.main(), "aria-invalid") {
				t.Errorf("%v is answered with %s\n%s", err, r.Status, r.main())
			}
		}
	}
	if n := w.Stats(); n.Rejected != 9 || n.Unavailable != 0 || n.BackedOff != 0 {
		t.Errorf("counted as %+v", n)
	}
	w.users.answers(nil, nil)
	logIn(t, clientA)
}

func TestClickThrough(t *testing.T) {
	guest := session.Login{Limits: session.Limits{SessionTimeout: 30 * time.Minute}}
	w := start(t, Config{Methods: Methods{ClickThrough: true, Guest: guest}, Terms: "Be <kind>.\n\nNo warranty.\n"})
	r := request(t, clientA, base+"/login", nil)
	if strings.Contains(r.body, `type="password"`) ||
		!strings.Contains(r.body, "<p dir=\"auto\">Be &lt;kind&gt;.</p>\n<p dir=\"auto\">No warranty.</p>") {
		t.Errorf("the page asks for a password or lacks the terms:\n%s", r.main())
	}
	f := url.Values{"token": {token(t, clientA, "/login")}, "username": {goodUser}, "password": {goodPassword}}
	if r := request(t, clientA, base+"/login", f); r.StatusCode != 200 {
		t.Errorf("a log-in by name, which is off: %s", r.Status)
	}
	f.Set("method", "click")
	if r := request(t, clientA, base+"/login", f); r.StatusCode != 303 {
		t.Errorf("click: %s", r.Status)
	}
	if s, _ := w.table.Get(clientA); s.State != session.Authenticated || s.User != "guest" || s.Limits != guest.Limits {
		t.Errorf("after the click: %+v", s)
	}
	if n := w.users.questions(); n != 0 {
		t.Errorf("the users were asked %d times", n)
	}
}

// TestManyClicksAreOneSession: further clicks do not restart the session.
func TestManyClicksAreOneSession(t *testing.T) {
	w := start(t, Config{Methods: Methods{ClickThrough: true}})
	f := url.Values{"token": {token(t, clientA, "/login")}, "method": {"click"}}
	var clicks sync.WaitGroup
	for range 20 {
		clicks.Go(func() {
			if r, err := tryRequest(clientA, base+"/login", f); err != nil || r.StatusCode != 303 ||
				r.Header.Get("Location") != "/status" {
				t.Errorf("click: %v, %+v", err, r.Response)
			}
		})
	}
	clicks.Wait()
	if got := w.Stats().Logins; got != 1 {
		t.Errorf("%d sessions were begun, want 1", got)
	}
}

// TestKeyReplaced: a form and a cookie that were made with the key before stay valid, and new ones are made with the
// new key.
func TestKeyReplaced(t *testing.T) {
	w := start(t, Config{Methods: Methods{ClickThrough: true}, Key: bytes.Repeat([]byte{1}, minKeyBytes)})
	s, _ := w.table.Get(clientA)
	form, cookie := token(t, clientA, "/login"), base64.RawURLEncoding.EncodeToString(w.tokens.sessionCookie(s))
	w.SetKey(bytes.Repeat([]byte{2}, minKeyBytes))
	w.SetKey(bytes.Repeat([]byte{2}, minKeyBytes))
	if now := w.tokens.formToken(s.Key, time.Now()); now == form || !w.tokens.valid(now, s.Key, time.Now()) {
		t.Errorf("a form has %s, before it was %s", now, form)
	}
	if !w.tokens.isCookieOf(cookie, s) {
		t.Error("the cookie is no longer valid")
	}
	if r := request(t, clientA, base+"/login", url.Values{"token": {form}, "method": {"click"}}); r.StatusCode != 303 {
		t.Errorf("the form of before is answered by %s", r.Status)
	}
}

// TestOtherSitesCannot: other sites cannot log a client in or out, although they can make its browser send any form
// with anything that they know.
func TestOtherSitesCannot(t *testing.T) {
	w := start(t, Config{Methods: Methods{Login: true, ClickThrough: true}})
	s, _ := w.table.Get(clientA)
	foreign := map[string]string{
		"no token":             "",
		"garbage":              "x",
		"another client's":     token(t, clientB, "/login"),
		"an old one":           w.tokens.formToken(s.Key, time.Now().Add(-2*tokenAge)),
		"of the former device": w.tokens.formToken(session.Key{Addr: clientA}, time.Now()),
	}
	for name, tok := range foreign {
		f := url.Values{"token": {tok}, "username": {goodUser}, "password": {goodPassword}}
		r := request(t, clientA, base+"/login", f)
		if r.StatusCode != 200 || !strings.Contains(r.body, english.OldForm) {
			t.Errorf("log-in with %s: %s\n%s", name, r.Status, r.main())
		}
		f.Set("method", "click")
		request(t, clientA, base+"/login", f)
		if s, _ := w.table.Get(clientA); s.State == session.Authenticated {
			t.Fatalf("logged in with %s", name)
		}
	}
	if n := w.users.questions(); n != 0 {
		t.Errorf("the users were asked %d times", n)
	}
	logIn(t, clientA)
	for name, tok := range foreign {
		if r := request(t, clientA, base+"/logout", url.Values{"token": {tok}}); r.StatusCode != 303 ||
			r.Header.Get("Location") != "/logout" {
			t.Errorf("logout with %s: %s to %q", name, r.Status, r.Header.Get("Location"))
		}
	}
	if r := request(t, clientA, base+"/logout", nil); r.StatusCode != 200 ||
		!strings.Contains(r.body, english.SignOutText) {
		t.Errorf("following a link to /logout: %s\n%s", r.Status, r.main())
	}
	if s, _ := w.table.Get(clientA); s.State != session.Authenticated {
		t.Error("logged out by another site")
	}
	if got := w.Stats().Forged; got != uint64(3*len(foreign)) {
		t.Errorf("%d forged forms were counted, want %d", got, 3*len(foreign))
	}
}

// TestTokensSurviveARestart: forms opened before a restart still work.
func TestTokensSurviveARestart(t *testing.T) {
	key := []byte(strings.Repeat("k", minKeyBytes))
	w := start(t, Config{Key: key})
	f := loginForm(t, clientA, goodUser, goodPassword)
	w.stop()
	start(t, Config{Key: key})
	if r := request(t, clientA, base+"/login", f); r.StatusCode != 303 {
		t.Errorf("log-in: %s\n%s", r.Status, r.main())
	}
}

func TestNobodyCanDecide(t *testing.T) {
	w := start(t, Config{})
	w.users.answers(errors.New("no RADIUS server answers"), nil)
	r := request(t, clientA, base+"/login", loginForm(t, clientA, goodUser, goodPassword))
	if r.StatusCode != 503 || r.Header.Get("Retry-After") == "" || !strings.Contains(r.body, english.UnavailableText) {
		t.Errorf("without a server: %s\n%s", r.Status, r.main())
	}
	w.users.answers(nil, nil)
	w.table.fails(errors.New("disk full"))
	for _, texts := range builtInTexts() {
		in := func(r *http.Request) { r.Header.Set("Accept-Language", texts.Lang) }
		r := request(t, clientA, base+"/login", loginForm(t, clientA, goodUser, goodPassword), in)
		if r.StatusCode != 503 || r.Header.Get("Retry-After") == "" || !strings.Contains(r.body, texts.FaultText) {
			t.Errorf("when the table cannot: %s\n%s", r.Status, r.main())
		}
	}
	if got := w.Stats(); got.Unavailable != 1 || got.Failed != uint64(len(builtInTexts())) || got.Logins != 0 {
		t.Errorf("Stats() = %+v", got)
	}
}

func TestImplausibleCredentialsAskNobody(t *testing.T) {
	w := start(t, Config{})
	for name, c := range map[string][2]string{
		"no name":             {" ", goodPassword},
		"no password":         {goodUser, ""},
		"long name":           {strings.Repeat("u", session.MaxUser+1), goodPassword},
		"long password":       {goodUser, strings.Repeat("p", session.MaxPassword+1)},
		"line feed in name":   {"anna\nroot", goodPassword},
		"escape in name":      {"anna\x1b[2J", goodPassword},
		"name not UTF-8":      {"anna\xff", goodPassword},
		"NUL in name":         {"anna\x00", goodPassword},
		"password not UTF-8":  {goodUser, "\xff\xfe"},
		"name of one newline": {"\n", goodPassword},
	} {
		r := request(t, clientA, base+"/login", loginForm(t, clientA, c[0], c[1]))
		if r.StatusCode != 200 && r.StatusCode != 429 {
			t.Errorf("%s: %s", name, r.Status)
		}
	}
	if n := w.users.questions(); n != 0 {
		t.Errorf("the users were asked %d times", n)
	}
	large := url.Values{"token": {token(t, clientA, "/login")}, "username": {strings.Repeat("u", maxFormBytes)}}
	if r := request(t, clientA, base+"/login", large); r.StatusCode != 413 {
		t.Errorf("a large form: %s", r.Status)
	}
}

// TestGuessingIsSlowedDown: only for the guessing client.
func TestGuessingIsSlowedDown(t *testing.T) {
	w := start(t, Config{})
	f := loginForm(t, clientA, goodUser, "wrong")
	var r reply
	for range 10 { // each failure doubles the wait, so that a slow machine is caught too
		if r = request(t, clientA, base+"/login", f); r.StatusCode != 200 {
			break
		}
	}
	if r.StatusCode != 429 || r.Header.Get("Retry-After") == "" || !strings.Contains(r.body, "Too many attempts") {
		t.Errorf("after %d wrong passwords: %s\n%s", w.users.questions(), r.Status, r.main())
	}
	if n := w.users.questions(); n < 3 {
		t.Errorf("only %d wrong passwords were free", n)
	}
	logIn(t, clientB)
}

// TestTwoTapsAreOneLogin: the second request waits for the result of the first, whose connection browsers close.
func TestTwoTapsAreOneLogin(t *testing.T) {
	w := start(t, Config{})
	asked, answer := make(chan struct{}), make(chan struct{})
	w.users.answers(nil, func(context.Context, int) { asked <- struct{}{}; <-answer })
	f := loginForm(t, clientA, goodUser, goodPassword)
	ctx, hangUp := context.WithCancel(t.Context())
	var taps sync.WaitGroup
	taps.Go(func() {
		if _, err := tryRequest(clientA, base+"/login", f, func(r *http.Request) { *r = *r.WithContext(ctx) }); err == nil {
			t.Error("the first tap was answered though its client hung up")
		}
	})
	<-asked
	hangUp()
	var second reply
	var err error
	taps.Go(func() { second, err = tryRequest(clientA, base+"/login", f) })
	await(t, "the second tap to wait", func() bool {
		s, _ := w.table.Get(clientA)
		return w.guard.Trying(s.MAC) == 2
	})
	close(answer)
	taps.Wait()
	if err != nil || second.StatusCode != 303 {
		t.Fatalf("the second tap: %v, %+v", err, second.Response)
	}
	if len(second.Cookies()) != 1 {
		t.Errorf("the second tap has cookies %v, and the first answer was discarded", second.Cookies())
	}
	if n := w.users.questions(); n != 1 {
		t.Errorf("the users were asked %d times, want once", n)
	}
	if got := w.Stats().Logins; got != 1 {
		t.Errorf("%d sessions were begun, want 1", got)
	}
}

// TestServeEndsInTheMiddle: during a login, whose client gets an answer, and during a request that never ends.
func TestServeEndsInTheMiddle(t *testing.T) {
	w := start(t, Config{})
	asked := make(chan struct{})
	w.users.answers(nil, func(ctx context.Context, _ int) { close(asked); <-ctx.Done() })
	f := loginForm(t, clientA, goodUser, goodPassword)
	idle, err := dialFrom(clientB)(t.Context(), "tcp", portalAddr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	idle.Write([]byte("GET /"))
	answered := make(chan reply)
	go func() {
		r, err := tryRequest(clientA, base+"/login", f)
		if err != nil {
			t.Error(err)
		}
		answered <- r
	}()
	<-asked
	w.stop()
	if r := <-answered; r.Response != nil && r.StatusCode != 503 {
		t.Errorf("the log-in that was cut off: %s", r.Status)
	}
	if _, err := tryRequest(clientB, base+"/login", nil); err == nil {
		t.Error("the portal still answers")
	}
}
