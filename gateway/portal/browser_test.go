// Tests of the pages in Chromium. start (world_test.go) serves a portal with a table of clients in memory and one user,
// goodUser. clientA is a client's address, and site is an address outside the LAN (namespace_test.go). logIn and logOut
// act as another browser on clientA's device.

package portal

import (
	"context"
	"flag"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/browsertest"
)

var shots = flag.String("shots", "", "write screenshots of the pages to this `folder`")

// pageView is how somebody looks at a page.
type pageView struct {
	name          string
	width, height int64
	dark          bool
}

var views = []pageView{
	{"phone", 390, 844, false}, {"phone-dark", 390, 844, true},
	{"narrow", 320, 568, false}, // the smallest that WCAG 1.4.10 asks for
	{"wide", 1280, 900, false}, {"wide-dark", 1280, 900, true},
}

// browser is Chromium on clientA's device. What a page looks like and how it is used cannot be told from its source.
type browser struct {
	ctx context.Context

	mu            sync.Mutex
	requested     []string // guarded by mu: URLs of all requests
	consoleErrors []string // guarded by mu: what the console complains about
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	within, late := context.WithTimeout(t.Context(), 10*time.Minute) // only so that a failure does not hang
	t.Cleanup(late)
	// Every name is somewhere outside; the portal is an address.
	ctx := browsertest.Start(t, within, browsertest.Program(t), chromedp.Flag("host-resolver-rules",
		"MAP * "+site.String()+", EXCLUDE 10.1.0.1, EXCLUDE 127.0.0.1, EXCLUDE localhost"))
	b := &browser{ctx: ctx}
	if err := chromedp.Listen(ctx, b.record); err != nil {
		t.Fatal(err)
	}
	browsertest.Call(t, ctx, network.Enable, network.EnableParams{})
	browsertest.Call(t, ctx, log.Enable, cdp.Empty{})
	return b
}

// record notes what pages ask for and what goes wrong in them.
func (b *browser) record(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.requested = append(b.requested, e.Request.URL)
	case *runtime.EventExceptionThrown:
		b.consoleErrors = append(b.consoleErrors, e.ExceptionDetails.Text)
	case *log.EventEntryAdded: // what the policy forbids, among others
		if !strings.Contains(e.Entry.Text, "status of 404") { // is asked for
			b.consoleErrors = append(b.consoleErrors, e.Entry.Text)
		}
	}
}

// eval evaluates JavaScript from outside the page, whose policy allows none.
func eval[T any](t *testing.T, b *browser, script string) T {
	t.Helper()
	return browsertest.Eval[T](t, b.ctx, script)
}

// load does something that ends in another page and returns its status code.
func (b *browser) load(t *testing.T, steps ...chromedp.Action[chromedp.Void]) int64 {
	t.Helper()
	resp, err := chromedp.RunResponse(b.ctx, steps...)
	if err != nil {
		t.Fatal(err)
	}
	browsertest.Drawn(t, b.ctx)
	return resp.Status
}

// TestLoadWaitsForFrames: a page that has been loaded has been drawn too, so that what is clicked next stays where it
// is.
func TestLoadWaitsForFrames(t *testing.T) {
	b := newBrowser(t)
	b.setView(t, views[0])
	const page = `data:text/html,<body onload="requestAnimationFrame(() => requestAnimationFrame(() => document.title = 'drawn'))">`
	for range 5 {
		b.load(t, chromedp.Navigate(page))
		if got := eval[string](t, b, "document.title"); got != "drawn" {
			t.Fatalf("the page is loaded and not drawn: title %q", got)
		}
	}
}

func (b *browser) location(t *testing.T) string {
	t.Helper()
	return eval[string](t, b, "location.href")
}

// press types keys, or a special one, where the focus is.
func (b *browser) press(t *testing.T, keys string) {
	t.Helper()
	browsertest.Press(t, b.ctx, keys)
}

// focused presses tab so many times from the top and says what got the focus.
func (b *browser) focused(t *testing.T, tabs int) []string {
	t.Helper()
	eval[bool](t, b, "document.activeElement.blur(); true")
	var order []string
	for range tabs {
		b.press(t, "\t")
		order = append(order,
			eval[string](t, b, `((e) => e.name || e.className || e.tagName.toLowerCase())(document.activeElement)`))
	}
	return order
}

// checkPage requires that the page fits and is readable in every view. With -shots it takes a picture.
func (b *browser) checkPage(t *testing.T, name string) {
	t.Helper()
	for _, v := range views {
		b.setView(t, v)
		if wide := eval[int](t, b, "document.documentElement.scrollWidth"); wide > int(v.width) {
			t.Errorf("%s, %s: %d px wide: it has to be scrolled sideways", name, v.name, wide)
		}
		for _, pale := range eval[[]string](t, b, contrasts) {
			t.Errorf("%s, %s: contrast too low: %s", name, v.name, pale)
		}
		for _, small := range eval[[]string](
			t, b, `[...document.querySelectorAll("button, input:not([type=hidden]), a.button")]
			.filter((e) => (e.closest("label") ?? e).getBoundingClientRect().height < 44).map((e) => e.outerHTML)`) {
			t.Errorf("%s, %s: too small for a finger: %s", name, v.name, small)
		}
		b.photograph(t, name+"-"+v.name)
	}
	b.setView(t, views[0])
}

