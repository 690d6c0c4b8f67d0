// Tests of redirection: what a client that has not logged in gets when it asks for a page of another site. start
// (world_test.go) serves a portal, whose table of clients is w.table. clientA and clientB are addresses of clients with
// leases, and site is an address outside the LAN (namespace_test.go). request(t, client, url, form, change...) sends
// one request as a client: GET where form is nil, else POST; the changes edit it before it is sent. base is the URL of
// the portal.

package portal

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/weblink"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

func TestCapturedIsRedirected(t *testing.T) {
	w := start(t, Config{})
	const login = base + "/login"
	long := strings.Repeat("a", weblink.Max)
	for _, tt := range []struct{ method, url, host, want string }{
		{"GET", "http://example.org/", "", login + "?url=http%3A%2F%2Fexample.org%2F"},
		{"GET", "http://Example.ORG/a/b?c=d&e=%2F", "", login + "?url=http%3A%2F%2Fexample.org%2Fa%2Fb%3Fc%3Dd%26e%3D%252F"},
		{"HEAD", "http://example.org/x", "", login + "?url=http%3A%2F%2Fexample.org%2Fx"},
		{"GET", "http://203.0.113.9/x", "", login + "?url=http%3A%2F%2F203.0.113.9%2Fx"},
		{"POST", "http://example.org/form", "", login}, // browsers would fetch it with GET later
		{"OPTIONS", "http://example.org/", "", login},
		{"GET", "http://example.org/" + long, "", login + "?url=http%3A%2F%2Fexample.org%2F"},
		{"GET", "http://203.0.113.9/", "evil.example:8080", login},
		{"GET", "http://203.0.113.9/", "a..b", login},
		{"GET", "http://203.0.113.9/login", "10.1.0.1:8080", login}, // our name, another address
		// DNS rebinding: our address under another site's name.
		{"POST", base + "/logout", "evil.example:8080", login},
		{"GET", base + "/status", "evil.example", login + "?url=http%3A%2F%2Fevil.example%2Fstatus"},
	} {
		r := request(t, clientA, tt.url, nil, func(req *http.Request) { req.Method, req.Host = tt.method, tt.host })
		if r.StatusCode != http.StatusFound || r.Header.Get("Location") != tt.want {
			t.Errorf("%s %.60s (Host %q): %s to %q, want 302 to %q", tt.method, tt.url, tt.host, r.Status,
				r.Header.Get("Location"), tt.want)
		}
		if !r.Close || r.Header.Get("Cache-Control") != "no-store" || r.body != "" {
			t.Errorf("%s %.60s: close %v, Cache-Control %q, body %q; want the connection closed, nothing stored, no body",
				tt.method, tt.url, r.Close, r.Header.Get("Cache-Control"), r.body)
		}
	}
	if s, _ := w.table.Get(clientA); s.State != session.PreAuth {
		t.Errorf("a redirected client is %q, want %q", s.State, session.PreAuth)
	}
	if s, _ := w.table.Get(clientB); s.State != session.Leased {
		t.Errorf("another client is %q, want %q", s.State, session.Leased)
	}
	if got := w.Stats().Redirects; got != 12 {
		t.Errorf("%d redirects were counted, want 12", got)
	}
}

// TestNameThatLeadsElsewhere: a client whose resolver has another address for the portal's name is not redirected to
// that name in a loop.
func TestNameThatLeadsElsewhere(t *testing.T) {
	start(t, Config{Name: portalName})
	own := func(r *http.Request) { r.Host = portalName + ":8080" }
	if to := request(t, clientA, "http://example.org/", nil).Header.Get("Location"); !strings.HasPrefix(
		to, "http://portal.example:8080/login?") {
		t.Errorf("a captured client is sent to %q, want to the name", to)
	}
	if to := request(t, clientA, "http://203.0.113.9/login", nil, own).Header.Get("Location"); to != base+"/login" {
		t.Errorf("before login it is sent to %q, want to the address", to)
	}
	logIn(t, clientA)
	if to := request(t, clientA, "http://203.0.113.9/status", nil, own).Header.Get("Location"); to != base+"/status" {
		t.Errorf("after login it is sent to %q, want to the address", to)
	}
	if r := request(t, clientA, base+"/status", nil, own); r.StatusCode != 200 {
		t.Errorf("the name at the right address: %s", r.Status)
	}
}

