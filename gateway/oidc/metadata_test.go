package oidc

import (
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestMetadata: addresses that are not https are refused, and an error names the one, without what else the server
// says.
func TestMetadata(t *testing.T) {
	for _, c := range []struct {
		key, value, want string
	}{
		{"jwks_uri", "http://127.0.0.1/jwks", "jwks_uri"}, {"jwks_uri", "", "jwks_uri"},
		{"userinfo_endpoint", "http://127.0.0.1/me", "userinfo_endpoint"}, {"userinfo_endpoint", "", ""},
		{"authorization_endpoint", "javascript:alert(1)", "authorization_endpoint"},
		{"token_endpoint", "http://127.0.0.1/", "token_endpoint"}, {"x", "y", ""},
		{"status", "503", "the server answers 503"}, {"status", "403", "403"},
	} {
		var s *httptest.Server
		s = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if c.key == "status" {
				w.WriteHeader(map[string]int{"503": 503, "403": 403}[c.value])
				w.Write([]byte(strings.Repeat("\x1b[2J", 10000)))
				return
			}
			all := map[string]any{"issuer": s.URL, "authorization_endpoint": s.URL + "/auth", "token_endpoint": s.URL + "/t",
				"jwks_uri": s.URL + "/jwks", "userinfo_endpoint": s.URL + "/me"}
			maps.Copy(all, map[string]any{c.key: c.value})
			json.NewEncoder(w).Encode(all)
		}))
		ca := filepath.Join(t.TempDir(), "ca.pem")
		netnstest.Must(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
			Bytes: s.Certificate().Raw}), 0o600))
		d, _ := newDesk(t, Config{Providers: []Provider{{Name: "campus", Issuer: s.URL, ClientID: "x", CAFile: ca}}})
		_, err := d.providers[0].metadata(t.Context())
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) ||
			err != nil && (len(err.Error()) > 500 || strings.Contains(err.Error(), "\x1b")) {
			t.Errorf("%s = %q: %.600v", c.key, c.value, err)
		}
		s.Close()
	}
}

// TestHostOf: hosts are as the DNS has them.
func TestHostOf(t *testing.T) {
	for text, want := range map[string]Host{"https://Login.Example.ORG./a": {"login.example.org", 443},
		"https://login.example.org:8443/a": {"login.example.org", 8443}} {
		u, err := url.Parse(text)
		netnstest.Must(t, err)
		if got := hostOf(u); got != want {
			t.Errorf("%s: %+v", text, got)
		}
	}
}
