package client

import (
	"html"
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"
)

// What forms, inputs and attributes find, as patterns.
var (
	formPattern      = regexp.MustCompile(`(?is)<form\b([^>]*)>(.*?)</form>`)
	inputPattern     = regexp.MustCompile(`(?is)<input\b([^>]*)>`)
	attributePattern = regexp.MustCompile(`(?s)([a-zA-Z-]+)[ \t\n\f\r]*=[ \t\n\f\r]*(?:"([^"]*)"|'([^']*)'|([^ \t\n\f\r"'>]+))`)
)

// checkMarkup holds what is found in a page by hand against what the patterns find.
func checkMarkup(t *testing.T, page string) (found int) {
	t.Helper()
	want := formPattern.FindAllStringSubmatch(page, -1)
	for tag, content := range forms(page) {
		if len(want) <= found || want[found][1] != tag || want[found][2] != content {
			t.Fatalf("form %d of %q is %q with %q; want those of %q", found, page, tag, content, want)
		}
		found++
		checkAttributes(t, tag)
		inside := inputPattern.FindAllStringSubmatch(content, -1)
		n := 0
		for input := range inputs(content) {
			if len(inside) <= n || inside[n][1] != input {
				t.Fatalf("input %d of %q is %q, want those of %q", n, content, input, inside)
			}
			n++
			checkAttributes(t, input)
		}
		if n != len(inside) {
			t.Fatalf("%d inputs in %q, want %d", n, content, len(inside))
		}
	}
	if found != len(want) {
		t.Fatalf("%d forms in %q, want %d", found, page, len(want))
	}
	return found
}

func checkAttributes(t *testing.T, tag string) {
	t.Helper()
	want := map[string]string{}
	for _, m := range attributePattern.FindAllStringSubmatch(tag, -1) {
		want[strings.ToLower(m[1])] = html.UnescapeString(m[2] + m[3] + m[4])
	}
	if got := attributes(tag); !maps.Equal(got, want) {
		t.Fatalf("attributes of %q are %q, want %q", tag, got, want)
	}
}

// pages are what portals send, and what they had better not.
var pages = []string{
	`<html><body><form action="/opennds_preauth/" method="get">
<input type="hidden" name="fas" value="aGlkPTE/Mg=="><input type="submit" value="Accept" ></form><form></form>`,
	`<FORM ACTION='next?x=1'><INPUT NAME=tok VALUE=7 checked data-x = "1">< input><inputs a=b></Form>`,
	`<formula a="b"></form><form a="b" c='d"e' f=g"h i= "j>k"</form><form <form></form>`,
	`<form x="unclosed y=1 z='></form`,
	`<form a==b -c="&lt;&amp;" d=ö>ſ</FORM><`,
	"<form\n method\t=\r\npost><input\x00name=a></form>",
}

func TestMarkup(t *testing.T) {
	for _, page := range pages {
		checkMarkup(t, page)
	}
	login, err := os.ReadFile("testdata/login.html")
	if err != nil {
		t.Fatal(err)
	}
	if n := checkMarkup(t, string(login)); n != 1 {
		t.Errorf("%d forms in gatewayd's login page, want 1", n)
	}
}

func FuzzMarkup(f *testing.F) {
	for _, page := range pages {
		f.Add(page)
	}
	f.Fuzz(func(t *testing.T, page string) { checkMarkup(t, page) })
}

// BenchmarkParseForm reads gatewayd's login page, as each client does.
func BenchmarkParseForm(b *testing.B) {
	login, err := os.ReadFile("testdata/login.html")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		for tag, content := range forms(string(login)) {
			attributes(tag)
			for input := range inputs(content) {
				attributes(input)
			}
		}
	}
}
