// Tests of the portal over TLS. start (world_test.go) serves it over HTTP at portalAddr and over TLS at tlsAddr.
// dialFrom connects from a client's address, such as clientA, and resolves every name to site, an address outside the
// LAN.

package portal

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const portalName = "portal.example"

// writeCertificate makes a certificate for a name, signed by itself.
func writeCertificate(t testing.TB, dir, name string, serial int64) (TLS, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(t, dir, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	pool := x509.NewCertPool()
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(cert)
	return TLS{Address: tlsAddr, Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}, pool
}

const secure = "https://portal.example:8443"

// secureClient is clientA, who trusts the certificate and does not follow redirects.
func secureClient(pool *x509.CertPool) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext: dialFrom(clientA), TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true,
			ForceAttemptHTTP2: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// TestTLSIsWhereLinksLead: links lead to the portal's TLS address, even in answers to plain HTTP.
func TestTLSIsWhereLinksLead(t *testing.T) {
	files, pool := writeCertificate(t, t.TempDir(), portalName, 1)
	w := start(t, Config{Name: portalName, TLS: files})
	if got := w.APIURL(); got != secure+"/api/captive-portal" {
		t.Errorf("APIURL() = %q", got)
	}
	client := secureClient(pool)
	for from, want := range map[string]string{
		"http://example.org/a":                          secure + "/login?url=http%3A%2F%2Fexample.org%2Fa",
		base + "/login?url=http%3A%2F%2Fexample.org%2F": secure + "/login?url=http%3A%2F%2Fexample.org%2F",
		base + "/login?url=javascript%3Aalert(1)":       secure + "/login",
		base + "/status":                                secure + "/",
	} {
		resp, err := client.Get(from)
		if err != nil {
			t.Fatal(err)
		}
		if got := read(t, resp).Header.Get("Location"); got != want {
			t.Errorf("%s: %s to %q, want %q", from, resp.Status, got, want)
		}
	}
	if resp, err := client.Get("https://10.1.0.1:8443/login"); err == nil {
		t.Errorf("the certificate is for the name, yet the address was accepted: %s", resp.Status)
	}
}

func TestTLSLogin(t *testing.T) {
	files, pool := writeCertificate(t, t.TempDir(), portalName, 1)
	for _, f := range []string{files.Cert, files.Key} { // byte order marks, which editors write
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		write(t, "", f, "\ufeff"+string(text))
	}
	w := start(t, Config{Name: portalName, TLS: files})
	client := secureClient(pool)
	send := func(address string, form url.Values) reply {
		t.Helper()
		ask := client.Get
		if form != nil {
			ask = func(address string) (*http.Response, error) { return client.PostForm(address, form) }
		}
		resp, err := ask(address)
		if err != nil {
			t.Fatal(err)
		}
		return read(t, resp)
	}
	if r := send(base+apiPath, nil); r.StatusCode != 200 || !strings.Contains(r.body, `"user-portal-url":"`+secure+`/"`) {
		t.Errorf("API over plain HTTP: %s %s", r.Status, r.body)
	}
	if r := send(secure+apiPath, nil); r.StatusCode != 200 || r.ProtoMajor != 1 ||
		!strings.Contains(r.body, `"captive":true`) {
		t.Errorf("API over TLS: %s %s %s", r.Proto, r.Status, r.body)
	}
	login := send(secure+"/login", nil)
	f := url.Values{
		"token": {tokenPattern.FindStringSubmatch(login.body)[1]}, "username": {goodUser}, "password": {goodPassword}}
	if r := send(base+"/login", f); r.StatusCode != 303 || r.Header.Get("Location") != secure+"/" ||
		w.users.questions() != 0 {
		t.Errorf("a password over plain HTTP: %s to %q", r.Status, r.Header.Get("Location"))
	}
	if r := send(secure+"/login", f); r.StatusCode != 303 || r.Header.Get("Location") != "/status" {
		t.Errorf("log-in: %s to %q", r.Status, r.Header.Get("Location"))
	}
}

func TestCertificateIsRenewed(t *testing.T) {
	dir := t.TempDir()
	files, _ := writeCertificate(t, dir, portalName, 1)
	w := start(t, Config{Name: portalName, TLS: files})
	serial := func() int64 {
		t.Helper()
		w.cert.Recheck() // as after a minute
		raw, err := dialFrom(clientA)(t.Context(), "tcp", tlsAddr.String())
		if err != nil {
			t.Fatal(err)
		}
		conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, ServerName: portalName})
		defer conn.Close()
		if err := conn.Handshake(); err != nil {
			t.Fatal(err)
		}
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	later := func(d time.Duration) {
		for _, file := range []string{files.Cert, files.Key} {
			if err := os.Chtimes(file, time.Time{}, time.Now().Add(d)); err != nil {
				t.Fatal(err)
			}
		}
	}
	writeCertificate(t, dir, portalName, 2)
	later(time.Second)
	if got := serial(); got != 2 {
		t.Errorf("after renewal certificate %d is in use", got)
	}
	writeCertificate(t, dir, "other.example", 3)
	later(2 * time.Second)
	if got := serial(); got != 2 {
		t.Errorf("certificate %d, for another name, is in use", got)
	}
	if _, err := New(Config{Address: portalAddr, Name: portalName, TLS: files, Methods: Methods{Login: true}}, w.table,
		w.users); err == nil || !strings.Contains(err.Error(), "other.example") {
		t.Errorf("New with a certificate for another name: %v", err)
	}
}

func read(t testing.TB, resp *http.Response) reply {
	t.Helper()
	defer resp.Body.Close()
	var b strings.Builder
	if err := resp.Write(&b); err != nil {
		t.Fatal(err)
	}
	return reply{resp, b.String()}
}
