package config

import (
	"strings"
	"testing"
)

// TestAdminMistakes: passwords never cross a network in plain text, and keys without effect are named.
func TestAdminMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"listen = \"192.0.2.1:8444\"\naccounts = \"a\"":                                    "admin.tls_cert: missing: without it passwords",
		"listen = \"0.0.0.0:8444\"\naccounts = \"a\"":                                      "would be open to clients",
		"listen = \"127.0.0.1:8444\"":                                                      "admin.accounts: missing",
		"accounts = \"a\"":                                                                 "has no effect: there is no admin.listen",
		"listen = \"127.0.0.1:8444\"\naccounts = \"a\"\nuser_header = \"X-User\"":          "admin.trusted_proxies: missing",
		"listen = \"unix:/run/a\"\naccounts = \"a\"\ntls_cert = \"c\"\ntls_key = \"k\"":    "has no effect: a Unix socket",
		"listen = \"127.0.0.1:8444\"\naccounts = \"a\"\nidle_timeout = \"13h\"":            "longer than admin.session_timeout",
		"listen = \"127.0.0.1:8444\"\naccounts = \"a\"\ntrusted_proxies = [\"0.0.0.0/0\"]": "admin.trusted_proxies",
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
