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

// gate decides which requests are answered.
type gate struct {
	token   [sha256.Size]byte
	open    bool                        // no token is needed
	session string                      // the cookie's value
	cross   *http.CrossOriginProtection // refuses login forms of other sites
}

func newGate(token string) gate {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return gate{sha256.Sum256([]byte(token)), token == "", hex.EncodeToString(key), http.NewCrossOriginProtection()}
}

// tokenMatches compares a token with the server's. The time does not depend on the tokens.
func (g gate) tokenMatches(token string) bool {
	sum := sha256.Sum256([]byte(token))
	return hmac.Equal(sum[:], g.token[:])
}

// admit reports whether the request may be answered. If not, admit has answered it with a refusal or the login form.
func (g gate) admit(s *Server, w http.ResponseWriter, request *http.Request) bool {
	if g.open {
		// Otherwise a foreign page could read runs in the user's browser: by DNS rebinding, a name of its own that resolves
		// to this machine.
		if !isLoopback(request.Host) {
			http.Error(w, "this address is not served: use localhost, or give gateweigh serve a token", http.StatusForbidden)
			return false
		}
		return true
	}
	if c, err := request.Cookie(cookie); err == nil && hmac.Equal([]byte(c.Value), []byte(g.session)) {
		return true
	}
	if bearer, is := strings.CutPrefix(request.Header.Get("Authorization"), "Bearer "); is && g.tokenMatches(bearer) {
		return true
	}
	switch {
	case request.Method == http.MethodGet &&
		(strings.HasSuffix(request.URL.Path, ".css") || strings.HasSuffix(request.URL.Path, ".js")):
		return true // styles and scripts are public: every copy of the program has them
	case request.Method == http.MethodPost && request.URL.Path == "/login":
		g.login(s, w, request)
	case request.Method == http.MethodGet && strings.Contains(request.Header.Get("Accept"), "text/html"):
		g.loginPage(s, w, http.StatusUnauthorized, "")
	default:
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "a token is needed: Authorization: Bearer TOKEN", http.StatusUnauthorized)
	}
	return false
}

// login checks the token of the form and gives the browser the cookie.
func (g gate) login(s *Server, w http.ResponseWriter, request *http.Request) {
	request.Body = http.MaxBytesReader(w, request.Body, 4096)
	switch {
	case g.cross.Check(request) != nil:
		http.Error(w, "the form is of another site", http.StatusForbidden)
	case !g.tokenMatches(strings.TrimSpace(request.PostFormValue("token"))):
		g.loginPage(s, w, http.StatusUnauthorized, "That is not the token.")
	default:
		http.SetCookie(w, &http.Cookie{Name: cookie, Value: g.session, Path: "/", HttpOnly: true, Secure: request.TLS != nil,
			SameSite: http.SameSiteStrictMode})
		http.Redirect(w, request, "/", http.StatusSeeOther)
	}
}

// loginPage answers with the login form. wrong is the message about the last attempt, or "".
func (g gate) loginPage(s *Server, w http.ResponseWriter, status int, wrong string) {
	site := s.site("")
	site.Links = nil
	s.sheet(w, status, report.Sheet{Title: "Token", Site: site}, "login", wrong)
}

// isLoopback reports whether a request's host is localhost or a loopback address.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}
