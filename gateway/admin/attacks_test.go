package admin

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/users"
)

// online reports whether client i has a session.
func (w *world) online(i int) bool {
	s, known := w.table.Get(addrOf(i))
	return known && s.State == session.Authenticated
}

// TestFormsOfOthersAreRefused: a form without the person's token, with another person's, and one that a page of another
// site sent change nothing (CSRF).
func TestFormsOfOthersAreRefused(t *testing.T) {
	w := newWorld(t, 3)
	ann, other := w.logIn("ann"), w.logIn("ann")
	path := "/sessions/" + addrOf(1).String() + "/end"
	stolen := formField.FindStringSubmatch(other.get("/sessions").body)[1]
	for name, form := range map[string]url.Values{"no token": {}, "odd": {"form": {"x"}},
		"another login's": {"form": {stolen}}} {
		if a := ann.post(path, form); a.StatusCode != http.StatusForbidden {
			t.Errorf("%s: answered %s", name, a.Status)
		}
	}
	own := formField.FindStringSubmatch(ann.get("/sessions").body)[1]
	for _, header := range [][2]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://evil.example"}} {
		a := w.send(ann.client, "POST", path, url.Values{"form": {own}}.Encode(), func(r *http.Request) {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set(header[0], header[1])
		})
		if a.StatusCode != http.StatusForbidden {
			t.Errorf("%s: answered %s", header, a.Status)
		}
		// a browser adds the password of Basic to requests of other sites
		a = w.send(plainClient, "DELETE", "/api/v1/sessions/"+addrOf(1).String(), "", func(r *http.Request) {
			r.SetBasicAuth("ann", "right")
			r.Header.Set(header[0], header[1])
		})
		if a.StatusCode != http.StatusForbidden {
			t.Errorf("API, %s: answered %s", header, a.Status)
		}
	}
	// what a form of another site can send is no JSON
	a := w.send(plainClient, "POST", "/api/v1/vouchers", `{"count":1,"terms":{"devices":1}}`, func(r *http.Request) {
		r.SetBasicAuth("ann", "right")
		r.Header.Set("Content-Type", "text/plain")
	})
	if a.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("a body that is said to be text is answered %s", a.Status)
	}
	if !w.online(1) {
		t.Error("a forged form has ended the session")
	}
	if a := ann.submit("/sessions", path, url.Values{}); a.StatusCode != http.StatusSeeOther || w.online(1) {
		t.Errorf("the person's own form: answered %s", a.Status)
	}
}

// TestCookies: a login makes a new cookie with all attributes, and cookies that are forged, ended or expired, or whose
// account has changed, are worth nothing. Long: one after the other.
func TestCookies(t *testing.T) {
	w := newWorld(t, 1)
	planted := &http.Cookie{Name: cookieName, Value: "planted", Path: "/", Secure: true}
	v := w.visitor()
	u, err := url.Parse(w.base)
	must(t, err)
	v.client.Jar.SetCookies(u, []*http.Cookie{planted})
	a := v.post("/login", url.Values{"name": {"ann"}, "password": {"right"}})
	set := a.Header.Get("Set-Cookie")
	for _, want := range []string{"HttpOnly", "Secure", "SameSite=Strict", "Path=/"} {
		if !strings.Contains(set, want) {
			t.Errorf("the cookie %q lacks %s", set, want)
		}
	}
	if strings.Contains(set, "planted") || strings.Contains(set, "Domain") {
		t.Errorf("a cookie from before the login is taken: %s", set)
	}
	ok := func(v *visitor) bool { return v.get("/sessions").StatusCode == http.StatusOK }
	forged := w.visitor()
	forged.client.Jar.SetCookies(u, []*http.Cookie{planted})
	if ok(forged) || !ok(v) {
		t.Error("a planted cookie is a login, or that of the login is none")
	}
	cookie := v.client.Jar.Cookies(u)[0]
	if a := v.submit("/sessions", "/logout", url.Values{}); a.StatusCode != http.StatusSeeOther {
		t.Errorf("signing out is answered %s", a.Status)
	}
	forged.client.Jar.SetCookies(u, []*http.Cookie{cookie})
	if ok(forged) {
		t.Error("the cookie of a login that was ended still is one")
	}
	for name, expire := range map[string]func(*login){
		"idle":    func(l *login) { l.seen = l.seen.Add(-w.cfg.Idle) },
		"longest": func(l *login) { l.began = l.began.Add(-w.cfg.Longest) },
	} {
		v := w.logIn("ann")
		w.logins.mu.Lock()
		for _, l := range w.logins.all {
			expire(l)
		}
		w.logins.mu.Unlock()
		if ok(v) {
			t.Errorf("%s: a login goes on beyond its time", name)
		}
	}
	for name, line := range map[string]string{
		"another password": "ann:" + users.Hash("another") + ":admin", "another role": "ann:" + rightHash() + ":read-only",
		"removed": ""} {
		must(t, users.SetOperator(w.cfg.Accounts, "ann", "ann:"+rightHash()+":admin"))
		v := w.logIn("ann")
		must(t, users.SetOperator(w.cfg.Accounts, "ann", line))
		if ok(v) {
			t.Errorf("%s: the login goes on", name)
		}
	}
}

