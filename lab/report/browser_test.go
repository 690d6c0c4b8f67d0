package report_test

import (
	"context"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/gateweigh/gateweigh/internal/browsertest"
)

// The helpers of this file open pages of the report in a real browser (Chromium). A tab is an open page, and a view is
// the size and colour scheme in which it is shown. eval runs JavaScript in a tab.

// view is the window and the colour scheme of a reader.
type view struct {
	name          string
	width, height int64 // CSS pixels
	dark          bool
	print         bool // laid out for paper
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

// newBrowser starts a browser that ends with the test.
func newBrowser(t *testing.T) context.Context {
	t.Helper()
	return browsertest.Start(t, t.Context(), browsertest.Program(t))
}

// tab is a page opened in a browser.
type tab struct {
	ctx context.Context

	mu       sync.Mutex
	requests []string // what the page requested
	errors   []string // exceptions and errors on the console
}

// open opens a file in a tab of its own, without a network, in view v. When the test ends, the page must have loaded
// nothing else and have run without errors.
func open(t *testing.T, browser context.Context, file string, v view) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	p := &tab{ctx: ctx}
	if err := chromedp.Listen(ctx, p.noteEvent); err != nil {
		t.Fatal(err)
	}
	browsertest.Call(t, ctx, network.Enable, network.EnableParams{})
	browsertest.Call(t, ctx, network.EmulateNetworkConditionsByRule, network.EmulateNetworkConditionsByRuleParams{
		MatchedNetworkConditions: []*network.Conditions{{Offline: true, DownloadThroughput: -1, UploadThroughput: -1}},
	})
	p.setView(t, v)
	path, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	address := (&url.URL{Scheme: "file", Path: path}).String()
	if err := chromedp.Do(ctx, chromedp.Navigate(address)); err != nil {
		t.Fatalf("open %s: %v", address, err)
	}
	browsertest.Drawn(t, ctx)
	t.Cleanup(func() { p.checkQuiet(t, address) })
	return p
}

// setView changes the way the page is looked at.
func (p *tab) setView(t *testing.T, v view) {
	t.Helper()
	scheme, medium := "light", "screen"
	if v.dark {
		scheme = "dark"
	}
	if v.print {
		medium = "print"
	}
	browsertest.Call(t, p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Media: medium, Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	browsertest.Size(t, p.ctx, v.width, v.height)
}

// noteEvent records requests and exceptions of scripts.
func (p *tab) noteEvent(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		p.requests = append(p.requests, e.Request.URL)
	case *runtime.EventExceptionThrown:
		p.errors = append(p.errors, e.ExceptionDetails.Text)
	}
}

// checkQuiet requires that the page requested nothing but itself and ran without errors.
func (p *tab) checkQuiet(t *testing.T, address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.requests) == 0 {
		t.Error("no request was seen, not even for the page: the check does not work")
	}
	for _, asked := range p.requests {
		if asked != address && !strings.HasPrefix(asked, "data:") {
			t.Errorf("the page asked for %s", asked)
		}
	}
	for _, text := range p.errors {
		t.Errorf("script: %s", text)
	}
}

// eval evaluates JavaScript in the page and returns its value. If that is a promise, eval waits for it.
func eval[T any](t *testing.T, p *tab, script string) T {
	t.Helper()
	return browsertest.Eval[T](t, p.ctx, script)
}

// typeKeys types keys where the focus is.
func (p *tab) typeKeys(t *testing.T, keys string) {
	t.Helper()
	browsertest.Press(t, p.ctx, keys)
}

// unfold opens every fold.
func (p *tab) unfold(t *testing.T) {
	t.Helper()
	eval[bool](t, p, `document.querySelectorAll("details").forEach((d) => { d.open = true; }); true`)
}
