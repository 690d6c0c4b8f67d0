// Helpers of the tests of this package: a Server with a table of clients and an authenticator in memory, asked as
// net/http asks it. The whole way, with a browser and RADIUS, is in package gateway.

package uam

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// Two clients, a user, and the secret.
var (
	clientA = netip.MustParseAddr("10.1.0.5")
	clientB = netip.MustParseAddr("10.1.0.6")
)

const (
	goodUser     = "anna"
	goodPassword = "correct horse battery staple" // longer than a challenge
	theSecret    = "shared"
	portalAt     = "https://hotspot.example/login?theme=sea"
)

// world is a server with its table and users.
type world struct {
	*Server
	mu      sync.Mutex
	clients map[netip.Addr]session.Session // guarded by mu
	asked   []session.Credentials          // guarded by mu
	down    error                          // guarded by mu: Authenticate's
}

func newWorld(t testing.TB, cfg Config) *world {
	t.Helper()
	w := &world{clients: map[netip.Addr]session.Session{}}
	for _, a := range []netip.Addr{clientA, clientB} {
		b := a.As4()
		w.clients[a] = session.Session{Key: session.Key{Addr: a, MAC: [6]byte{2, 0, 0, 0, 0, b[3]}}, State: session.Leased}
	}
	if cfg.PortalURL == "" {
		cfg.PortalURL = portalAt
	}
	cfg.Address = netip.MustParseAddrPort("10.1.0.1:3990")
	if len(cfg.Schemes) == 0 {
		cfg.Schemes = []Scheme{CHAP, PAP, MSCHAPv2}
	}
	cfg.NASID, cfg.Called, cfg.Location = "nas01", "02-00-00-00-00-01", "Harbour"
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	s, err := New(cfg, w, w)
	if err != nil {
		t.Fatal(err)
	}
	w.Server = s
	return w
}

func (w *world) Get(a netip.Addr) (session.Session, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, ok := w.clients[a]
	return s, ok
}

func (w *world) Admit(a netip.Addr, login session.Login) (session.Session, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.clients[a]
	s.State, s.Login, s.ID, s.Began, s.Seen = session.Authenticated, login, login.SessionID, time.Now(), time.Now()
	w.clients[a] = s
	return s, nil
}

func (w *world) End(a netip.Addr, _ session.Cause) (session.Session, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.clients[a]
	w.clients[a] = session.Session{Key: s.Key, State: session.PreAuth}
	return w.clients[a], nil
}

// Authenticate knows anna, by password and by CHAP.
func (w *world) Authenticate(_ context.Context, c session.Credentials) (session.Login, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, c)
	right := c.Password == goodPassword
	if c.CHAP != nil && !c.CHAP.Microsoft {
		sum := md5.Sum(append(append([]byte{c.CHAP.ID}, goodPassword...), c.CHAP.Challenge...))
		right = bytes.Equal(sum[:], c.CHAP.Response)
	}
	switch {
	case w.down != nil:
		return session.Login{}, w.down
	case c.User != goodUser || !right:
		return session.Login{}, session.Reject("<b>no</b> --> such\x1b user")
	}
	return session.Login{User: c.User, SessionID: c.SessionID, Limits: session.Limits{SessionTimeout: time.Hour}}, nil
}

func (w *world) questions() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.asked)
}

func (w *world) online(a netip.Addr) bool {
	s, _ := w.Get(a)
	return s.State == session.Authenticated
}

// over asks as a client, over https or not.
func (w *world) over(t testing.TB, secure bool, client netip.Addr, target string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	u, err := url.ParseRequestURI(target)
	if err != nil {
		t.Skip("net/http refuses the request:", err)
	}
	r.URL = u
	out := httptest.NewRecorder()
	w.Serve(out, r, Peer{Client: client, Secure: secure, Life: t.Context()})
	return out
}

func (w *world) ask(t testing.TB, client netip.Addr, target string) *httptest.ResponseRecorder {
	t.Helper()
	return w.over(t, true, client, target)
}

// sent is where an answer sends the client, if it does: to the portal with a checksum that is right.
func (w *world) sent(t testing.TB, out *httptest.ResponseRecorder) url.Values {
	t.Helper()
	to := out.Header().Get("Location")
	if out.Code != http.StatusFound || !strings.HasPrefix(to, portalAt+"&res=") {
		t.Fatalf("%d, to %q: %s", out.Code, to, out.Body)
	}
	made, sum, found := strings.Cut(to, "&md=")
	if w.cfg.Secret != "" && (!found || sum != Checksum(made, w.cfg.Secret)) {
		t.Errorf("the checksum of %q is wrong", to)
	}
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	return u.Query()
}

// challenge has a client redirected, and returns what it is to answer.
func (w *world) challenge(t testing.TB, client netip.Addr) string {
	t.Helper()
	q := w.sent(t, w.ask(t, client, "/prelogin"))
	if q.Get("res") != "notyet" || len(q.Get("challenge")) != 2*challengeBytes {
		t.Fatalf("redirected with %v", q)
	}
	return q.Get("challenge")
}

// shared is a challenge in hexadecimal, as the portal hashes it with a secret.
func shared(challenge, secret string) []byte {
	raw, err := hex.DecodeString(challenge)
	if err != nil || len(raw) != challengeBytes {
		panic(fmt.Sprint(challenge, err))
	}
	return sharedChallenge([challengeBytes]byte(raw), secret)
}

// chap is the query of a login by CHAP.
func chap(user, password, challenge, secret string) string {
	sum := md5.Sum(append(append([]byte{0}, password...), shared(challenge, secret)...))
	return url.Values{"username": {user}, "response": {hex.EncodeToString(sum[:])}}.Encode()
}

// pap is the query of a login by PAP.
func pap(user, password, challenge, secret string) string {
	key, hidden := shared(challenge, secret), []byte(password)
	for i := range hidden {
		hidden[i] ^= key[i%len(key)]
	}
	return url.Values{"username": {user}, "password": {hex.EncodeToString(hidden)}}.Encode()
}

// countingHandler is a log that counts its messages.
type countingHandler struct{ n atomic.Uint64 }

func (h *countingHandler) Enabled(context.Context, slog.Level) bool  { return true }
func (h *countingHandler) Handle(context.Context, slog.Record) error { h.n.Add(1); return nil }
func (h *countingHandler) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h *countingHandler) WithGroup(string) slog.Handler             { return h }
