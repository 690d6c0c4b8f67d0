package admin

import (
	"bufio"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestProxies: only a trusted proxy names people and addresses.
func TestProxies(t *testing.T) {
	named := func(c *Config) { c.UserHeader = "X-Remote-User" }
	trusted := func(c *Config) { c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")} }
	from := func(r *http.Request) {
		r.Header.Set("X-Remote-User", "proxied")
		r.Header.Set("X-Forwarded-For", "203.0.113.9, 198.51.100.7")
	}
	stranger := newWorld(t, 1, named)
	if a := stranger.send(plainClient, "GET", "/sessions", "", from); a.StatusCode != http.StatusSeeOther {
		t.Errorf("a header of anybody is believed: %s", a.Status)
	}
	w := newWorld(t, 1, named, trusted)
	a := w.send(plainClient, "GET", "/sessions", "", from)
	if a.StatusCode != http.StatusOK || !strings.Contains(a.body, "proxied") {
		t.Fatalf("the proxy's header: %s", a.Status)
	}
	form := url.Values{"form": {formField.FindStringSubmatch(w.send(plainClient, "GET",
		"/sessions/"+addrOf(1).String(), "", from).body)[1]}}
	if a := w.send(plainClient, "POST", "/sessions/"+addrOf(1).String()+"/end", form.Encode(), func(r *http.Request) {
		from(r)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}); a.StatusCode != http.StatusSeeOther || w.online(1) {
		t.Errorf("a form by the proxy is answered %s", a.Status)
	}
	if e := w.entries(); len(e) != 1 || e[0].Who != "proxied" || e[0].From != "198.51.100.7" {
		t.Errorf("the audit log has %+v", e)
	}
	mallory := func(r *http.Request) { r.Header.Set("X-Remote-User", "mallory") }
	if a := w.send(plainClient, "GET", "/sessions", "", mallory); a.StatusCode != http.StatusForbidden {
		t.Errorf("a user without an account is answered %s", a.Status)
	}
}

// TestSocket: through a Unix socket the proxy's header names people without trusted_proxies, the file is not open to
// others, a socket that a killed daemon has left is replaced, and another file is not. Long: the steps of
// one socket.
func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	must(t, os.WriteFile(path, nil, 0o600))
	if _, err := listen(t.Context(), "unix:"+path); err == nil || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("over a file: %v", err)
	}
	must(t, os.Remove(path))
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(t, err)
	if _, err := listen(t.Context(), "unix:"+path); err == nil || !strings.Contains(err.Error(), "another program's") {
		t.Errorf("over a socket in use: %v", err)
	}
	left.SetUnlinkOnClose(false)
	must(t, left.Close())
	w := newWorld(t, 1, func(c *Config) { c.Listen, c.UserHeader = "unix:"+path, "X-Remote-User" })
	w.stop()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() { stop(); must(t, <-ended) })
	proxy := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}}}
	netnstest.Await(t, "the socket", func() error {
		c, err := net.Dial("unix", path)
		if err == nil {
			err = c.Close()
		}
		return err
	})
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != socketMode {
		t.Errorf("the socket is %v, %v", info.Mode(), err)
	}
	from := func(name string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set("X-Remote-User", name)
			r.Header.Set("X-Forwarded-For", "198.51.100.7")
		}
	}
	if a := w.send(proxy, "DELETE", "/api/v1/sessions/"+addrOf(1).String(), "", from("proxied")); a.StatusCode !=
		http.StatusOK || w.online(1) {
		t.Errorf("through the socket: %s %s", a.Status, a.body)
	}
	if e := w.entries(); len(e) != 1 || e[0].Who != "proxied" || e[0].From != "198.51.100.7" {
		t.Errorf("the audit log has %+v", e)
	}
	if a := w.send(proxy, "GET", "/sessions", "", from("mallory")); a.StatusCode != http.StatusForbidden {
		t.Errorf("a user without an account is answered %s", a.Status)
	}
}

