package report_test

import (
	"context"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// view is how a reader looks at a page.
type view struct {
	name          string
	width, height int64
	dark          bool
	print         bool // as laid out for paper
}

// paperPx is the width of A4 between the margins of report.css, in CSS pixels.
const paperPx = 703

var (
	wide      = view{name: "wide", width: 1280, height: 900}
	wideDark  = view{name: "wide and dark", width: 1280, height: 900, dark: true}
	phone     = view{name: "phone", width: 390, height: 844}
	phoneDark = view{name: "phone and dark", width: 390, height: 844, dark: true}
	paper     = view{name: "paper", width: paperPx, height: 1000, print: true}
)

// newBrowser starts Chromium, which ends with the test. It is a real one: what
// a report looks like and how it is used cannot be told from its source.
func newBrowser(t *testing.T) context.Context {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("chromium is not installed: run .ci/deps")
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-gpu", true))
	allocator, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, stop := chromedp.NewContext(allocator)
	t.Cleanup(stop)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start chromium: %v", err)
	}
	return ctx
}

// tab is a page opened in a browser.
type tab struct {
	ctx context.Context

	mu     sync.Mutex
	asked  []string // what the page requested
	errors []string // exceptions and errors on the console
}

// open shows a file in a tab of its own, with no network, the way v says.
func open(t *testing.T, browser context.Context, file string, v view) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	p := &tab{ctx: ctx}
	if err := chromedp.Listen(ctx, p.hear); err != nil {
		t.Fatal(err)
	}
	call(t, ctx, network.Enable, network.EnableParams{})
	call(t, ctx, network.EmulateNetworkConditionsByRule, network.EmulateNetworkConditionsByRuleParams{
		MatchedNetworkConditions: []*network.Conditions{{Offline: true, DownloadThroughput: -1, UploadThroughput: -1}},
	})
	p.look(t, v)
	path, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	address := (&url.URL{Scheme: "file", Path: path}).String()
	if err := chromedp.Do(ctx, chromedp.Navigate(address)); err != nil {
		t.Fatalf("open %s: %v", address, err)
	}
	// Chromium lays a page out for its screen when it draws, which may be after the load event:
	// a click before goes where something was.
	eval[bool](t, p, `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`)
	t.Cleanup(func() { p.checkQuiet(t, address) })
	return p
}

// look changes the way the page is looked at.
func (p *tab) look(t *testing.T, v view) {
	t.Helper()
	scheme, medium := "light", "screen"
	if v.dark {
		scheme = "dark"
	}
	if v.print {
		medium = "print"
	}
	call(t, p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Media: medium, Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	var options []chromedp.EmulateViewportOption
	if v.width < 500 {
		options = append(options, chromedp.EmulateMobile)
	}
	if err := chromedp.Do(p.ctx, chromedp.EmulateViewport(v.width, v.height, options...)); err != nil {
		t.Fatal(err)
	}
}

// hear notes what must not happen.
func (p *tab) hear(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		p.asked = append(p.asked, e.Request.URL)
	case *runtime.EventExceptionThrown:
		p.errors = append(p.errors, e.ExceptionDetails.Text)
	}
}

// checkQuiet holds that the page asked for nothing but itself and ran without errors.
func (p *tab) checkQuiet(t *testing.T, address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.asked) == 0 {
		t.Error("no request was seen, not even for the page: the check does not work")
	}
	for _, asked := range p.asked {
		if asked != address && !strings.HasPrefix(asked, "data:") {
			t.Errorf("the page asked for %s", asked)
		}
	}
	for _, text := range p.errors {
		t.Errorf("script: %s", text)
	}
}

// eval evaluates JavaScript in the page; a promise is waited for.
func eval[T any](t *testing.T, p *tab, script string) T {
	t.Helper()
	value, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%v in: %.200s", err, script)
	}
	return value
}

// press types keys where the focus is.
func (p *tab) press(t *testing.T, keys string) {
	t.Helper()
	if err := chromedp.Do(p.ctx, chromedp.KeyEvent(keys)); err != nil {
		t.Fatal(err)
	}
}

// unfold opens every fold.
func (p *tab) unfold(t *testing.T) {
	t.Helper()
	eval[bool](t, p, `document.querySelectorAll("details").forEach((d) => { d.open = true; }); true`)
}
