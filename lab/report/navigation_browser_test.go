// Tests of the navigation of a page in a browser. newBrowser starts Chromium, and open shows a file in a tab with the
// window of a reader (view: phone, wide, paper); eval evaluates JavaScript there (browser_test.go).

package report_test

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/png"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/gateweigh/gateweigh/internal/browsertest"
	"github.com/gateweigh/gateweigh/lab/report"
)

// TestNavigation uses a page that has just been opened: it follows every visible link, reads the headings as a screen
// reader does, and takes a picture of the whole page. See browser_test.go for view, tab, open and eval.
func TestNavigation(t *testing.T) {
	browser := newBrowser(t)
	spec := portalSpec()
	spec.Offered = []float64{100, 1000}
	dir, _ := write(t, simulate(spec))
	file := filepath.Join(dir, report.HTMLFile)
	for _, v := range []view{wide, phone} {
		t.Run("links "+v.name, func(t *testing.T) { checkLinks(t, browser, file, v) })
		t.Run("headings "+v.name, func(t *testing.T) { checkHeadings(t, open(t, browser, file, v)) })
		t.Run("whole "+v.name, func(t *testing.T) { checkWhole(t, open(t, browser, file, v)) })
	}
}

// linksInSight is JavaScript that lists the links to places in the page that no closed fold hides.
const linksInSight = `[...document.querySelectorAll("nav a, main a")].filter((a) => a.hash && a.getClientRects().length > 0)`

// linkTarget has the place of a link's target after the link was followed, in pixels.
type linkTarget struct {
	Top    float64 // of the target in the window
	Least  float64 // the least allowed value of Top: the end of the sticky navigation
	Height float64 // of the window
	Bottom float64 // what can still be scrolled
	Seen   bool    // nothing covers the target
}

// checkLinks clicks every link from the top of the page, and requires that its target is then in sight. Links named
// "Why" are each followed in a page that was just opened; the others in the same page, the last one first.
func checkLinks(t *testing.T, browser context.Context, file string, v view) {
	t.Helper()
	p := open(t, browser, file, v)
	names := eval[[]string](t, p, linksInSight+`.map((a) => a.textContent + " " + a.hash)`)
	for i, name := range slices.Backward(names) {
		if strings.HasPrefix(name, "Why ") {
			p = open(t, browser, file, v)
		}
		browsertest.Call(t, p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-reduced-motion", Value: "no-preference"}},
		})
		eval[bool](t, p, `history.replaceState(null, "", location.pathname); scrollTo({ top: 0, behavior: "instant" }); true`)
		at := eval[[]float64](t, p, fmt.Sprintf(
			`(() => { const a = %s[%d]; a.scrollIntoView({ block: "nearest", inline: "center", behavior: "instant" });
			const b = a.getClientRects()[0]; return [b.left + b.width / 2, b.top + b.height / 2]; })()`, linksInSight, i))
		if err := chromedp.Do(p.ctx, chromedp.MouseClickXY(at[0], at[1])); err != nil {
			t.Fatal(err)
		}
		// Scrolling has ended when the page has not moved for fifteen frames.
		got := eval[linkTarget](t, p, `new Promise((done) => {
			let still = 0, last = -1;
			const look = () => {
				still = location.hash && scrollY === last ? still + 1 : 0;
				last = scrollY;
				if (still < 15) return requestAnimationFrame(look);
				const target = document.getElementById(decodeURIComponent(location.hash.slice(1))), b = target.getBoundingClientRect();
				const nav = document.querySelector("nav"), sticky = getComputedStyle(nav).position === "sticky";
				const on = document.elementFromPoint(b.left + Math.min(b.width / 2, 40), b.top + Math.min(b.height / 2, 10));
				done({ top: b.top, least: sticky ? nav.getBoundingClientRect().bottom : 0, height: innerHeight,
					bottom: document.documentElement.scrollHeight - innerHeight - scrollY,
					seen: b.height <= 1 || on === target || target.contains(on) }); // a heading for readers aloud only has no height
			};
			look();
		})`)
		if !got.Seen || got.Top < got.Least-1 || got.Top > got.Least+80 && got.Bottom > 1 {
			t.Errorf("%s lands at %+v", name, got)
		}
	}
	for _, want := range []string{"Why #skipped", "Why #rejected", "Results #results", "Environment #environment"} {
		if !slices.Contains(names, want) {
			t.Errorf("no link %q among %d", want, len(names))
		}
	}
}

