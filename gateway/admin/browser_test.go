package admin

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/browsertest"
)

var (
	shots     = flag.String("shots", "", "write screenshots of the pages to this `folder`")
	pictureIn = flag.String("picture-in", "", "write the screenshot of the documentation to this `file`")
)

// browser is Chromium at the page.
type browser struct {
	t      *testing.T
	ctx    context.Context
	w      *world
	errors []string // what the console complains about, such as what the policy forbids
}

func (w *world) browser(t *testing.T) *browser {
	t.Helper()
	within, late := context.WithTimeout(t.Context(), 10*time.Minute) // only so that a failure does not hang
	t.Cleanup(late)
	b := &browser{t: t, w: w, ctx: browsertest.Start(t, within, browsertest.Program(t))}
	must(t, chromedp.Listen(b.ctx, func(event any) {
		if e, ok := event.(*log.EventEntryAdded); ok {
			b.errors = append(b.errors, e.Entry.Text)
		}
	}))
	browsertest.Call(t, b.ctx, log.Enable, cdp.Empty{})
	return b
}

// open loads a page.
func (b *browser) open(path string) {
	b.t.Helper()
	if _, err := chromedp.RunResponse(b.ctx, chromedp.Navigate(b.w.base+path)); err != nil {
		b.t.Fatal(err)
	}
	browsertest.Drawn(b.t, b.ctx)
}

// submit fills fields in by their names and sends the form of the last one, and returns once the next page is there.
func (b *browser) submit(action string, fields map[string]string) {
	b.t.Helper()
	for name, value := range fields {
		browsertest.Eval[bool](b.t, b.ctx, fmt.Sprintf(
			`(document.querySelector('form[action=%q] [name=%q]').value = %q, true)`, action, name, value))
	}
	if _, err := chromedp.RunResponse(b.ctx, chromedp.Click(fmt.Sprintf(`form[action=%q] button`, action))); err != nil {
		b.t.Fatal(err)
	}
	browsertest.Drawn(b.t, b.ctx)
}

func (b *browser) logIn(name string) {
	b.t.Helper()
	b.open("/login")
	b.submit("/login", map[string]string{"name": name, "password": "right"})
	if at := browsertest.Eval[string](b.t, b.ctx, "location.pathname"); at != "/sessions" {
		b.t.Fatalf("after the login the browser is at %s", at)
	}
}

// look has the browser look at pages as in a view.
func (b *browser) look(width, height int64, dark bool) {
	scheme := map[bool]string{false: "light", true: "dark"}[dark]
	browsertest.Call(b.t, b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	browsertest.Size(b.t, b.ctx, width, height)
}

// used fills the page with what a gateway has after a month.
func (w *world) used() {
	now := time.Now()
	up, down := uint64(1), uint64(1)
	for h := 40 * 24; h >= 0; h-- {
		at := now.Add(-time.Duration(h) * time.Hour)
		busy := uint64(1 + 30*max(0, 12-absolute(at.Hour()-19)))
		up, down = up+busy*40e6, down+busy*(310e6+uint64(h%7)*40e6)
		must(w.t, w.usage.add(at, control.Status{Traffic: control.Traffic{UpBytes: up, DownBytes: down},
			Sessions: map[control.State]int{"authenticated": int(busy)}}))
	}
	_, err := w.newVouchers(person{Name: "ann", Operator: mustFind(w, "ann").Operator, way: "page"}, decodedVouchers)
	must(w.t, err)
}

func absolute(n int) int { return max(n, -n) }

func mustFind(w *world, name string) person {
	o, _, known := w.operators.Find(name)
	if !known {
		w.t.Fatalf("%s has no account", name)
	}
	return person{Name: name, Operator: o}
}

// TestPagesAreAccessible: all pages, in light and dark, on a desktop and a phone, pass axe-core, need no scrolling
// sideways as a whole, and load nothing that their policy forbids.
func TestPagesAreAccessible(t *testing.T) {
	w := newWorld(t, 60)
	w.used()
	b := w.browser(t)
	b.check("/login", "login")
	b.logIn("ann")
	for _, p := range []string{"/sessions", "/sessions/" + addrOf(1).String(), "/sessions/" + addrOf(10).String(),
		"/vouchers?name=lobby", "/networks", "/usage", "/whois?endpoint=10.0.0.1:80", "/health", "/audit", "/none"} {
		name := strings.Trim(strings.NewReplacer("/", "-", "?", "-").Replace(p), "-")
		b.check(p, name)
	}
	for _, e := range b.errors {
		if !strings.Contains(e, "status of 404") { // asked for
			t.Errorf("the console says: %s", e)
		}
	}
}

// check looks at a page in every view.
func (b *browser) check(path, name string) {
	b.t.Helper()
	for _, v := range []struct {
		name          string
		width, height int64
		dark          bool
	}{{"wide", 1280, 800, false}, {"wide-dark", 1280, 800, true}, {"phone", 390, 844, false},
		{"phone-dark", 390, 844, true}} {
		b.look(v.width, v.height, v.dark)
		b.open(path)
		if wide := browsertest.Eval[int](b.t, b.ctx, "document.documentElement.scrollWidth"); wide > int(v.width) {
			b.t.Errorf("%s, %s: %d px wide", name, v.name, wide)
		}
		browsertest.LoadAxe(b.t, b.ctx)
		for _, violation := range browsertest.Inaccessible(b.t, b.ctx) {
			b.t.Errorf("%s, %s: %s", name, v.name, violation)
		}
		if *shots != "" {
			picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
			must(b.t, err)
			must(b.t, os.WriteFile(filepath.Join(*shots, name+"-"+v.name+".png"), picture, 0o644))
		}
	}
}

// TestPicture takes the screenshot of the documentation:
//
//	go test ./gateway/admin -run TestPicture -picture-in "$PWD/docs/admin.png"
func TestPicture(t *testing.T) {
	w := newWorld(t, 300)
	b := w.browser(t)
	b.look(1280, 620, false)
	b.logIn("ann")
	shot := browsertest.Call(t, b.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: "png"})
	if len(shot.Data) < 20_000 {
		t.Errorf("the picture has %d bytes", len(shot.Data))
	}
	if *pictureIn != "" {
		must(t, os.WriteFile(*pictureIn, shot.Data, 0o644))
	}
}