// TestOddRequests sends what scanners and worms send. Each request is answered at once and its connection closed.
func TestOddRequests(t *testing.T) {
	start(t, Config{})
	for _, tt := range []struct{ name, send, want string }{
		{"HTTP/0.9", "GET /\r\n\r\n", "HTTP/1.1 400 "},
		{"HTTP/1.0 without Host", "GET /x HTTP/1.0\r\n\r\n", "HTTP/1.0 302 "},
		{"no Host", "GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
		{"two Hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "HTTP/1.1 400 "},
		{"Host with a line feed", "GET / HTTP/1.1\r\nHost: a\nb: c\r\n\r\n", "HTTP/1.1 302 "},
		{"Host of garbage", "GET / HTTP/1.1\r\nHost: \x01\x02\xff\r\n\r\n", "HTTP/1.1 400 "},
		{"CONNECT", "CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n", "HTTP/1.1 400 "},
		{"absolute form", "GET http://example.org/p HTTP/1.1\r\nHost: other\r\n\r\n", "HTTP/1.1 302 "},
		{"asterisk form", "OPTIONS * HTTP/1.1\r\nHost: example.org\r\n\r\n", "HTTP/1.1 302 "},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "HTTP/1.1 400 "},
		{"SSH", "SSH-2.0-OpenSSH_9.2\r\n\r\n", "HTTP/1.1 400 "},
		{"header of 64 KB", "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n", "HTTP/1.1 431 "},
		{"body that never comes", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n", "HTTP/1.1 302 "},
		{"smuggling", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
			"HTTP/1.1 302 "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn, err := dialFrom(clientA)(t.Context(), "tcp", "203.0.113.9:80")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if got := conn.RemoteAddr().String(); got != "203.0.113.9:80" {
				t.Fatalf("connected to %s", got)
			}
			go conn.Write([]byte(tt.send)) // may be cut off
			head := readHead(t, conn)
			if !strings.HasPrefix(head, tt.want) {
				t.Errorf("answer %q, want %q…", head, tt.want)
			}
			if !strings.Contains(strings.ToLower(head), "connection: close") && !strings.HasPrefix(head, "HTTP/1.0") {
				t.Errorf("the connection stays open: %q", head)
			}
		})
	}
}

// knownProbes lists probes and the answers of the vendors' servers; status 0: not answered as a probe.
var knownProbes = []struct {
	url, body string
	status    int
}{
	{"http://captive.apple.com/hotspot-detect.html",
		`<HTML><HEAD><TITLE>Success</TITLE></HEAD><BODY>Success</BODY></HTML>`, 200},
	{"http://captive.apple.com/", `<HTML><HEAD><TITLE>Success</TITLE></HEAD><BODY>Success</BODY></HTML>`, 200},
	{"http://www.apple.com/library/test/success.html",
		`<HTML><HEAD><TITLE>Success</TITLE></HEAD><BODY>Success</BODY></HTML>`, 200},
	{"http://connectivitycheck.gstatic.com/generate_204", "", 204},
	{"http://clients3.google.com/generate_204", "", 204},
	{"http://www.google.com/gen_204", "", 204},
	{"http://connectivitycheck.platform.hicloud.com/generate_204_x?", "", 0},
	{"http://connectivitycheck.platform.hicloud.com/generate_204?x=1", "", 204},
	{"http://www.msftconnecttest.com/connecttest.txt", "Microsoft Connect Test", 200},
	{"http://www.msftncsi.com/ncsi.txt", "Microsoft NCSI", 200},
	{"http://detectportal.firefox.com/success.txt?ipv4", "success\n", 200},
	{"http://detectportal.firefox.com/canonical.html",
		`<meta http-equiv="refresh" content="0;url=https://support.mozilla.org/kb/captive-portal"/>`, 200},
	{"http://nmcheck.gnome.org/check_network_status.txt", "NetworkManager is online\n", 200},
	{"http://network-test.debian.org/nm", "NetworkManager is online\n", 200},
	{"http://ping.archlinux.org/nm-check.txt", "NetworkManager is online\n", 200},
	{"http://fedoraproject.org/static/hotspot.txt", "OK", 200},
	{"http://connectivity-check.ubuntu.com./", "", 204},
	{"http://networkcheck.kde.org/", "OK\n", 200},
	{"http://spectrum.s3.amazonaws.com/kindle-wifi/wifistub.html",
		"<html><body>81ce4465-7167-4dcb-835b-dcc9e44c112a</body></html>\n", 200},
	{"http://fireoscaptiveportal.com/generate_204", "", 204},
	{"http://www.msftconnecttest.com/redirect", "", 0},
	{"http://example.org/connecttest", "", 0},
}

// TestProbes: before login every probe is redirected, which opens the login page; afterwards the answer equals that of
// the vendor's server.
func TestProbes(t *testing.T) {
	w := start(t, Config{})
	for _, p := range knownProbes {
		r := request(t, clientA, p.url, nil)
		if to := r.Header.Get("Location"); r.StatusCode != 302 || !strings.HasPrefix(to, base+"/login") {
			t.Errorf("before login %s: %s to %q, want a redirect to the login page", p.url, r.Status, to)
		}
		if to := r.Header.Get("Location"); p.status != 0 && to != base+"/login" {
			t.Errorf("before login %s: to %q; nobody wants to be taken back to a probe", p.url, to)
		}
	}
	logIn(t, clientA)
	for _, p := range knownProbes {
		r := request(t, clientA, p.url, nil)
		if p.status == 0 {
			if to := r.Header.Get("Location"); r.StatusCode != 302 || !strings.HasPrefix(to, base+"/status") {
				t.Errorf("after login %s: %s to %q, want a redirect to the status page", p.url, r.Status, to)
			}
			continue
		}
		if r.StatusCode != p.status || r.body != p.body || !r.Close {
			t.Errorf("after login %s: %s %q, close %v; want %d %q and close", p.url, r.Status, r.body, r.Close, p.status, p.body)
		}
	}
	if r := request(t, clientA, "http://connectivity-check.ubuntu.com/", nil); r.Header.Get(
		"X-NetworkManager-Status") != "online" {
		t.Errorf("Ubuntu's probe is answered with %v, without the field that NetworkManager looks for", r.Header)
	}
	if r := request(t, clientB, knownProbes[0].url, nil); r.StatusCode != 302 {
		t.Errorf("the probe of a client that is not logged in: %s, though another is", r.Status)
	}
	if s := w.Stats(); s.Probes != 20 {
		t.Errorf("%d answered probes were counted, want 20", s.Probes)
	}
}

// TestUnknownClient: a client without a lease is redirected, and the page explains it.
func TestUnknownClient(t *testing.T) {
	start(t, Config{})
	stranger := netip.MustParseAddr("10.1.9.9")
	if r := request(t, stranger, "http://example.org/", nil); r.StatusCode != 302 {
		t.Errorf("redirect: %s", r.Status)
	}
	for _, path := range []string{"/login", "/status"} {
		if r := request(t, stranger, base+path, nil); r.StatusCode != 403 || !strings.Contains(r.body, english.UnknownText) {
			t.Errorf("%s: %s\n%s", path, r.Status, r.main())
		}
	}
	if r := request(t, stranger, base+"/login",
		url.Values{"username": {goodUser}, "password": {goodPassword}}); r.StatusCode != 403 {
		t.Errorf("log-in: %s", r.Status)
	}
}

// TestConnectionsAreBounded: one client's connections do not keep others out, and closed connections free their places.
func TestConnectionsAreBounded(t *testing.T) {
	w := start(t, Config{MaxConnsPerClient: 8, MaxConns: 100})
	var open []net.Conn
	for range 8 {
		conn, err := dialFrom(clientA)(t.Context(), "tcp", "203.0.113.9:80")
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\n") // so that it is accepted before the next one
	}
	if _, err := tryRequest(clientA, "http://example.org/", nil); err == nil {
		t.Error("a ninth connection of a client was served")
	}
	if r := request(t, clientB, "http://example.org/", nil); r.StatusCode != 302 {
		t.Errorf("another client: %s", r.Status)
	}
	if w.Stats().Turned == 0 {
		t.Error("nobody was counted as refused")
	}
	for _, c := range open {
		c.Close()
	}
	await(t, "room for the client again", func() bool {
		_, err := tryRequest(clientA, "http://example.org/", nil)
		return err == nil
	})
}

func TestConnectionLimiter(t *testing.T) {
	c := &connLimiter{max: 40, maxPerClient: 16, clients: map[netip.Addr]int{}}
	admit := func(client string, n int) (in int) {
		for range n {
			if c.count(netip.MustParseAddr(client)) == admitted {
				in++
			}
		}
		return in
	}
	for _, tt := range []struct {
		client string
		want   int
	}{
		{"10.0.0.1", 16}, // its share
		{"10.0.0.2", 4},  // half is in use: its share is now an eighth
		{"10.0.0.3", 2},
		{"10.0.0.4", 2},
	} {
		if got := admit(tt.client, 20); got != tt.want {
			t.Errorf("%s got %d connections, want %d", tt.client, got, tt.want)
		}
	}
	for range 16 {
		c.uncount(netip.MustParseAddr("10.0.0.1"))
	}
	if got := admit("10.0.0.5", 20); got != 12 {
		t.Errorf("with 8 in use a client got %d connections, want 12", got)
	}
	if c.total != 20 || len(c.clients) != 4 {
		t.Errorf("%d connections of %d clients are counted, want 20 of 4", c.total, len(c.clients))
	}
}

// TestSilentClientIsCutOff: a slow request holds its connection no longer than the limit.
func TestSilentClientIsCutOff(t *testing.T) {
	start(t, Config{})
	conn, err := dialFrom(clientA)(t.Context(), "tcp", "203.0.113.9:80")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: exa")
	conn.SetReadDeadline(time.Now().Add(60 * time.Second)) // only so that a failure does not hang
	if _, err := bufio.NewReader(conn).ReadByte(); err == nil {
		t.Error("half a request was answered")
	} else if e, ok := err.(net.Error); ok && e.Timeout() {
		t.Error("the connection is still open")
	}
}

// FuzzRequest gives the handler every request that net/http accepts.
func FuzzRequest(f *testing.F) {
	f.Add([]byte("GET /a HTTP/1.1\r\nHost: example.org\r\n\r\n"), true)
	f.Add([]byte("POST /login HTTP/1.1\r\nHost: 10.1.0.1:8080\r\nContent-Type: "+
		"application/x-www-form-urlencoded\r\nContent-Length: 9\r\n\r\nusername="), false)
	f.Add([]byte("GET /login?url=http://x/ HTTP/1.1\r\nHost: 10.1.0.1:8080\r\nAccept-Language: de;q=0.5\r\n\r\n"), false)
	tb := &table{clients: map[netip.Addr]session.Session{}}
	p, err := New(Config{Address: portalAddr, Methods: Methods{Login: true}}, tb, &users{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte, foreign bool) {
		req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(string(raw))))
		if err != nil {
			return
		}
		tb.lease(clientA)
		c := &peer{client: clientA, local: portalAddr, serverCtx: t.Context(), limiter: &connLimiter{}}
		if foreign {
			c.local = netip.AddrPortFrom(site, 80)
		}
		w := httptest.NewRecorder()
		p.ServeHTTP(w, req.WithContext(context.WithValue(t.Context(), peerKey{}, c)))
		if s, _ := tb.Get(clientA); s.State == session.Authenticated {
			t.Fatal("logged in without a token")
		}
		to := w.Header().Get("Location")
		if to != "" && !strings.HasPrefix(to, base+"/login") &&
			!(strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "//")) {
			t.Fatalf("redirected to %q", to)
		}
		if foreign && w.Code != http.StatusFound && w.Code != http.StatusBadRequest {
			t.Fatalf("a captured request was answered with %d", w.Code)
		}
	})
}

// await waits until a condition holds.
var await = netnstest.Until
