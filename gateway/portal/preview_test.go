// Tests of the pages in all their states, as a preview shows them: in Chromium, and their source.

package portal

import (
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/gateweigh/gateweigh/internal/browsertest"
)

// previewOf serves a preview of the pages in a folder.
func previewOf(t testing.TB, folder string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(Preview(func(string) (Previewed, error) {
		return Previewed{Config: Config{Templates: folder, Title: "Café Milano"}}, nil
	}))
	t.Cleanup(s.Close)
	return s
}

// builtInPortal has the built-in pages, and nothing else of a portal.
func builtInPortal(t testing.TB) *Portal {
	t.Helper()
	p := &Portal{cfg: Config{Title: "Café Milano"}}
	var err error
	if p.pages, err = readPages(""); err != nil {
		t.Fatal(err)
	}
	return p
}

// get returns the body of a page.
func get(t testing.TB, url string) (status int, body string) {
	t.Helper()
	return getBy(t, http.DefaultClient, url)
}

// getBy returns the body of a page for a client, which may keep cookies.
func getBy(t testing.TB, client *http.Client, url string) (status int, body string) {
	t.Helper()
	r, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(text)
}

// TestStatesShowEverything: each field of a page is set in a state, and each text is shown in one.
func TestStatesShowEverything(t *testing.T) {
	s := previewOf(t, "")
	var shown strings.Builder
	set := map[string]bool{}
	p := builtInPortal(t)
	p.pages.images = images{"logo.svg": {}, "logo-dark.svg": {}}
	for _, state := range states {
		status, body := get(t, s.URL+statePath+state.name+"?lang=en")
		if status != http.StatusOK {
			t.Errorf("%s: %d: %s", state.name, status, body)
		}
		shown.WriteString(html.UnescapeString(body))
		page := reflect.ValueOf(*p.statePage(state, httptest.NewRequest("GET", "/?lang=en", nil)))
		for i := range page.NumField() {
			set[page.Type().Field(i).Name] = set[page.Type().Field(i).Name] || !page.Field(i).IsZero()
		}
	}
	for name, is := range set {
		if !is {
			t.Errorf("no state sets %s of a page: add one to states", name)
		}
	}
	v := reflect.ValueOf(*english)
	for i, name := range textNames(v) {
		text := formsOf(v.Field(i))[0]
		if !strings.Contains(text, "%") && !slices.Contains([]string{"Decimal", "Units"}, name) &&
			!strings.Contains(shown.String(), text) {
			t.Errorf("no state shows the text %s: add one to states", name)
		}
	}
}

// TestPagesAreSmall: no page has 30 KB, whatever is on.
func TestPagesAreSmall(t *testing.T) {
	p := builtInPortal(t)
	largest, where := 0, ""
	for _, lang := range builtInTags {
		for _, state := range states {
			var b strings.Builder
			address := state.name + "?lang=" + lang
			page := p.statePage(state, httptest.NewRequest("GET", "/"+address, nil))
			if err := p.pages.templates[state.page].Execute(&b, page); err != nil {
				t.Fatal(err)
			}
			if b.Len() > largest {
				largest, where = b.Len(), address
			}
		}
	}
	if t.Logf("the largest page is %s with %d bytes", where, largest); largest > 30_000 {
		t.Errorf("%s has %d bytes", where, largest)
	}
}

// TestPreview: the folder is read at each request, and what is wrong in it is shown with its file and line.
func TestPreview(t *testing.T) {
	dir := t.TempDir()
	if _, err := WriteTemplates(dir, true); err != nil {
		t.Fatal(err)
	}
	s := previewOf(t, dir)
	login := s.URL + statePath + "login?lang=en"
	if status, body := get(t, login); status != 200 || !strings.Contains(body, "<h1>Sign in</h1>") {
		t.Fatalf("%d: %s", status, body)
	}
	for file, wrong := range map[string][2]string{
		"login.html":  {"\n\n{{.Nonsense}}", "login.html:3: "},
		"status.html": {"\n{{if}}", "status.html:2: "},
		"layout.html": {"{{define \"head\"}}\n{{.T.Nonsense}}{{end}}{{define \"foot\"}}{{end}}" +
			"{{define \"messages\"}}{{end}}", "layout.html:2: "},
		"error.html":    {"\n<a href=\"{{.Text}}", "error.html"},
		"style.css":     {"p {}\n</style>", "style.css:2: "},
		"texts.pl.toml": {"Lang = \"pl\"\nSingIn = \"x\"", "texts.pl.toml:2: "},
	} {
		kept, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, file, wrong[0])
		if status, body := get(t, login); status != 500 || !strings.Contains(body, filepath.Join(dir, wrong[1])) {
			t.Errorf("%s: %d, want %s in:\n%s", file, status, wrong[1], body)
		}
		write(t, dir, file, string(kept))
		if status, body := get(t, login); status != 200 {
			t.Errorf("%s is right again: %d\n%s", file, status, body)
		}
	}
	_, list := get(t, s.URL+"/?lang=ar")
	for _, state := range states {
		if !strings.Contains(list, `src="/page/`+state.name+`?lang=ar"`) {
			t.Errorf("the list lacks %s", state.name)
		}
	}
	r, err := http.PostForm(s.URL+"/login?lang=pl", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.Request.URL.RequestURI() != "/page/status?lang=pl" {
		t.Errorf("the form leads to %s", r.Request.URL)
	}
}

