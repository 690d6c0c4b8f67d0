// Package browsertest has a real browser, Chromium, for tests: what a page looks like and how it is used cannot be told
// from its source.
package browsertest

import (
	"context"
	"os/exec"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"
)

// Program is the path of Chromium. Without it the test fails.
func Program(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("chromium is not installed: run .ci/deps")
	}
	return path
}

// Start starts a program that is Chromium, with more options. It ends with ctx, or with the test.
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

// Eval evaluates JavaScript in the page from outside of it, because the page's policy may forbid scripts. It waits for
// a promise.
func Eval[T any](t testing.TB, ctx context.Context, script string) T {
	t.Helper()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%v in: %.200s", err, script)
	}
	return value
}

// Drawn waits until the page as it is now has been drawn. Chromium lays a page out for its screen, and gives a field
// the focus, when it draws a frame, which may be after the page's load event: a click before goes where something was.
func Drawn(t testing.TB, ctx context.Context) {
	t.Helper()
	Eval[bool](t, ctx, `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`)
}

// Size gives the page a screen, CSS pixels. Narrow ones are phones'.
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
