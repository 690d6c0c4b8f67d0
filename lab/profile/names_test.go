package profile

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// namesOf returns the innermost frame of each sample, as text. script is output of perf script.
func namesOf(t *testing.T, script string) (names []string) {
	t.Helper()
	rec, err := ParseScript(strings.NewReader(script), noNames)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range rec.Samples {
		names = append(names, rec.names(s)[0])
	}
	return names
}

// TestNamesOfOtherLanguages: names of Go functions are shortened, those of other languages are not. Names of functions
// and files may contain blanks and parentheses.
func TestNamesOfOtherLanguages(t *testing.T) {
	text, err := os.ReadFile("testdata/odd-symbols.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"operator/(Vec const&, double) [cppgw]", "LazyCompile:*handle /srv/portal/app.js:12 [perf-77.map]",
		"LazyCompile:~login /srv/other/app.js:12 [perf-77.map]",
		"crypto/rand.Read [gogw]", "math/rand.Read [gogw]", "main.handle [gw]",
	}
	if diff := cmp.Diff(want, namesOf(t, string(text))); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	for frame, want := range map[string]string{
		"example.org/a/b.(*T).F (/opt/x)":                        "b.(*T).F [x]",
		"gopkg.in/yaml%2ev3.Unmarshal (/opt/x)":                  "yaml%2ev3.Unmarshal [x]",
		"example.org/a/b.F[go.shape.int] (/opt/x (deleted))":     "b.F[go.shape.int] [x]",
		"example.org/a/b.F.func1 (/opt/a (b/x)":                  "b.F.func1 [x]",
		"example.org/a/b.F (/opt/a)b/x)":                         "b.F [x]",
		"example.org/a/b.F (/opt/x (old) (deleted))":             "b.F [x (old)]",
		"type:.eq.example.org/a/b.T (/opt/x)":                    "type:.eq.example.org/a/b.T [x]",
		"operator/=(V&, int) (/opt/x)":                           "operator/=(V&, int) [x]",
		"(anonymous namespace)::f(int) const (/opt/x)":           "(anonymous namespace)::f(int) const [x]",
		"<a/b.rs as core::fmt::Debug>::fmt (/opt/x)":             "<a/b.rs as core::fmt::Debug>::fmt [x]",
		"py::handle:/srv/portal/app.py (/tmp/perf-9.map)":        "py::handle:/srv/portal/app.py [perf-9.map]",
		"JS:*handle file:///srv/a/app.js:12:3 (/tmp/perf-9.map)": "JS:*handle file:///srv/a/app.js:12:3 [perf-9.map]",
		"JS:*f /srv/my app (/new)/a.js:1 (/tmp/perf-9.map)":      "JS:*f /srv/my app (/new)/a.js:1 [perf-9.map]",
		"com/example/Portal.handle (/tmp/perf-9.map)":            "com/example/Portal.handle [perf-9.map]",
		"$lists:map/2 (/tmp/perf-9.map)":                         "$lists:map/2 [perf-9.map]",
		"f (/opt/gw.kotlin)":                                     "f [gw.kotlin]",
		"f (/lib/modules/6.1/veth.ko.zst)":                       "f [kernel:veth]",
	} {
		if got := namesOf(t, "a 1/2 5.000000007: 250\n\tff "+frame+"\n"); got[0] != want {
			t.Errorf("%s is %s, want %s", frame, got[0], want)
		}
	}
}

// TestFunctionsStayApart: two functions that would have the same short name keep long names, in all recordings that are
// compared.
func TestFunctionsStayApart(t *testing.T) {
	const head = "a 1/2 5.000000007: 250\n\tff "
	for _, tt := range []struct {
		frames, want []string
	}{
		{[]string{"a.org/x/p.F (/opt/gw)", "b.org/y/p.F (/opt/gw)", "b.org/y/p.G (/opt/gw)"},
			[]string{"a.org/x/p.F [gw]", "b.org/y/p.F [gw]", "p.G [gw]"}},
		{[]string{"a.org/p.F (/opt/gw)", "p.F (/opt/gw)"}, []string{"a.org/p.F [gw]", "p.F [gw]"}},
		{[]string{"main.f (/opt/a/gw)", "main.f (/opt/b/gw)", "main.g (/opt/b/gw)"},
			[]string{"main.f [/opt/a/gw]", "main.f [/opt/b/gw]", "main.g [gw]"}},
		{[]string{"a.org/p.F (/opt/a/gw)", "a.org/p.F (/opt/b/gw)"}, []string{"p.F [/opt/a/gw]", "p.F [/opt/b/gw]"}},
		{[]string{"f ([nf_tables])", "f (/lib/modules/6.1/nf_tables.ko)"},
			[]string{"f [kernel:nf_tables]", "f [kernel:nf_tables]"}},
		{[]string{"f (/opt/gw)", "f (/opt/gw (deleted))"}, []string{"f [gw]", "f [gw]"}},
	} {
		var script string
		for _, f := range tt.frames {
			script += head + f + "\n\n"
		}
		if diff := cmp.Diff(tt.want, namesOf(t, script)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.frames, diff)
		}
	}
	first, err := ParseScript(strings.NewReader(head+"crypto/rand.Read (/opt/gw)\n"), noNames)
	if err != nil {
		t.Fatal(err)
	}
	second, err := ParseScript(strings.NewReader(head+"math/rand.Read (/opt/gw)\n"), noNames)
	if err != nil {
		t.Fatal(err)
	}
	Distinguish(first, second)
	if first.Frames[0].Func != "crypto/rand.Read" || second.Frames[0].Func != "math/rand.Read" {
		t.Errorf("two recordings have %v and %v", first.Frames, second.Frames)
	}
}
