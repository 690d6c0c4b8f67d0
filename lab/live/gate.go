package live

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/gateweigh/gateweigh/lab/report"
)

// cookie is the name of the cookie by which a browser stays logged in. Its value is not the token, and is valid only
// until the server ends.
const cookie = "gateweigh"

// gate says who may read.
type gate struct {
	token   [sha256.Size]byte
	open    bool   // no token is needed
	session string // the value of the cookie
	cross   *http.CrossOriginProtection
}

func newGate(token string) gate {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	return gate{sha256.Sum256([]byte(token)), token == "", hex.EncodeToString(key), http.NewCrossOriginProtection()}
}

// knows compares in constant time, whatever the lengths.
func (g gate) knows(token string) bool {
	sum := sha256.Sum256([]byte(token))
	return hmac.Equal(sum[:], g.token[:])
}

// admit reports whether a request may be answered; if not, it has been.
func (g gate) admit(s *Server, w http.ResponseWriter, r *http.Request) bool {
	if g.open {
		// A page elsewhere whose name leads to this machine would read what this machine's user may.
		if !local(r.Host) {
			http.Error(w, "this address is not served: use localhost, or give gateweigh serve a token", http.StatusForbidden)
			return false
		}
		return true
	}
	if c, err := r.Cookie(cookie); err == nil && hmac.Equal([]byte(c.Value), []byte(g.session)) {
		return true
	}
	if bearer, is := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); is && g.knows(bearer) {
		return true
	}
	switch {
	case r.Method == http.MethodGet && (strings.HasSuffix(r.URL.Path, ".css") || strings.HasSuffix(r.URL.Path, ".js")):
		return true // styles and scripts, which every copy of the program has
	case r.Method == http.MethodPost && r.URL.Path == "/login":
		g.login(s, w, r)
	case r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html"):
		g.ask(s, w, http.StatusUnauthorized, "")
	default:
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "a token is needed: Authorization: Bearer TOKEN", http.StatusUnauthorized)
	}
	return false
}

// login takes the token from the form and gives the browser the cookie.
func (g gate) login(s *Server, w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 4096)
	switch {
	case g.cross.Check(r) != nil:
		http.Error(w, "the form is of another site", http.StatusForbidden)
	case !g.knows(strings.TrimSpace(r.PostFormValue("token"))):
		g.ask(s, w, http.StatusUnauthorized, "That is not the token.")
	default:
		http.SetCookie(w, &http.Cookie{Name: cookie, Value: g.session, Path: "/", HttpOnly: true, Secure: r.TLS != nil,
			SameSite: http.SameSiteStrictMode})
		http.Redirect(w, r, "/", http.StatusSeeOther)
	}
}

// ask shows the form.
func (g gate) ask(s *Server, w http.ResponseWriter, status int, wrong string) {
	site := s.site("")
	site.Links = nil
	s.sheet(w, status, report.Sheet{Title: "Token", Site: site}, "login", wrong)
}

// local reports whether a request names this machine itself.
func local(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}
