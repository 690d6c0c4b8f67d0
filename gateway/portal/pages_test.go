// Tests of the pages' headers, texts and templates, and of the portal's Config. start (world_test.go) serves a portal,
// and request(t, client, url, form, change...) sends one request to it as a client: GET where form is nil, else POST.
// clientA and clientB are addresses of clients with leases.

package portal

import (
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestHeaders checks every page, also error pages.
func TestHeaders(t *testing.T) {
	w := start(t, Config{SuccessURL: "https://welcome.example/x"})
	check := func(path string) {
		t.Helper()
		r := request(t, clientA, base+path, nil)
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; style-src '" + w.pages.styleHash +
				"'; img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'; form-action 'self' https://welcome.example",
			"X-Content-Type-Options": "nosniff",
			"X-Frame-Options":        "DENY",
			"Referrer-Policy":        "same-origin",
			"Cache-Control":          "no-store",
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%s: %s: %q, want %q", path, name, got, want)
			}
		}
		for _, bad := range []string{"<script", " style=", " onclick", "src=", "url(", "@import"} {
			if strings.Contains(r.body, bad) {
				t.Errorf("%s holds %q, which needs more than the page itself:\n%s", path, bad, r.main())
			}
		}
	}
	for _, path := range []string{"/", "/login", "/status", "/logout", "/nothing", "/login/"} {
		check(path)
	}
	logIn(t, clientA)
	for _, path := range []string{"/status?url=http://example.org/", "/logout"} {
		check(path)
	}
	if r := request(t, clientB, base+"/login", loginForm(t, clientB, goodUser, goodPassword)); r.Header.Get(
		"Location") != "https://welcome.example/x" {
		t.Errorf("after login: to %q, want the success URL", r.Header.Get("Location"))
	}
	if r := request(t, clientA, base+"/login", nil, func(r *http.Request) { r.Method = "DELETE" }); r.StatusCode != 405 {
		t.Errorf("DELETE: %s", r.Status)
	}
}

func TestLinksOfOthersAreNotShown(t *testing.T) {
	start(t, Config{})
	logIn(t, clientA)
	for _, bad := range []string{
		"javascript:alert(1)", "data:text/html,<b>x", "//evil.example/", "http://bank.example@evil.example/", "\"><b>x"} {
		for _, client := range []netip.Addr{clientA, clientB} {
			path := map[netip.Addr]string{clientA: "/status", clientB: "/login"}[client]
			r := request(t, client, base+path+"?url="+url.QueryEscape(bad), nil)
			if r.StatusCode != 200 || strings.Contains(r.main(), "evil") || strings.Contains(r.main(), "alert") ||
				strings.Contains(r.main(), "<b>x") {
				t.Errorf("%s with url=%s: %s\n%s", path, bad, r.Status, r.main())
			}
		}
	}
}

func TestTemplatesAreReplaced(t *testing.T) {
	dir := t.TempDir()
	// Both with a byte order mark, which is part of no page.
	write(t, dir, "login.html", "\ufeff"+`{{template "head" .}}<p>Ours: {{.Title}}</p>{{template "foot" .}}`)
	write(t, dir, "style.css", "\ufeffp { color: teal }\n")
	write(t, dir, "logo.svg", "<svg/>") // other files are allowed
	start(t, Config{Templates: dir})
	r := request(t, clientA, base+"/login", nil)
	if !strings.Contains(r.body, "<p>Ours: Wi-Fi</p>") || !strings.Contains(r.body, "}\np { color: teal }\n</style>") {
		t.Errorf("login page:\n%s", r.main())
	}
	if strings.Contains(r.body, "\ufeff") || !strings.HasPrefix(r.body, "<!doctype") {
		t.Errorf("the page begins with %.20q", r.body)
	}
	if r := request(t, clientA, base+"/nothing", nil); !strings.Contains(r.body, english.NotFoundText) {
		t.Errorf("a page that was not replaced:\n%s", r.main())
	}
}

