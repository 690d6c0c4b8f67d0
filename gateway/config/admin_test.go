package config

import (
	"strings"
	"testing"
)

// TestAdminMistakes: passwords never cross a network in plain text, and keys without effect are named.
func TestAdminMistakes(t *testing.T) {
	const home, accounts = "listen = \"127.0.0.1:8444\"\n", "accounts = \"a\"\n"
	for text, want := range map[string]string{
		"listen = \"192.0.2.1:8444\"\n" + accounts: "admin.tls_cert: missing: without it passwords",
		"listen = \"0.0.0.0:8444\"\n" + accounts:   "must be one address and a port",
		"listen = \"10.1.0.1:8080\"\n" + accounts:  "is where the portal is (portal.port)",
		home:     "admin.accounts: missing",
		accounts: "has no effect: there is no admin.listen",
		home + accounts + "user_header = \"X-User\"":                             "admin.trusted_proxies: missing",
		home + accounts + "idle_timeout = \"13h\"":                               "longer than admin.session_timeout",
		home + accounts + "trusted_proxies = [\"0.0.0.0/0\"]":                    "admin.trusted_proxies",
		accounts + "listen = \"unix:/run/a\"\ntls_cert = \"c\"\ntls_key = \"k\"": "has no effect: a Unix socket",
	} {
		_, err := Parse("f", []byte(Example+text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for _, text := range []string{"listen = \"127.0.0.1:8444\"\naccounts = \"a\"",
		"listen = \"unix:/run/a\"\naccounts = \"a\"\nuser_header = \"X-User\""} {
		if _, err := Parse("f", []byte(Example+text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}