// TestWithJavaScript: an end is asked about first, and a refusal leaves the session.
func TestWithJavaScript(t *testing.T) {
	w := newWorld(t, 3)
	b := w.browser(t)
	b.logIn("ann")
	one := "/sessions/" + addrOf(1).String()
	b.open(one)
	browsertest.Eval[bool](t, b.ctx, "window.confirm = () => false, true")
	browsertest.Eval[bool](t, b.ctx, fmt.Sprintf(`(document.querySelector('form[action="%s/end"] button').click(), true)`,
		one))
	browsertest.Drawn(t, b.ctx)
	if !w.online(1) {
		t.Error("the session has ended although that was refused")
	}
	browsertest.Eval[bool](t, b.ctx, "window.confirm = () => true, true")
	b.submit(one+"/end", nil)
	if w.online(1) {
		t.Error("the session goes on")
	}
	if text := browsertest.Eval[string](t, b.ctx, "document.querySelector('.note').textContent"); !strings.Contains(text,
		"has ended") {
		t.Errorf("the page says %q", text)
	}
}

// TestListOnPhones: on the narrowest phone the list shows address, user, state and the button that ends a session,
// without scrolling sideways. The other columns unfold. The button ends its session after a question.
func TestListOnPhones(t *testing.T) {
	w := newWorld(t, 12)
	_, err := w.table.Admit(addrOf(10), session.Login{User: strings.Repeat("w", 60) + "@campus.example"})
	must(t, err)
	b := w.browser(t)
	b.look(320, 640, false)
	b.logIn("ann")
	const hidden = `(() => { const list = document.querySelector(".scroll");
		return [list.scrollWidth - list.clientWidth, document.documentElement.scrollWidth - innerWidth,
			...[...list.querySelectorAll("td:not(.more), button")].map((e) => e.getBoundingClientRect().right - innerWidth)
		].filter((past) => past > 0).length; })()`
	if n := browsertest.Eval[int](t, b.ctx, hidden); n > 0 {
		t.Errorf("%d things of the list are beyond the edge", n)
	}
	const columns = `[...document.querySelectorAll("thead th")].filter((e) => e.offsetWidth > 0).length`
	if n := browsertest.Eval[int](t, b.ctx, columns); n != 4 {
		t.Errorf("%d columns are shown", n)
	}
	browsertest.Eval[bool](t, b.ctx, `(document.querySelector(".unfold input").click(), true)`)
	if n := browsertest.Eval[int](t, b.ctx, columns); n != 12 {
		t.Errorf("%d columns are unfolded", n)
	}
	button := fmt.Sprintf(`button[formaction="/sessions/%s/end"]`, addrOf(7))
	browsertest.Eval[bool](t, b.ctx, fmt.Sprintf(
		"window.confirm = (q) => (window.asked = q, false), document.querySelector('%s').click(), true", button))
	if asked := browsertest.Eval[string](t, b.ctx, "window.asked"); !strings.Contains(asked, "user-7") || !w.online(7) {
		t.Errorf("the question is %q", asked)
	}
	browsertest.Eval[bool](t, b.ctx, "window.confirm = () => true, true")
	if _, err := chromedp.RunResponse(b.ctx, chromedp.Evaluate[chromedp.Void]("document.querySelector('"+button+
		"').click()")); err != nil {
		t.Fatal(err)
	}
	if w.online(7) || !w.online(8) {
		t.Errorf("7 is online: %v, and 8: %v", w.online(7), w.online(8))
	}
}
