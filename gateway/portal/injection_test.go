// Tests that nothing that a client sends becomes HTML, a header or a path. start (world_test.go) serves a portal, whose
// table of clients is w.table. request(t, client, url, form, change...) sends one request as a client: GET where form
// is nil, else POST. reply.main() is the page without its head. token is the hidden field that proves that a form comes
// from the portal's own page.

package portal

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// TestInjection: what clients send, and users' names, appear on pages only as text, and never in a header. No path
// reaches a file.
func TestInjection(t *testing.T) {
	w := start(t, Config{})
	names := []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' autofocus onfocus='alert(1)`, `{{.Token}}`,
		`{{template "head" .}}`, `{{printf "%s" .Style}}`,
		`</style><b>`, `javascript:alert(1)`, `&lt;b&gt;`, "\u202egnp.exe", `../../../etc/passwd`, `$(id)`, `%s%n`,
	}
	tok := token(t, clientA, "/login")
	for _, name := range names {
		r := request(t, clientA, base+"/login",
			url.Values{"token": {tok}, "username": {name}, "password": {""}, "url": {name}})
		text := strings.ReplaceAll(r.body, string(w.pages.style), "")
		if strings.ContainsAny(name, `<>"'`) && strings.Contains(text, name) {
			t.Errorf("name %q is not escaped:\n%s", name, r.main())
		}
		if strings.Contains(name, "{{") && !strings.Contains(text, "{{") {
			t.Errorf("name %q: the template was executed:\n%s", name, r.main())
		}
		for field, values := range r.Header {
			if strings.Contains(strings.Join(values, " "), name) {
				t.Errorf("name %q is in the header field %s", name, field)
			}
		}
		s, _ := w.table.Get(clientB)
		s.State, s.Login, s.ID = session.Authenticated, session.Login{User: name}, session.NewID()
		w.table.set(s)
		proof := func(r *http.Request) { r.AddCookie(&http.Cookie{Name: cookieName, Value: cookieOf(w, s)}) }
		if r := request(t, clientB, base+"/status", nil, proof); strings.Contains(r.main(), "<script") ||
			strings.Contains(r.main(), "<img") || strings.Contains(r.main(), "<b>") {
			t.Errorf("user %q on the status page:\n%s", name, r.main())
		}
	}
	for _, path := range []string{"/../../etc/passwd", "/..%2f..%2fetc%2fpasswd", "/style.css", "/web/login.html",
		"/login.html", "/login/../../portal.key", "/%00", "/status/..;/x", "//etc/passwd"} {
		r := request(t, clientA, base, nil, func(r *http.Request) { r.URL.Opaque = "//10.1.0.1:8080" + path })
		if r.StatusCode/100 == 2 || strings.Contains(r.body, "root:") || strings.Contains(r.body, "{{") {
			t.Errorf("%s: %s\n%s", path, r.Status, r.main())
		}
		if to := r.Header.Get("Location"); strings.HasPrefix(to, "//") {
			t.Errorf("%s leads to another site: %q", path, to)
		}
	}
	if s, _ := w.table.Get(clientA); s.State == session.Authenticated {
		t.Error("logged in")
	}
}
