package oidc

import (
	"errors"
	"maps"
	"strings"
	"testing"
)

// TestOneSource: the address and whether it is verified are of one source.
func TestOneSource(t *testing.T) {
	const a, b = "a@example.org", "b@example.org"
	for _, c := range []struct {
		label         string
		token, second claims
		want          claims
	}{
		{"both in the token", claims{"email": a, "email_verified": true}, claims{"email": b, "email_verified": false},
			claims{"email": a, "email_verified": true}},
		{"the address alone in the token", claims{"email": a}, claims{"email": b, "email_verified": true},
			claims{"email": b, "email_verified": true}},
		{"verified alone in the token", claims{"email_verified": true}, claims{"email": b}, claims{"email": b}},
		{"verified alone at the second", claims{"email": a}, claims{"email_verified": true}, claims{"email": a}},
		{"nothing in the token", claims{}, claims{"email": b, "email_verified": true, "x": 1.},
			claims{"email": b, "email_verified": true, "x": 1.}},
	} {
		if c.token.add(c.second); !maps.Equal(c.token, c.want) {
			t.Errorf("%s: %v", c.label, c.token)
		}
	}
}

// TestForeign: what others say is one short line, and still what it was.
func TestForeign(t *testing.T) {
	inner := errors.New("500: <html>\n\x1b[2J" + strings.Repeat("x", 1<<20))
	err := foreign{inner}
	if s := err.Error(); len(s) > maxText || strings.ContainsAny(s, "\n\x1b") || !errors.Is(err, inner) {
		t.Errorf("%d bytes: %.40q", len(s), s)
	}
}
