package oidc

import (
	"strings"
	"testing"
	"unicode"
)

// TestParseCallback: an answer has a state, and either a code or an error, each once.
func TestParseCallback(t *testing.T) {
	for query, want := range map[string]string{
		"state=s&code=c&iss=https%3A%2F%2Fi":                              "s c  https://i",
		"state=s&error=access_denied&error_description=no%0Athank+you%1b": "s  access_denied ",
		"code=c&state=s&session_state=x&more=y&more=z":                    "s c  ",
		"code=c": "", "state=s": "", "": "", "state=s&code=c&error=e": "", "state=s&code=c&code=d": "",
		"state=s&state=t&code=c": "", "state=s&code=c&iss=a&iss=b": "", "state=%zz&code=c": "", "state=s;code=c": "",
		"state=s&code=%00": "", "state=s&code=%c3%a4": "", "state=s&code=" + strings.Repeat("x", maxCode+1): "",
		"state=s&code=c&x=" + strings.Repeat("x", maxQuery): "",
	} {
		c, err := parseCallback(query)
		if got := c.state + " " + c.code + " " + c.err + " " + c.issuer; want == "" && err == nil ||
			want != "" && (err != nil || got != want) {
			t.Errorf("%.80q: %q, %v", query, got, err)
		}
	}
	if c, _ := parseCallback("state=s&error=e&error_description=no%0Athank+you%1b"); c.description != "no thank you" {
		t.Errorf("the description is %q", c.description)
	}
}

// maxText is the longest text of a provider in messages, bytes.
const maxText = 300 + len("…")

// FuzzParseCallback: whatever a browser sends is refused, or is an answer of one line of printable text.
func FuzzParseCallback(f *testing.F) {
	f.Add("state=s&code=c&iss=https%3A%2F%2Fi")
	f.Add("state=s&error=access_denied&error_description=%ff%e2%80%ae")
	f.Fuzz(func(t *testing.T, query string) {
		c, err := parseCallback(query)
		if err != nil {
			if c != (callback{}) {
				t.Errorf("%q: refused with %v, and read: %+v", query, err, c)
			}
			return
		}
		if c.state == "" || (c.code == "") == (c.err == "") || !plain(c.state+c.code+c.err+c.issuer) ||
			len(c.description) > maxText ||
			strings.ContainsFunc(c.description, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q: %+v", query, c)
		}
	})
}