// certify writes a certificate that is valid from and until, and returns its files.
func certify(t testing.TB, dir string, from, until time.Time) (cert, key string) {
	t.Helper()
	pair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: until,
		DNSNames: []string{"admin.example"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &pair.PublicKey, pair)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(pair)
	must(t, err)
	cert, key = filepath.Join(dir, "admin.pem"), filepath.Join(dir, "admin.key")
	must(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	return cert, key
}

// TestProxyNamesItsAccounts: an account with a password or a token of its own is not the proxy's to give, and a
// password that comes with the proxy's name does not change who asks.
func TestProxyNamesItsAccounts(t *testing.T) {
	w := newWorld(t, 1, func(c *Config) {
		c.UserHeader, c.TrustedProxies = "X-Remote-User", []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	})
	for _, q := range []struct {
		named, user string
		page, api   int
	}{{"ann", "", 403, 401}, {"backup", "", 403, 401}, {"ann", "ann", 403, 401}, {"proxied", "bob", 200, 200},
		{"", "bob", 303, 200}} {
		ask := func(path string) answer {
			return w.send(plainClient, "GET", path, "", func(r *http.Request) {
				if q.named != "" {
					r.Header.Set("X-Remote-User", q.named)
				}
				if q.user != "" {
					r.SetBasicAuth(q.user, "right")
				}
			})
		}
		if a := ask("/sessions"); a.StatusCode != q.page {
			t.Errorf("%+v: the page is answered %s", q, a.Status)
		}
		a := ask("/api/v1/account")
		if a.StatusCode != q.api {
			t.Errorf("%+v: the API is answered %s", q, a.Status)
		} else if want := cmp.Or(q.named, q.user); q.api == 200 && !strings.Contains(a.body, `"`+want+`"`) {
			t.Errorf("%+v: the API takes it for %s", q, a.body)
		}
	}
}

// TestCertificateExpiresMeanwhile: a connection from before does not get in, nor does one that is resumed, once the
// certificate has expired.
func TestCertificateExpiresMeanwhile(t *testing.T) {
	now, dir := time.Now(), t.TempDir()
	w := newWorld(t, 1, func(c *Config) { c.Cert, c.Key = certify(t, dir, now.Add(-48*time.Hour), now.Add(time.Hour)) })
	addr := strings.TrimPrefix(w.base, "http://")
	settings := &tls.Config{InsecureSkipVerify: true, ServerName: "admin.example",
		ClientSessionCache: tls.NewLRUClientSessionCache(10)}
	dial := func() (*tls.Conn, error) { return tls.Dial("tcp", addr, settings) }
	conn, err := dial()
	must(t, err)
	defer conn.Close()
	ask := func() *http.Response {
		fmt.Fprint(conn, "GET /login HTTP/1.1\r\nHost: x\r\n\r\n")
		a, err := http.ReadResponse(bufio.NewReader(conn), nil)
		must(t, err)
		_, err = io.Copy(io.Discard, a.Body)
		must(t, err)
		return a
	}
	if a := ask(); a.StatusCode != http.StatusOK { // with it the client has read a ticket, if there is one
		t.Errorf("before it expires: %s", a.Status)
	}
	again, err := dial()
	must(t, err)
	if again.ConnectionState().DidResume {
		t.Error("the server gives tickets, by which a connection needs no certificate")
	}
	again.Close()
	certify(t, dir, now.Add(-48*time.Hour), now.Add(-time.Hour))
	w.Reload()
	if a := ask(); a.StatusCode != http.StatusServiceUnavailable || !a.Close {
		t.Errorf("on a connection from before: %s, closed: %v", a.Status, a.Close)
	}
	if again, err = dial(); err == nil {
		again.Close()
		t.Error("a connection to be resumed is accepted")
	}
}

// TestExpiredCertificate: with a certificate that has expired nobody gets in, status and log say so, and a renewed one
// is used without a restart.
func TestExpiredCertificate(t *testing.T) {
	now, dir := time.Now(), t.TempDir()
	w := newWorld(t, 1, func(c *Config) { c.Cert, c.Key = certify(t, dir, now.Add(-48*time.Hour), now.Add(-time.Hour)) })
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true}}
	w.base = "https" + strings.TrimPrefix(w.base, "http")
	if resp, err := client.Get(w.base + "/login"); err == nil {
		resp.Body.Close()
		t.Errorf("an expired certificate is used: %s", resp.Status)
	}
	if s := w.State(); !strings.Contains(s.Closed, "has expired at") || !strings.Contains(s.Closed, "renew it") {
		t.Errorf("the status says %+v", s)
	}
	if !strings.Contains(w.said.String(), "the admin page lets nobody in") {
		t.Errorf("the log says\n%s", w.said.String())
	}
	plain, err := net.Dial("tcp", strings.TrimPrefix(w.base, "https://"))
	must(t, err)
	defer plain.Close()
	fmt.Fprint(plain, "GET /login HTTP/1.1\r\nHost: x\r\n\r\n")
	if line, _ := bufio.NewReader(plain).ReadString('\n'); strings.Contains(line, "200") {
		t.Errorf("plain HTTP is answered: %s", line)
	}
	certify(t, dir, now.Add(-time.Hour), now.Add(time.Hour))
	w.Reload()
	if a := w.send(client, "GET", "/login", "", nil); a.StatusCode != http.StatusOK ||
		a.Header.Get("Strict-Transport-Security") == "" {
		t.Errorf("with a renewed certificate: %s", a.Status)
	}
	if s := w.State(); s.Closed != "" {
		t.Errorf("the status says %+v", s)
	}
}