// misfits lists what does not fit a phone: what is wider than the window or not in its middle, and targets smaller than
// a finger (WCAG 2.2, 1.4.10 and 2.5.5).
const misfits = `(() => {
	const root = document.documentElement, all = [];
	const { left, right } = document.querySelector("main").getBoundingClientRect();
	if (Math.abs(left - (root.clientWidth - right)) > 1) all.push("left and right of the page are " + left + " and " +
		(root.clientWidth - right) + " px");
	// A phone's innerWidth grows with a page that is too wide.
	const wide = root.scrollWidth, window = root.clientWidth;
	if (wide > window) all.push("the page is " + wide + " px wide in " + window);
	const targets = "button, input:not([type=hidden]), a.button, summary, nav a, .languages a";
	for (const e of document.querySelectorAll(targets)) {
		const box = (e.type === "checkbox" ? e.closest("label") : e).getBoundingClientRect();
		if (box.width && (box.height < 44 || box.width < 44)) all.push(box.width + "x" + box.height + " " + e.outerHTML);
	}
	return all;
})()`

// TestPagesAreAccessible: axe-core finds nothing, and everything fits, in each state in three languages, on the main
// pages in all, and in the list of them, in both colour schemes, on a phone and a desktop. With -shots it takes
// pictures.
func TestPagesAreAccessible(t *testing.T) {
	s := previewOf(t, "")
	b := &browser{ctx: browsertest.Start(t, t.Context(), browsertest.Program(t))}
	b.setView(t, views[2])
	b.load(t, chromedp.Navigate(s.URL+"/"))
	b.checkViews(t, "list")
	for _, lang := range builtInTags {
		for _, state := range states {
			if !slices.Contains([]string{"en", "de", "ar"}, lang) && state.name != "login-all" && state.name != "status" {
				continue
			}
			name := state.name + "-" + lang
			b.setView(t, views[2])
			b.load(t, chromedp.Navigate(s.URL+statePath+state.name+"?lang="+lang))
			b.checkAccessible(t, name)
		}
	}
}

// checkAccessible checks the page in all views: all of axe-core's rules on a narrow phone, those of colours in the dark
// scheme too, and sizes everywhere, with the menu of languages open and with text of twice the size.
func (b *browser) checkAccessible(t *testing.T, name string) {
	t.Helper()
	b.checkViews(t, name)
	b.setView(t, views[2])
	for what, change := range map[string]string{
		"menu":       `document.querySelector("details").open = true`,
		"large text": `document.querySelector("details").open = false; document.documentElement.style.fontSize = "200%"`,
	} {
		eval[bool](t, b, change+"; true")
		for _, text := range eval[[]string](t, b, misfits) {
			t.Errorf("%s, %s: %s", name, what, text)
		}
	}
}

// checkViews checks the page in all views as it is.
func (b *browser) checkViews(t *testing.T, name string) {
	t.Helper()
	browsertest.LoadAxe(t, b.ctx)
	for _, v := range views[1:4] {
		b.setView(t, v)
		found := eval[[]string](t, b, misfits)
		switch v {
		case views[2]:
			found = append(found, browsertest.Inaccessible(t, b.ctx)...)
		case views[1]: // colours are those of the scheme alone
			found = append(found, browsertest.Inaccessible(t, b.ctx, "color-contrast")...)
		}
		for _, text := range found {
			t.Errorf("%s, %s: %s", name, v.name, text)
		}
		b.photograph(t, name+"-"+v.name)
	}
}

// TestPreviewOfPortal: where the ways to log in are known, their states alone are listed, and each login page has them
// all. The choice of a network is kept. Long: what three pages have.
func TestPreviewOfPortal(t *testing.T) {
	portals := map[string]Config{
		"guests": {Methods: Methods{Voucher: true}, RememberDays: 7},
		"hotel": {Methods: Methods{Login: true, ClickThrough: true}, Terms: "Be kind.",
			Click: Click{Box: true, Ask: []Ask{{FieldRoom, true}}}},
	}
	s := httptest.NewServer(Preview(func(network string) (Previewed, error) {
		if _, ok := portals[network]; !ok {
			network = "guests"
		}
		return Previewed{portals[network], network, []string{"guests", "hotel"}}, nil
	}))
	defer s.Close()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar}
	for _, step := range []struct {
		list, state                        string
		listed, missing, onLogin, offLogin []string
	}{
		{"/", "wait", []string{"login", "wrong-code", "time-up", "status-other-browser-code", ">hotel</a>"},
			[]string{"login-voucher", "login-all", "wrong-password", "used-today", "status-room", "to-provider"},
			[]string{`name="code"`, english.Wait.For(12)}, []string{`name="password"`, english.Terms}},
		{"/?network=hotel", "check-fields", []string{"login", "no-name", "wrong-room", `aria-current="true">hotel</a>`},
			[]string{"login-click", "wrong-code", "status-today"},
			[]string{`name="password"`, "Be kind.", `name="room"`, `aria-invalid="true"`, english.CheckFields},
			[]string{`name="code"`, `name="email"`, `name="remember"`}},
		{"/?network=gone", "login", []string{"wrong-code"}, nil, []string{`name="code"`}, []string{`name="password"`}},
	} {
		_, list := getBy(t, client, s.URL+step.list)
		_, login := getBy(t, client, s.URL+statePath+step.state+"?lang=en")
		for _, name := range step.listed {
			if !strings.Contains(list, name) && !strings.Contains(list, `src="/page/`+name+`?`) {
				t.Errorf("%s does not list %s", step.list, name)
			}
		}
		for _, name := range step.missing {
			if strings.Contains(list, `src="/page/`+name+`?`) {
				t.Errorf("%s lists %s", step.list, name)
			}
		}
		for _, want := range step.onLogin {
			if !strings.Contains(login, want) {
				t.Errorf("%s: %s lacks %s:\n%s", step.list, step.state, want, login)
			}
		}
		for _, other := range step.offLogin {
			if strings.Contains(login, other) {
				t.Errorf("%s: %s has %s:\n%s", step.list, step.state, other, login)
			}
		}
	}
}