func TestBadTemplatesAreRefused(t *testing.T) {
	for name, tt := range map[string]struct{ file, text, want string }{
		"unknown name":   {"Login.html", "x", "login.html, status.html"},
		"no template":    {"readme.txt", "x", "has none of"},
		"syntax":         {"login.html", "{{if}}", "login.html"},
		"unknown field":  {"status.html", "{{.Nonsense}}", "Nonsense"},
		"unknown part":   {"error.html", `{{template "header" .}}`, "header"},
		"in a branch":    {"login.html", "{{if .Alert}}{{.T.Nonsense}}{{end}}", "Nonsense"},
		"without status": {"login.html", "{{range .Terms}}{{.Nonsense}}{{end}}", "Nonsense"},
		"unknown text": {
			"texts.fr.toml", "SingIn = \"x\"", `texts.fr.toml:1: no text is called SingIn; did you mean "SignIn"?`},
		"text of another": {"texts.fr.toml", "Lang = \"de\"", `Lang is "de"`},
		"no text":         {"texts.fr.toml", "SignIn = Connexion", "texts.fr.toml:1: "},
		"wait":            {"texts.fr.toml", "Wait = \"Attendez %s\"", "texts.fr.toml:1: Wait must have one %d"},
		"plural":          {"texts.pl.toml", "\nDays = { one = \"%s\", other = \"%d\" }", "texts.pl.toml:2: Days must have"},
		"one of many":     {"texts.ru.toml", "Days = { one = \"день\", other = \"%d дней\" }", `has "день" for 21 too`},
		"two of many":     {"texts.sl.toml", "Days = { two = \"dva\", other = \"%d dni\" }", `has "dva" for 102 too`},
		"plural form":     {"texts.pl.toml", "Days = { ones = \"x\" }", `Days.ones; did you mean "one"?`},
		"units":           {"texts.pl.toml", "Units = \"B\"", "texts.pl.toml:1: Units has 1 units, not 7"},
		"number as text":  {"texts.pl.toml", "User = 1", "texts.pl.toml:1: User must be a text in quotation marks"},
		"no language":     {"texts.xxxxxxxx.toml", "", "Lang is no language's tag"},
		"no image":        {"logo.png", "GIF89a", "logo.png is no image/png"},
		"large image":     {"logo.svg", "<svg>" + strings.Repeat(" ", maxImage), "logo.svg has 524293 bytes"},
		"texts' name":     {"texts.fr_CA.toml", "", "texts.LANGUAGE.toml"},
		"style that ends": {"style.css", "\n</STYLE><script>", "style.css:2: "},
		"too large":       {"login.html", strings.Repeat("x", maxTemplate+1), "1048576"},
		"unsafe context":  {"login.html", "<a href={{if .URL}}\"{{end}}>", "login.html"},
	} {
		dir := t.TempDir()
		write(t, dir, tt.file, tt.text)
		_, err := New(Config{Address: portalAddr, Methods: Methods{ClickThrough: true}, Templates: dir}, &table{}, nil)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want an error that names %q", name, err, tt.want)
		}
	}
	if _, err := readPages("/nonexistent"); err == nil {
		t.Error("a folder that is not there was taken")
	}
}

