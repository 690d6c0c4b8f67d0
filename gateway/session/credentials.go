package session

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Longest credentials, bytes: what fits into RADIUS (RFC 2865, 5.1 and 5.2).
const (
	MaxUser     = 253
	MaxPassword = 128
)

// PlausibleUser reports whether a name can be a user's.
func PlausibleUser(name string) bool { return Printable(name, MaxUser) }

// Printable reports whether s is a text of 1 to most bytes without control characters, which in names could only serve
// attacks on logs and terminals.
func Printable(s string, most int) bool {
	return s != "" && len(s) <= most && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// maxMessage bounds a server's message to the user, bytes: RADIUS could send 4 KB.
const maxMessage = 300

// ForUser returns a server's message as one printable line. It is not HTML.
func ForUser(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "")), " ")
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
	if len(s) > maxMessage {
		s = strings.ToValidUTF8(s[:maxMessage], "") + "…"
	}
	return s
}