// TestRoles: an account that may look changes nothing, by no path, and sees no codes of vouchers.
func TestRoles(t *testing.T) {
	w := newWorld(t, 3)
	must(t, func() error {
		_, err := w.cfg.Answers.NewVouchers(decodedVouchers)
		return err
	}())
	bob := w.logIn("bob")
	one := "/sessions/" + addrOf(1).String()
	for path, form := range map[string]url.Values{
		one + "/end": {}, one + "/change": {"what": {"more"}, "addminutes": {"5"}}, "/vouchers": {"count": {"1"}},
		"/vouchers/revoke": {"name": {"lobby"}}, "/vouchers/export": {"name": {"lobby"}}} {
		if a := bob.submit("/sessions", path, form); a.StatusCode != http.StatusForbidden {
			t.Errorf("POST %s is answered %s", path, a.Status)
		}
	}
	if a := bob.get("/whois?endpoint=10.0.0.1:80"); a.StatusCode != http.StatusForbidden {
		t.Errorf("whois is answered %s", a.Status)
	}
	for _, path := range []string{one, "/vouchers?name=lobby"} {
		if a := bob.get(path); strings.Contains(a.body, `action="`+path) || strings.Contains(a.body, "Revoke") ||
			strings.Contains(a.body, "End session") {
			t.Errorf("%s shows what the account may not do", path)
		}
	}
	codes := w.as("bob", "GET", "/api/v1/vouchers", nil)
	for _, v := range decoded[listOf[struct{ Code string }]](t, codes.body).Items {
		if v.Code != "" {
			t.Errorf("a code is shown: %s", v.Code)
		}
	}
	if len(w.entries()) != 1 || !w.online(1) { // the login
		t.Errorf("the audit log has %+v", w.entries())
	}
	if a := w.as("proxied", "GET", "/api/v1/account", nil); a.StatusCode != http.StatusUnauthorized {
		t.Errorf("an account without a password is let in: %s", a.Status)
	}
	if a := w.as("backup", "GET", "/api/v1/account", nil); !strings.Contains(a.body, `"backup"`) {
		t.Errorf("the token of a program: %s", a.body)
	}
}

// TestGuessesWait: wrong passwords, at the page, the API and by tokens together, make the guesser wait, and nobody
// else.
func TestGuessesWait(t *testing.T) {
	w := newWorld(t, 1)
	wrong := func(name, password string) int {
		return w.send(plainClient, "GET", "/api/v1/account", "", func(r *http.Request) { r.SetBasicAuth(name, password) }).
			StatusCode
	}
	for sent, want := range map[string]string{"": "no credentials", "Bearer gwd_none": "the token is of no account"} {
		a := w.send(plainClient, "GET", "/api/v1/account", "", func(r *http.Request) { r.Header.Set("Authorization", sent) })
		if a.StatusCode != http.StatusUnauthorized || !strings.Contains(a.body, want) {
			t.Errorf("with %q: %s %s, want %q", sent, a.Status, a.body, want)
		}
	}
	v := w.visitor()
	if a := v.post("/login", url.Values{"name": {"ann"}, "password": {"wrong"}}); a.StatusCode !=
		http.StatusUnauthorized || !strings.Contains(a.body, "wrong name or password") {
		t.Errorf("a wrong password is answered %s", a.Status)
	}
	if a := v.post("/login", url.Values{"name": {"none"}, "password": {"wrong"}}); a.StatusCode !=
		http.StatusUnauthorized {
		t.Errorf("a wrong name is answered %s", a.Status)
	}
	if a := w.send(plainClient, "GET", "/api/v1/account", "", func(r *http.Request) {
		r.Header.Set("Authorization", "Bearer gwd_wrong")
	}); a.StatusCode != http.StatusUnauthorized {
		t.Errorf("a wrong token is answered %s", a.Status)
	}
	tries := 0
	for ; tries < 10 && wrong("ann", fmt.Sprint("wrong", tries)) != http.StatusTooManyRequests; tries++ {
	}
	if tries == 10 {
		t.Error("ten wrong passwords in a row were all checked")
	}
	a := w.as("ann", "GET", "/api/v1/account", nil)
	if a.StatusCode != http.StatusTooManyRequests || a.Header.Get("Retry-After") == "" {
		t.Errorf("the right password after wrong ones is answered %s", a.Status)
	}
	if c := w.Stats(); c.Rejected < 3 || c.BackedOff < 2 {
		t.Errorf("counted: %v", c)
	}
	if err := w.checkPassword(t.Context(), "ann", "right", netip.MustParseAddr("192.0.2.77")); err != nil {
		t.Errorf("somebody else has to wait: %v", err)
	}
}