// TestAllMistakes: the mistakes of all files are told at once, and one in the layout, which all pages have, once.
func TestAllMistakes(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"login.html": "{{if}}", "error.html": "{{.Nonsense}}",
		"style.css": "</style>", "logo.png": "GIF89a"} {
		write(t, dir, name, text)
	}
	told := func() string {
		_, err := readPages(dir)
		if err == nil {
			t.Fatal("no mistake is found")
		}
		return err.Error()
	}
	for _, want := range []string{"login.html:1", "error.html:1", "style.css:1", "logo.png is no"} {
		if got := told(); strings.Count(got, want) != 1 || strings.Count(got, "\n") != 3 {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	write(t, dir, "layout.html", "{{if}}")
	if got := told(); strings.Count(got, "layout.html:1") != 1 {
		t.Errorf("a mistake in the layout:\n%s", got)
	}
}

// write writes a file into the folder dir.
func write(t testing.TB, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	ok := Config{Address: portalAddr, Methods: Methods{Login: true}}
	for want, change := range map[string]func(*Config){
		"address \"0.0.0.0:8080\"":           func(c *Config) { c.Address = netip.MustParseAddrPort("0.0.0.0:8080") },
		"address \"[::1]:8080\"":             func(c *Config) { c.Address = netip.MustParseAddrPort("[::1]:8080") },
		"address \"10.1.0.1:0\"":             func(c *Config) { c.Address = netip.MustParseAddrPort("10.1.0.1:0") },
		"name \"a b\"":                       func(c *Config) { c.Name = "a b" },
		"name \"10.1.0.1\"":                  func(c *Config) { c.Name = "10.1.0.1" },
		"no method":                          func(c *Config) { c.Methods.Login = false },
		"success URL \"/x\"":                 func(c *Config) { c.SuccessURL = "/x" },
		"venue URL \"ftp://x\"":              func(c *Config) { c.VenueURL = "ftp://x" },
		"key of 8 bytes":                     func(c *Config) { c.Key = make([]byte, 8) },
		"connections below zero":             func(c *Config) { c.MaxConns = -1 },
		"both the certificate's and the key": func(c *Config) { c.TLS = TLS{Address: tlsAddr, Cert: "x"} },
		"tls address":                        func(c *Config) { c.TLS = TLS{Address: portalAddr, Cert: "x", Key: "y"} },
		"no such file":                       func(c *Config) { c.TLS = TLS{Address: tlsAddr, Cert: "/x", Key: "/y"} },
	} {
		cfg := ok
		change(&cfg)
		if _, err := New(cfg, &table{}, &users{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: %v, want an error with %q", err, want)
		}
	}
	if _, err := New(ok, &table{}, nil); err == nil {
		t.Error("log-ins by name without users were taken")
	}
	_, err := New(Config{Name: "a b"}, &table{}, nil)
	for _, want := range []string{"address", "name", "method"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: not all mistakes are named: %q", err, want)
		}
	}
}

func TestHostNames(t *testing.T) {
	for _, tt := range []struct {
		name, address, base string
		own                 []string
	}{
		{"", "10.1.0.1:8080", "http://10.1.0.1:8080", []string{"10.1.0.1:8080"}},
		{"", "10.1.0.1:80", "http://10.1.0.1", []string{"10.1.0.1", "10.1.0.1:80"}},
		{"Portal.Example", "10.1.0.1:80", "http://portal.example", []string{"portal.example", "10.1.0.1"}},
		{"portal.example", "10.1.0.1:81", "http://portal.example:81", []string{"portal.example:81", "10.1.0.1:81"}},
	} {
		p, err := New(Config{
			Name: tt.name, Address: netip.MustParseAddrPort(tt.address), Methods: Methods{ClickThrough: true}}, &table{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if p.site4.base != tt.base || p.APIURL() != "" {
			t.Errorf("%s at %s: links begin with %q, API at %q; want %q and none", tt.name, tt.address, p.site4.base, p.APIURL(),
				tt.base)
		}
		for _, host := range tt.own {
			if !p.site4.hosts[host] {
				t.Errorf("%s at %s: Host %q is not its own", tt.name, tt.address, host)
			}
		}
	}
}

// TestFormPages: the pages rendered in advance equal those rendered for each client, and a template that does more with
// the token is excluded.
func TestFormPages(t *testing.T) {
	w := start(t, Config{Terms: "One.\n\nTwo."})
	for _, lang := range builtInTexts() {
		if w.forms[lang] == nil {
			t.Errorf("no page is kept for %s", lang.Lang)
		}
		in := func(r *http.Request) { r.Header.Set("Accept-Language", lang.Lang) }
		kept := request(t, clientA, base+"/login", nil, in)
		clear(w.forms)
		if made := request(t, clientA, base+"/login", nil, in); made.body != kept.body ||
			!reflect.DeepEqual(headerOf(made), headerOf(kept)) {
			t.Errorf("in %s kept and made differ:\n%s\n%s", lang.Lang, kept.main(), made.main())
		}
		w.forms = w.makeFormPages()
	}
	for text, keeps := range map[string]bool{
		`<input name="token" value="{{.Token}}"><a href="/?t={{.Token}}">`: true,
		`<input name="token" value="{{.Token}}">{{slice .Token 0 1}}`:      false,
		`{{if gt .Token "5"}}{{end}}{{len .Token}}{{.Token}}`:              true, // the same for all
		`{{if gt .Token "5"}}x{{end}}{{.Token}}`:                           false,
		`no form`:                                                          false,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "login.html"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := New(Config{Address: portalAddr, Methods: Methods{Login: true}, Templates: dir}, w.table, w.users)
		if err != nil {
			t.Fatal(err)
		}
		if kept := p.forms[english] != nil; kept != keeps {
			t.Errorf("%s is kept: %v, want %v", text, kept, keeps)
		}
	}
}

// headerOf returns an answer's header without its date.
func headerOf(r reply) http.Header {
	h := r.Header.Clone()
	h.Del("Date")
	return h
}