// photograph takes a picture of the page where -shots says. Chromium draws a page from right to left too far right in
// pictures beyond the window, on wide screens: not so in its window.
func (b *browser) photograph(t *testing.T, name string) {
	t.Helper()
	if *shots == "" {
		return
	}
	picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*shots, name+".png"), picture, 0o644); err != nil {
		t.Fatal(err)
	}
}

func (b *browser) setView(t *testing.T, v pageView) {
	t.Helper()
	scheme := map[bool]string{false: "light", true: "dark"}[v.dark]
	browsertest.Call(t, b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	browsertest.Size(t, b.ctx, v.width, v.height)
	browsertest.Drawn(t, b.ctx)
}

// contrasts lists text with less than 4.5:1 to what is behind it, and borders of fields with less than 3:1 (WCAG 2.2,
// 1.4.3 and 1.4.11).
const contrasts = `(() => {
	const rgb = (c) => { const m = c.match(/[\d.]+/g).map(Number); return { c: m.slice(0, 3), a: m.length > 3 ? m[3] : 1 }; };
	const light = (c) => { const [r, g, b] = c.map((v) => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
		return .2126 * r + .7152 * g + .0722 * b; };
	const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + .05) / (y + .05); };
	const behind = (e) => { for (; e; e = e.parentElement) { const b = rgb(getComputedStyle(e).backgroundColor); if (b.a) return b.c; } return [255, 255, 255]; };
	const bad = [];
	let texts = 0;
	for (const e of document.body.querySelectorAll("*")) {
		const s = getComputedStyle(e);
		if (e.matches("input:not([type=hidden])")) {
			const r = ratio(rgb(s.borderTopColor).c, behind(e.parentElement));
			if (r < 3) bad.push(r.toFixed(2) + " border of " + e.name);
		}
		if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
		texts++;
		const r = ratio(rgb(s.color).c, behind(e));
		if (r < 4.5) bad.push(r.toFixed(2) + " " + e.textContent.trim());
	}
	if (!texts) bad.push("no text found");
	return bad;
})()`

// TestBrowser does what a person with a phone does, from the first page to logging out.
func TestBrowser(t *testing.T) {
	w := start(t, Config{
		Title: "Café Milano", Methods: Methods{Login: true, ClickThrough: true},
		Terms: "Use this network fairly.\n\nIt comes without any warranty, and what you send over it may be read by " +
			"others.\n\n" +
			strings.Repeat("Averylongwordthatdoesnotend", 5) + "\n\n" + strings.Repeat("And so on. ", 40),
	})
	b := newBrowser(t)
	b.setView(t, views[0])

	b.openLogin(t)
	b.enterWrongPassword(t)
	b.stayLoggedIn(t, w)
	b.logOut(t)

	b.load(t, chromedp.Navigate("http://news.example/"))
	b.load(t, chromedp.Click("button.second"))
	if s, _ := w.table.Get(clientA); s.State != session.Authenticated || s.User != defaultGuest {
		t.Errorf("accepting the terms made the client %q as %q", s.State, s.User)
	}
	b.checkQuiet(t)
}

// wantedPage is the page that the person asks for.
const wantedPage = "http://news.example/today?page=1"

// openLogin asks for a page outside and gets the login page.
func (b *browser) openLogin(t *testing.T) {
	t.Helper()
	if status := b.load(t, chromedp.Navigate(wantedPage)); status != 200 {
		t.Errorf("the login page: %d", status)
	}
	if got := b.location(t); got != base+"/login?url="+url.QueryEscape(wantedPage) {
		t.Errorf("redirected to %s", got)
	}
	b.checkPage(t, "login")
	order := []string{"summary", "username", "password", "button", "terms", "second"}
	if got := b.focused(t, len(order)); !slices.Equal(got, order) {
		t.Errorf("tab goes through %q, want %q", got, order)
	}
	unlabelled := eval[[]string](
		t, b, `[...document.querySelectorAll("input:not([type=hidden])")].filter((e) => !e.labels.length).map((e) => e.name)`)
	if len(unlabelled) != 0 {
		t.Errorf("fields without a label: %q", unlabelled)
	}
}

// enterWrongPassword gives a wrong password and is told so.
func (b *browser) enterWrongPassword(t *testing.T) {
	t.Helper()
	b.logIn(t, goodUser, "wrong")
	if got := eval[string](t, b, `document.querySelector("[role=alert]").innerText`); !strings.Contains(
		got, english.WrongPassword) || !strings.Contains(got, "<script>alert(1)</script>") {
		t.Errorf("after a wrong password the page says %q", got)
	}
	if got := eval[string](t, b,
		`document.activeElement.name + " " + username.value + password.value + " " + username.getAttribute("aria-describedby")`); got != "password "+
		goodUser+" alert" {
		t.Errorf("after a wrong password, focus, fields and their description are %q", got)
	}
	b.checkPage(t, "wrong")
}

// stayLoggedIn logs in and reads the status page.
func (b *browser) stayLoggedIn(t *testing.T, w *world) {
	t.Helper()
	b.logIn(t, "", goodPassword)
	if got := b.location(t); got != base+"/status?url="+url.QueryEscape(wantedPage) {
		t.Errorf("logged in, at %s", got)
	}
	s, _ := w.table.Get(clientA)
	if s.State != session.Authenticated {
		t.Fatalf("the client is %q", s.State)
	}
	s.UpBytes, s.DownBytes = 12_345_678, 1_234_567_890
	w.table.set(s)
	b.load(t, chromedp.Click("p.soft > a")) // refresh
	text := eval[string](t, b, "document.body.innerText")
	for _, want := range []string{goodUser, "12.3 MB", "1.2 GB", "99 days", "3.8 GB"} {
		if !strings.Contains(text, want) {
			t.Errorf("the status page lacks %q:\n%s", want, text)
		}
	}
	if got := eval[string](t, b, `document.querySelector("a.button").href`); got != wantedPage {
		t.Errorf("the way on leads to %s", got)
	}
	if got, want := b.focused(t, 4), []string{"summary", "button", "a", "second"}; !slices.Equal(got, want) {
		t.Errorf("tab goes through %q, want %q", got, want)
	}
	b.checkPage(t, "status")
}

// logOut logs out, and gets lost.
func (b *browser) logOut(t *testing.T) {
	t.Helper()
	b.load(t, chromedp.Navigate(base+"/logout"))
	b.checkPage(t, "logout")
	b.load(t, chromedp.Click("form > button"))
	if got := eval[string](t, b,
		`location.pathname + " " + document.querySelector("[role=status]").innerText`); got != "/login "+english.LoggedOut {
		t.Errorf("logged out, at %s", got)
	}
	b.checkPage(t, "logged-out")
	if status := b.load(t, chromedp.Navigate(base+"/nothing")); status != 404 {
		t.Errorf("a page that is not there: %d", status)
	}
	b.checkPage(t, "error")
}

// logIn types into the form and presses enter, as keyboards on phones do. An empty user is left as it stands.
func (b *browser) logIn(t *testing.T, user, password string) {
	t.Helper()
	var steps []chromedp.Action[chromedp.Void]
	if user != "" {
		steps = append(steps, chromedp.SendKeys("#username", user))
	}
	b.load(t, append(steps, chromedp.SendKeys("#password", password+"\r"))...)
}

// TestOtherSiteInBrowser: a page elsewhere sends the portal's forms by itself. The browser obeys; the portal does not.
func TestOtherSiteInBrowser(t *testing.T) {
	w := start(t, Config{})
	logIn(t, clientA)
	b := newBrowser(t)
	page := `data:text/html,<form id=f method=post action="` + base + `/logout"><input name=token value=x></form>`
	b.load(t, chromedp.Navigate(page))
	b.load(t, chromedp.Submit("#f"))
	if got := b.location(t); got != base+"/logout" {
		t.Errorf("the form led to %s, want to the question", got)
	}
	if s, _ := w.table.Get(clientA); s.State != session.Authenticated || len(w.table.causes()) != 0 {
		t.Error("another site logged the client out")
	}
	b.load(t, chromedp.Navigate(`data:text/html,<iframe src="`+base+`/status"></iframe>`))
	if n := eval[int](t, b, `window.frames[0].length`); n != 0 {
		t.Errorf("the page in a frame has %d frames", n)
	}
	if framed := eval[bool](t, b,
		`(() => { try { return !!window.frames[0].document.querySelector("form"); } catch { return false; } })()`); framed {
		t.Error("the status page lets itself be framed")
	}
}

// checkQuiet requires that pages request nothing but the portal's own files and the site that the person wanted.
func (b *browser) checkQuiet(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.requested) < 8 {
		t.Errorf("only %d requests were seen: the check does not work", len(b.requested))
	}
	for _, asked := range b.requested {
		if !strings.HasPrefix(asked, base+"/") && !strings.HasPrefix(asked, "http://news.example/") &&
			!strings.HasPrefix(asked, "data:") {
			t.Errorf("a page asked for %s", asked)
		}
	}
	for _, text := range b.consoleErrors {
		t.Errorf("console: %s", text)
	}
}
