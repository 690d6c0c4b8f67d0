package oidctest

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// formAction finds the forms of the provider's pages.
var formAction = regexp.MustCompile(
	`<form[^>]* action="([^"]+)"[^>]*>\s*<input type="hidden" name="prompt" value="([^"]+)"`)

// LogIn goes to the provider's page as a browser does, logs in there with a name, consents, and returns the URL to
// which the provider sends the browser back. An empty name cancels. Long: a browser in one loop.
func (p *Provider) LogIn(t testing.TB, address, name string) *url.URL {
	t.Helper()
	jar, err := cookiejar.New(nil)
	netnstest.Must(t, err)
	pem, err := os.ReadFile(p.Cert)
	netnstest.Must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	browser := &http.Client{Jar: jar, Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	at, err := url.Parse(address)
	netnstest.Must(t, err)
	var form url.Values
	for range 20 {
		if !strings.HasPrefix(at.String(), p.Issuer+"/") {
			return at
		}
		var answer *http.Response
		if form == nil {
			answer, err = browser.Get(at.String())
		} else {
			answer, err = browser.PostForm(at.String(), form)
		}
		netnstest.Must(t, err)
		body, err := io.ReadAll(answer.Body)
		netnstest.Must(t, err)
		answer.Body.Close()
		form = nil
		if to := answer.Header.Get("Location"); to != "" {
			at, err = at.Parse(to)
			netnstest.Must(t, err)
			continue
		}
		found := formAction.FindStringSubmatch(string(body))
		if found == nil {
			t.Fatalf("%s: %s:\n%s", at, answer.Status, body)
		}
		at, err = at.Parse(found[1])
		netnstest.Must(t, err)
		if name == "" {
			at.Path += "/abort"
			continue
		}
		form = url.Values{"prompt": {found[2]}, "login": {name}, "password": {"any"}}
	}
	t.Fatalf("the provider sends the browser on and on: %s", at)
	return nil
}
