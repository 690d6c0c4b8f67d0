package weblink

import (
	"net/url"
	"strings"
	"testing"
)

func TestOriginal(t *testing.T) {
	for _, tt := range []struct{ host, target, want string }{
		{"example.org", "/a?b=c", "http://example.org/a?b=c"},
		{"example.org:80", "/", "http://example.org/"},
		{"EXAMPLE.org.", "/", "http://example.org./"},
		{"example.org:8080", "/", ""},
		{"example.org:", "/", "http://example.org/"},
		{"192.0.2.1", "/", "http://192.0.2.1/"},
		{"[2001:db8::1]", "/", "http://[2001:db8::1]/"},
		{"[2001:DB8::1]:80", "/a?b", "http://[2001:db8::1]/a?b"},
		{"[2001:db8::1]:81", "/", ""},
		{"[2001:db8::1%25eth0]", "/", ""},
		{"[fe80::1]", "/", ""},
		{"[::ffff:192.0.2.1]", "/", ""},
		{"[2001:db8::1", "/", ""},
		{"2001:db8::1", "/", ""},
		{"[example.org]", "/", ""},
		{"0x7f.1", "/", ""},
		{"1.2", "/", ""},
		{"", "/", ""},
		{"a b", "/", ""},
		{"-a.example", "/", ""},
		{"xn--bcher-kva.example", "/", "http://xn--bcher-kva.example/"},
		{"bücher.example", "/", ""},
		{"a@b", "/", ""},
		{"a/b", "/", ""},
		{"_dmarc.example.org", "/", "http://_dmarc.example.org/"},
		{strings.Repeat("a", 64) + ".org", "/", ""},
		{"example.org", "//evil.example/", "http://example.org//evil.example/"},
		{"example.org", "/\r\nSet-Cookie: a", "http://example.org/"},
		{"example.org", "/<script>", "http://example.org/%3Cscript%3E"},
		{"example.org", "/ü", "http://example.org/"},
		{"example.org", "@evil.example/", "http://example.org/"},
		{"example.org", "*", "http://example.org/"},
		{"example.org", "/" + strings.Repeat("a", Max), "http://example.org/"},
	} {
		if got := Original(tt.host, tt.target); got != tt.want {
			t.Errorf("Original(%.30q, %.30q) = %.80q, want %q", tt.host, tt.target, got, tt.want)
		}
	}
}

func TestParse(t *testing.T) {
	for _, good := range []string{"http://example.org/", "https://example.org/a?b#c", "http://192.0.2.1:8080/x",
		"http://[2001:db8::1]/", "https://[2001:db8::1]:8443/x"} {
		if got, ok := Parse(good); !ok || got != good {
			t.Errorf("Parse(%q) = %q, %v", good, got, ok)
		}
	}
	for _, bad := range []string{
		"", "/login", "//evil.example/", "javascript:alert(1)", "JAVASCRIPT://x/%0aalert(1)", "data:text/html,x",
		"http:", "http://", "http:example.org", "http:///x", "ftp://example.org/", "http://user:pw@example.org/",
		"http://example.org@evil.example/", "http://ex ample.org/", "http://example.org/\n", "http://example.org:0/",
		"http://example.org:99999/", "http://[::1]/", "http://[fe80::1%25eth0]/", "http://[::ffff:192.0.2.1]/",
		"http://exämple.org/",
		"http://example.org/" + strings.Repeat("x", Max),
		"http://example.org/" + strings.Repeat("\"", 400), // longer once it is encoded
	} {
		if got, ok := Parse(bad); ok {
			t.Errorf("Parse(%.60q) = %q, want none", bad, got)
		}
	}
}

func FuzzOriginal(f *testing.F) {
	f.Add("example.org", "/a?b=c#d")
	f.Add("user@evil.example:80", "//x\r\n")
	f.Fuzz(func(t *testing.T, host, target string) {
		link := Original(host, target)
		if link == "" {
			return
		}
		u, err := url.Parse(link)
		if err != nil || u.Scheme != "http" || u.User != nil || len(link) > Max || u.Port() != "" && u.Port() != "80" {
			t.Fatalf("%q: %v", link, err)
		}
		name, _, _ := strings.Cut(host, ":")
		if bare, bracketed := strings.CutPrefix(host, "["); bracketed {
			name, _, _ = strings.Cut(bare, "]")
		}
		if !strings.EqualFold(u.Hostname(), name) {
			t.Fatalf("Host %q became %q", host, u.Hostname())
		}
		if strings.ContainsAny(link, " \r\n\t<>\"\x00\x7f") {
			t.Fatalf("%q holds what could end an attribute or a header", link)
		}
		if again, ok := Parse(link); !ok || again != link {
			t.Fatalf("%q is %q when read again", link, again)
		}
	})
}
