// Tests of reading forms from a portal's page. portalPage is the page's URL, and portalURL the URL to which an action
// on it leads.

package client

import (
	"net/url"
	"os"
	"reflect"
	"strings"
	"testing"
)

var portalPage = &url.URL{Scheme: "http", Host: "192.0.2.1:2050", Path: "/login"}

// portalURL is where an action of portalPage leads.
func portalURL(action string) *url.URL {
	u, err := portalPage.Parse(action)
	if err != nil {
		panic(err)
	}
	return u
}

func TestForms(t *testing.T) {
	for name, tc := range map[string]struct {
		body string
		want []form
	}{
		"splash page": {`<html><body><form action="/opennds_preauth/" method="get">
<input type="hidden" name="fas" value="aGlkPTE/Mg=="><input type="submit" value="Accept" ></form><form></form>`,
			[]form{{"GET", portalURL("/opennds_preauth/"), []input{{"fas", "aGlkPTE/Mg==", "hidden"}}}, {method: "GET"}}},
		"capitals, quotes and none": {
			`<FORM ACTION='next?x=1' METHOD = post><INPUT NAME=tok VALUE=7 checked TYPE=Text>< input name=x><inputs name=y></Form>`,
			[]form{{"POST", portalURL("next?x=1"), []input{{"tok", "7", "text"}}}}},
		"characters by name": {`<form action="/?a&amp;b"><input name="q" value="&lt;&quot;&gt;"></form>`, []form{{"GET",
			portalURL("/?a&b"), []input{{"q", `<">`, ""}}}}},
		"begins alike": {`<formula action="b"></form>`, nil},
		"a quoted tag": {`<form action="/a>b"><input name=n value="<form>"/></form>`, []form{{"GET", portalURL("/a%3Eb"),
			[]input{{"n", "<form>", ""}}}}},
		"a form within another": {`<form action=/a><form action=/b><input name=n></form><input name=outside>`, []form{{"GET",
			portalURL("/a"), []input{{"n", "", ""}}}}},
		"cut off": {`<form action="/a"><input name=n value="`, nil},
		"in a comment, a script": {
			`<!-- <form action="/a"></form> --><script>document.write('<form action="/b"></form>')</script>`,
			nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []form
			for f, err := range forms(portalPage, tc.body) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, f)
			}
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("forms are %+v, want %+v", got, tc.want)
			}
		})
	}
	if _, err := findForm(portalPage, `<form action=":"></form>`, func(form) bool { return true }); err == nil ||
		!strings.Contains(err.Error(), `":"`) {
		t.Errorf("an action that is no URL: %v", err)
	}
}

// TestLoginPage reads gatewayd's own page.
func TestLoginPage(t *testing.T) {
	f, err := findForm(portalPage, loginPage(t), func(f form) bool { return f.hasInput("password") })
	if err != nil || f.method != "POST" || f.action.Host != portalPage.Host || len(f.inputs) < 2 {
		t.Errorf("%+v, %v", f, err)
	}
}

func loginPage(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("testdata/login.html")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func FuzzForms(f *testing.F) {
	f.Add(`<form action="/a"><input name="b" value="c"></form>`)
	f.Add("<form\n method\t=\r\npost><input\x00name=a></form>")
	f.Fuzz(func(t *testing.T, body string) {
		for form, err := range forms(portalPage, body) {
			if err == nil && form.action != nil && !form.action.IsAbs() {
				t.Errorf("a form of %q leads to %q", body, form.action)
			}
			for _, in := range form.inputs {
				if in.name == "" || in.kind != strings.ToLower(in.kind) {
					t.Errorf("a form of %q has the input %+v", body, in)
				}
			}
		}
	})
}

// BenchmarkForms reads gatewayd's login page, as each client does.
func BenchmarkForms(b *testing.B) {
	page := loginPage(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := findForm(portalPage, page, func(f form) bool { return f.hasInput("password") }); err != nil {
			b.Fatal(err)
		}
	}
}
