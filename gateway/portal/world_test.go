// Helpers of all tests of this package: a running portal (world) with a table of clients and an authenticator in
// memory, and functions that send requests as a client. namespace_test.go has the addresses: clientA and clientB are
// clients, portalAddr and tlsAddr the portal's sockets.

package portal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// english are the built-in texts of the default.
var english = builtInTexts()[0]

// table is a table of clients in memory, as far as the portal uses it.
type table struct {
	mu        sync.Mutex
	clients   map[netip.Addr]session.Session // guarded by mu
	fail      error                          // guarded by mu: of Admit and End
	endCauses []session.Cause                // guarded by mu
}

func (tb *table) lease(addr netip.Addr) {
	a := addr.As4()
	tb.set(session.Session{Key: session.Key{Addr: addr, MAC: [6]byte{2, 0, 0, 0, a[2], a[3]}}, State: session.Leased})
}

func (tb *table) set(s session.Session) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.clients[s.Addr] = s
}

func (tb *table) Get(addr netip.Addr) (session.Session, bool) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	s, ok := tb.clients[addr]
	return s, ok
}

func (tb *table) Shown(addr netip.Addr) error {
	return tb.change(addr, func(s *session.Session) { s.State = session.PreAuth })
}

func (tb *table) Admit(addr netip.Addr, login session.Login) (session.Session, error) {
	err := tb.change(addr, func(s *session.Session) {
		s.State, s.Login, s.Began, s.ID = session.Authenticated, login, time.Now(), session.NewID()
	})
	s, _ := tb.Get(addr)
	return s, err
}

func (tb *table) End(addr netip.Addr, cause session.Cause) (session.Session, error) {
	err := tb.change(addr, func(s *session.Session) { s.State, s.Login = session.PreAuth, session.Login{} })
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.endCauses = append(tb.endCauses, cause)
	return tb.clients[addr], err
}

// fails makes Admit and End fail.
func (tb *table) fails(err error) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.fail = err
}

// causes returns those of the ended sessions.
func (tb *table) causes() []session.Cause {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	return slices.Clone(tb.endCauses)
}

func (tb *table) change(addr netip.Addr, f func(*session.Session)) error {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	s, ok := tb.clients[addr]
	if !ok || tb.fail != nil {
		return errors.Join(tb.fail, fmt.Errorf("no client %s", addr))
	}
	f(&s)
	tb.clients[addr] = s
	return nil
}

var _ Sessions = (*table)(nil)

// users is an Authenticator that knows anna.
type users struct {
	mu        sync.Mutex
	requests  int                              // guarded by mu
	down      error                            // guarded by mu: its error
	onRequest func(ctx context.Context, n int) // guarded by mu: called for the n-th request, from 1
}

const (
	goodUser     = "anna@example.org"
	goodPassword = "correct horse"
	hostileReply = "<script>alert(1)</script> account expired\x1b[31m"
)

// wrongPassword is an error like the RADIUS client's.
type wrongPassword struct{ message string }

func (w *wrongPassword) Error() string         { return "rejected" }
func (w *wrongPassword) RejectMessage() string { return w.message }

func (u *users) Authenticate(ctx context.Context, c Credentials) (session.Login, error) {
	u.mu.Lock()
	u.requests++
	n, down, hold := u.requests, u.down, u.onRequest
	u.mu.Unlock()
	if hold != nil {
		hold(ctx, n)
	}
	switch {
	case ctx.Err() != nil:
		return session.Login{}, ctx.Err()
	case down != nil:
		return session.Login{}, down
	case c.Code != "":
		return loginByCode(c.Code)
	case c.User != goodUser || c.Password != goodPassword:
		return session.Login{}, fmt.Errorf("asking: %w", &wrongPassword{hostileReply})
	}
	return session.Login{User: c.User, Limits: session.Limits{SessionTimeout: 100 * 24 * time.Hour, TotalBytes: 5e9}}, nil
}

// answers makes Authenticate return err, or call hold first.
func (u *users) answers(err error, hold func(ctx context.Context, n int)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.down, u.onRequest = err, hold
}

func (u *users) questions() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.requests
}

var _ Authenticator = (*users)(nil)