// TestHeaders: no page can be framed, guessed to be of another kind, or kept by a browser, and its policy names no
// other place.
func TestHeaders(t *testing.T) {
	w := newWorld(t, 1)
	ann := w.logIn("ann")
	for _, path := range []string{"/login", "/sessions", "/audit", "/none", OpenAPIPath, "/api/v1/none"} {
		a := ann.get(path)
		h := a.Header
		for key, want := range map[string]string{"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff",
			"Content-Security-Policy": policy, "Cache-Control": "no-store", "Referrer-Policy": "same-origin"} {
			if h.Get(key) != want {
				t.Errorf("%s: %s: %q", path, key, h.Get(key))
			}
		}
		if strings.Contains(a.body, "style=") || strings.Contains(a.body, "onclick") {
			t.Errorf("%s has what its policy forbids", path)
		}
	}
	if strings.Contains(policy, "unsafe") || !strings.Contains(policy, "frame-ancestors 'none'") {
		t.Error(policy)
	}
}

// TestTextOfClientsIsText: names that look like HTML, and line ends in what an admin sends, stay text in pages, the
// audit log and the daemon's log.
func TestTextOfClientsIsText(t *testing.T) {
	w := newWorld(t, 0)
	addr := addrOf(1)
	const evil = `<script>alert(1)</script>"'><img src=x onerror=alert(2)>`
	must(t, w.table.Lease(session.Key{MAC: [6]byte{2, 0, 0, 0, 0, 1}, Addr: addr}, evil, time.Now().Add(time.Hour)))
	_, err := w.table.Admit(addr, session.Login{User: evil})
	must(t, err)
	ann := w.logIn("ann")
	for _, path := range []string{"/sessions", "/sessions/" + addr.String(), "/sessions?q=" + url.QueryEscape(evil),
		"/vouchers?name=" + url.QueryEscape(evil), "/whois?endpoint=" + url.QueryEscape(evil),
		"/login?next=" + url.QueryEscape(evil), "/audit"} {
		if a := ann.get(path); strings.Contains(a.body, "<script>alert") || strings.Contains(a.body, "<img") {
			t.Errorf("%s has the client's text as HTML", path)
		}
	}
	line := "x\n{\"id\":99,\"who\":\"forged\",\"action\":\"forged\"}\nlevel=ERROR"
	w.as("ann", "POST", "/api/v1/vouchers/revoke", map[string]string{"name": line})
	w.send(plainClient, "GET", "/api/v1/account", "", func(r *http.Request) { r.SetBasicAuth("a\nlevel=ERROR", "x") })
	for _, e := range w.entries() {
		if e.Who == "forged" {
			t.Errorf("an entry was forged: %+v", e)
		}
	}
	if strings.Contains(w.said.String(), "\nlevel=ERROR") {
		t.Error("a line of the log was forged")
	}
}

// TestOddPaths: paths that lead elsewhere are refused, and a login leads to no other site.
func TestOddPaths(t *testing.T) {
	w := newWorld(t, 1)
	ann := w.logIn("ann")
	for _, path := range []string{"/sessions/../audit", "/static/../admin.go", "/static/%2e%2e/%2e%2e/etc/passwd",
		"//evil.example/", "/static/style.css", "/api/v1/../../sessions", "/sessions/%00",
		"/api/v1/sessions/10.0.0.1%2fend"} {
		if a := ann.get(path); a.StatusCode < 400 {
			t.Errorf("%s is answered %s", path, a.Status)
		}
	}
	for _, next := range []string{"//evil.example", "https://evil.example", "/\\evil.example",
		"/sessions/..//evil.example", "javascript:alert(1)", "/none"} {
		if got := localPath(next); got != "/sessions" {
			t.Errorf("a login leads from %q to %q", next, got)
		}
	}
	if got := localPath("/audit?cursor=7"); got != "/audit?cursor=7" {
		t.Errorf("a login leads to %q", got)
	}
	for _, method := range []string{"OPTIONS", "TRACE", "PUT", "DELETE"} {
		if a := w.send(ann.client, method, "/sessions", "", nil); a.StatusCode < 400 {
			t.Errorf("%s is answered %s", method, a.Status)
		}
	}
}

// TestLargeBodies: more than a form or a request needs is refused, and not read.
func TestLargeBodies(t *testing.T) {
	w := newWorld(t, 1)
	large := strings.Repeat("x", 2*maxBodyBytes)
	if a := w.as("ann", "POST", "/api/v1/vouchers", `{"batch":"`+large+`"}`); a.StatusCode !=
		http.StatusRequestEntityTooLarge {
		t.Errorf("a large body is answered %s", a.Status)
	}
	ann := w.logIn("ann")
	if a := ann.submit("/sessions", "/vouchers", url.Values{"note": {large}}); a.StatusCode !=
		http.StatusRequestEntityTooLarge {
		t.Errorf("a large form is answered %s", a.Status)
	}
	if a := w.visitor().post("/login", url.Values{"name": {large}}); a.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a large login is answered %s", a.Status)
	}
}
