package session

import (
	"strings"
	"testing"
)

func TestForUser(t *testing.T) {
	for in, want := range map[string]string{
		"":                            "",
		"  expired \r\n yesterday ":   "expired yesterday",
		"a\x00b\x1b[1mc\u202ed\xff":   "ab[1mcd",
		strings.Repeat("é", 151) + "": strings.Repeat("é", 150) + "…",
	} {
		if got := ForUser(in); got != want {
			t.Errorf("ForUser(%q) = %q, want %q", in, got, want)
		}
	}
}
