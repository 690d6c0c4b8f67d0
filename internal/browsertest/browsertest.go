// Package browsertest runs a real browser, Chromium, in tests of pages: how a page looks and works cannot be told from
// its source.
package browsertest

import (
	"context"
	"os/exec"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"
)

// Program returns the path of Chromium. Where it is not installed the test fails.
func Program(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("chromium is not installed: run .ci/deps")
	}
	return path
}

// Start starts Chromium, whose path is program, with more options. It ends with ctx, or with the test.
func Start(t testing.TB, ctx context.Context, program string, more ...chromedp.ExecAllocatorOption) context.Context {
	t.Helper()
	allocator, cancel := chromedp.NewExecAllocator(ctx, slices.Concat(chromedp.DefaultExecAllocatorOptions[:],
		[]chromedp.ExecAllocatorOption{chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()),
			chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-gpu", true)}, more)...)
	t.Cleanup(cancel)
	browser, stop := chromedp.NewContext(allocator)
	t.Cleanup(stop)
	if err := chromedp.Do(browser); err != nil {
		t.Fatalf("start chromium: %v", err)
	}
	return browser
}

// Call sends a command to the browser.
func Call[P, R any](t testing.TB, ctx context.Context, command cdp.Command[P, R], params P) R {
	t.Helper()
	result, err := chromedp.Call(ctx, command, params)
	if err != nil {
		t.Fatalf("%s: %v", command.Method, err)
	}
	return result
}

// Eval evaluates JavaScript in the page and returns its value; of a promise it awaits the value. It works from outside
// of the page, because the page's policy may forbid scripts.
func Eval[T any](t testing.TB, ctx context.Context, script string) T {
	t.Helper()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%v in: %.200s", err, script)
	}
	return value
}

// Drawn waits until the page as it is now has been drawn. Chromium lays a page out, and gives a field the focus, when
// it draws a frame, which may be after the page's load event. A click before that goes to the place where an element
// was.
func Drawn(t testing.TB, ctx context.Context) {
	t.Helper()
	Eval[bool](t, ctx, `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`)
}

// Size gives the page a screen of width by height CSS pixels. A screen narrower than 500 is a phone's.
func Size(t testing.TB, ctx context.Context, width, height int64) {
	t.Helper()
	var options []chromedp.EmulateViewportOption
	if width < 500 {
		options = append(options, chromedp.EmulateMobile)
	}
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, height, options...)); err != nil {
		t.Fatal(err)
	}
}

// Press types keys where the focus is.
func Press(t testing.TB, ctx context.Context, keys string) {
	t.Helper()
	if err := chromedp.Do(ctx, chromedp.KeyEvent(keys)); err != nil {
		t.Fatal(err)
	}
}