// world is a running portal with its table and users; clientA and clientB have leases.
type world struct {
	*Portal
	table *table
	users *users
	stop  func() // ends Serve and waits for it
}

// start serves a portal until the test ends. cfg is completed.
func start(t testing.TB, cfg Config) *world {
	t.Helper()
	w := &world{table: &table{clients: map[netip.Addr]session.Session{}}, users: &users{}}
	w.table.lease(clientA)
	w.table.lease(clientB)
	cfg.Address = portalAddr
	if !cfg.Methods.ClickThrough && !cfg.Methods.Voucher {
		cfg.Methods.Login = true
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
	}
	p, err := New(cfg, w.table, w.users)
	if err != nil {
		t.Fatal(err)
	}
	w.Portal = p
	ctx, cancel := context.WithCancel(context.Background())
	plain, err := Listen(ctx, portalAddr)
	if err != nil {
		t.Fatal(err)
	}
	listeners := Listeners{Plain: []net.Listener{plain}}
	if p.cert != nil {
		secure, err := Listen(ctx, tlsAddr)
		if err != nil {
			t.Fatal(err)
		}
		listeners.Secure = append(listeners.Secure, secure)
	}
	served := make(chan error)
	go func() { served <- p.Serve(ctx, listeners) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(w.stop)
	return w
}

// reply is an answer with its body read.
type reply struct {
	*http.Response
	body string
}

// main returns a page's text without its style.
func (r reply) main() string {
	_, text, found := strings.Cut(r.body, "<main>")
	if !found {
		return r.body
	}
	return text
}

// request sends a request as a client; a form makes it a POST. Redirects are not followed, and each request has a
// connection of its own.
func request(t testing.TB, client netip.Addr, address string, form url.Values, change ...func(*http.Request)) reply {
	t.Helper()
	r, err := tryRequest(client, address, form, change...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func tryRequest(client netip.Addr, address string, form url.Values, change ...func(*http.Request)) (reply, error) {
	method, body := http.MethodGet, io.Reader(nil)
	if form != nil {
		method, body = http.MethodPost, strings.NewReader(form.Encode())
	}
	req, err := http.NewRequest(method, address, body)
	if err != nil {
		return reply{}, err
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, f := range change {
		f(req)
	}
	tr := &http.Transport{DialContext: dialFrom(client), DisableKeepAlives: true, DisableCompression: true}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return reply{resp, string(text)}, err
}

const base = "http://10.1.0.1:8080"

var tokenPattern = regexp.MustCompile(`name="token" value="([^"]+)"`)

// token reads the form's token from one of the portal's pages, as a browser does.
func token(t testing.TB, client netip.Addr, path string) string {
	t.Helper()
	r := request(t, client, base+path, nil)
	m := tokenPattern.FindStringSubmatch(r.body)
	if m == nil {
		t.Fatalf("%s for %s has no form: %s\n%s", path, client, r.Status, r.body)
	}
	return m[1]
}

// loginForm is a filled-in login form.
func loginForm(t testing.TB, client netip.Addr, user, password string) url.Values {
	return url.Values{"token": {token(t, client, "/login")}, "username": {user}, "password": {password}}
}

// logIn admits a client through the pages. It returns the change that makes further requests those of the same browser.
func logIn(t testing.TB, client netip.Addr) func(*http.Request) {
	t.Helper()
	r := request(t, client, base+"/login", loginForm(t, client, goodUser, goodPassword))
	if r.StatusCode != http.StatusSeeOther {
		t.Fatalf("log-in: %s\n%s", r.Status, r.body)
	}
	return browserOf(r)
}

// browserOf makes a request one of the browser that got a reply, with its cookies.
func browserOf(r reply) func(*http.Request) {
	return func(req *http.Request) {
		for _, c := range r.Cookies() {
			req.AddCookie(c)
		}
	}
}

// readHead reads an answer up to the end of its header.
func readHead(t testing.TB, conn net.Conn) string {
	t.Helper()
	conn.SetDeadline(time.Now().Add(2 * time.Minute)) // only so that a failure does not hang
	var head strings.Builder
	for r := bufio.NewReader(conn); ; {
		line, err := r.ReadString('\n')
		head.WriteString(line)
		if err != nil || line == "\r\n" {
			return head.String()
		}
	}
}
