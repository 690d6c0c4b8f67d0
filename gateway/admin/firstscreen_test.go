package admin

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/gateweigh/gateweigh/internal/browsertest"
)

// screen is when a page was there, in milliseconds from the start of its navigation, by the browser's clock.
type screen struct {
	Response float64 `json:"response"` // the last byte was there
	DOM      float64 `json:"dom"`      // the document was read, and its scripts had run
	Paint    float64 `json:"paint"`    // something of the page was on the screen; 0: not yet
}

// BenchmarkFirstScreen is how long Chromium takes, over TLS, until the list of 100,000 sessions is on the screen. It
// prints the median and the longest of 20 loads, which a page without sessions comes before. Long: what the browser is
// told.
//
//	go test -run - -bench FirstScreen -benchtime 20x ./gateway/admin
func BenchmarkFirstScreen(b *testing.B) {
	dir := b.TempDir()
	w := newWorld(b, 100_000, func(c *Config) {
		c.Cert, c.Key = certify(b, dir, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	})
	base := "https" + strings.TrimPrefix(w.base, "http")
	ctx := browsertest.Start(b, b.Context(), browsertest.Program(b), chromedp.Flag("ignore-certificate-errors", true))
	browsertest.Size(b, ctx, 1280, 800)
	load := func(path string) screen {
		b.Helper()
		if _, err := chromedp.RunResponse(ctx, chromedp.Navigate(base+path)); err != nil {
			b.Fatal(err)
		}
		browsertest.Drawn(b, ctx)
		return browsertest.Eval[screen](b, ctx, `new Promise((done) => {
			const answer = (paint) => { const n = performance.getEntriesByType("navigation")[0];
				done({ response: n.responseEnd, dom: n.domContentLoadedEventEnd, paint: paint.startTime }); };
			new PerformanceObserver((list) => list.getEntriesByName("first-contentful-paint").forEach(answer))
				.observe({ type: "paint", buffered: true });
		})`)
	}
	load("/login")
	const logIn = `document.querySelector("#name").value = "ann", document.querySelector("#password").value = "right",
		document.querySelector("form").submit()`
	if _, err := chromedp.RunResponse(ctx, chromedp.Evaluate[chromedp.Void](logIn)); err != nil {
		b.Fatal(err)
	}
	if at, err := url.Parse(browsertest.Eval[string](b, ctx, "location.href")); err != nil || at.Path != "/sessions" {
		b.Fatalf("after the login the browser is at %s, %v", at, err)
	}
	var all []screen
	for b.Loop() {
		load("/networks") // so that each list is a page of its own
		all = append(all, load("/sessions"))
	}
	if rows := browsertest.Eval[int](b, ctx, "document.querySelectorAll('tbody tr').length"); rows != 50 {
		b.Fatalf("the list has %d rows", rows)
	}
	for _, of := range []struct {
		unit string
		get  func(screen) float64
	}{{"response", func(s screen) float64 { return s.Response }}, {"dom", func(s screen) float64 { return s.DOM }},
		{"paint", func(s screen) float64 { return s.Paint }}} {
		var ms []float64
		for _, s := range all {
			ms = append(ms, of.get(s))
		}
		slices.Sort(ms)
		b.ReportMetric(ms[len(ms)/2], of.unit+"-p50-ms")
		b.ReportMetric(ms[len(ms)-1], of.unit+"-max-ms")
	}
}