// checkHeadings requires that a screen reader gets every heading, and that no level is skipped.
func checkHeadings(t *testing.T, p *tab) {
	t.Helper()
	type heading struct {
		Level int
		Text  string
	}
	shown := eval[[]heading](
		t, p, `[...document.querySelectorAll("h1, h2, h3, h4, h5, h6")].filter((h) => !h.closest("details:not([open])"))
		.map((h) => ({ level: Number(h.tagName[1]), text: h.textContent.replace(/\s+/g, " ").trim() }))`)
	for i, h := range shown {
		if i == 0 != (h.Level == 1) || i > 0 && h.Level > shown[i-1].Level+1 {
			t.Errorf("heading %q of level %d follows %+v", h.Text, h.Level, shown[max(i-1, 0)])
		}
	}
	var heard []string
	for _, node := range browsertest.Call(
		t, p.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes {
		if node.Role != nil && strings.Trim(string(node.Role.Value), `"`) == "heading" && node.Name != nil && !node.Ignored {
			heard = append(heard, string(node.Name.Value))
		}
	}
	for _, h := range shown {
		if !slices.ContainsFunc(heard, func(name string) bool {
			return strings.Contains(strings.Join(strings.Fields(name), " "), strings.ReplaceAll(h.Text, `"`, `\"`))
		}) {
			t.Errorf("heading %q is not heard; these are: %q", h.Text, heard)
		}
	}
	for _, section := range eval[[]string](t, p,
		`[...document.querySelectorAll("main > section")].filter((s) => !s.querySelector("h2")).map((s) => s.outerHTML.slice(0, 80))`) {
		t.Errorf("a section without a heading: %s", section)
	}
}

// checkWhole requires that a picture of the whole page, taken without scrolling, shows what is far below the window.
func checkWhole(t *testing.T, p *tab) {
	t.Helper()
	type part struct {
		Name                     string
		Left, Top, Right, Bottom float64
	}
	parts := eval[[]part](t, p,
		`[...document.querySelectorAll("h2, h3, figure svg, .facts dt")].filter((e) => e.getClientRects().length > 0 && !e.closest("details:not([open])")).map((e) => {
		const b = e.getBoundingClientRect();
		return { name: e.tagName + " " + e.textContent.slice(0, 40), left: b.left, top: b.top + scrollY, right: b.right, bottom: b.bottom + scrollY }; })`)
	size := eval[[]float64](t, p, `[innerWidth, document.documentElement.scrollHeight]`)
	shot := browsertest.Call(t, p.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{
		Format: "png", CaptureBeyondViewport: new(true), Clip: &page.Viewport{Width: size[0], Height: size[1], Scale: 1},
	})
	picture, err := png.Decode(bytes.NewReader(shot.Data))
	if err != nil {
		t.Fatal(err)
	}
	if len(parts) < 20 {
		t.Fatalf("only %d parts", len(parts))
	}
	for _, part := range parts {
		at := image.Rect(int(part.Left), int(part.Top), int(part.Right), int(part.Bottom)).Intersect(picture.Bounds())
		if at.Dx() > 1 && at.Dy() > 1 && plainColour(picture, at) {
			t.Errorf("the picture of the page has nothing where %s is, at %v of %v", part.Name, at, picture.Bounds())
		}
	}
}

// plainColour reports whether an area has one colour.
func plainColour(picture image.Image, at image.Rectangle) bool {
	first := picture.At(at.Min.X, at.Min.Y)
	for y := at.Min.Y; y < at.Max.Y; y++ {
		for x := at.Min.X; x < at.Max.X; x++ {
			if picture.At(x, y) != first {
				return false
			}
		}
	}
	return true
}
