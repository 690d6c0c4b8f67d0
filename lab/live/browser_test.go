package live_test

import (
	"context"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/gateweigh/gateweigh/internal/browsertest"
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/live"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

var shots = flag.String("shots", "", "folder to photograph pages into")

// screen is the size and colour scheme of a reader's screen.
type screen struct {
	name          string
	width, height int64
	dark          bool
}

var screens = []screen{
	{"desktop", 1280, 900, false}, {"desktop-dark", 1280, 900, true}, {"phone", 390, 844, false},
	{"phone-dark", 390, 844, true},
}

// tab is a browser tab with a page of a server.
type tab struct {
	ctx    context.Context
	server *httptest.Server

	mu     sync.Mutex
	errors []string // exceptions of scripts, and requests to other servers
}

func newTab(t *testing.T, browser context.Context, server *httptest.Server) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	p := &tab{ctx: ctx, server: server}
	if err := chromedp.Listen(ctx, p.noteEvent); err != nil {
		t.Fatal(err)
	}
	browsertest.Call(t, ctx, network.Enable, network.EnableParams{})
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, text := range p.errors {
			t.Error(text)
		}
	})
	return p
}

// noteEvent records exceptions of scripts and requests to other servers.
func (p *tab) noteEvent(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if to := e.Request.URL; !strings.HasPrefix(to, p.server.URL+"/") && !strings.HasPrefix(to, "data:") {
			p.errors = append(p.errors, "a page asked for "+to)
		}
	case *runtime.EventExceptionThrown:
		p.errors = append(p.errors, "script: "+e.ExceptionDetails.Text)
	}
}

// look sets the size and the colour scheme of the tab.
func (p *tab) look(t *testing.T, s screen) {
	t.Helper()
	scheme := "light"
	if s.dark {
		scheme = "dark"
	}
	browsertest.Call(t, p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Media: "screen", Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme},
			{Name: "prefers-reduced-motion", Value: "reduce"}},
	})
	browsertest.Size(t, p.ctx, s.width, s.height)
}

func (p *tab) open(t *testing.T, address string) {
	t.Helper()
	if err := chromedp.Do(p.ctx, chromedp.Navigate(p.server.URL+address)); err != nil {
		t.Fatalf("open %s: %v", address, err)
	}
	browsertest.Drawn(t, p.ctx)
}

// await waits until a script returns true, on this page or on the next one that a link leads to.
func (p *tab) await(t *testing.T, what, script string) {
	t.Helper()
	labtest.Await(t, what+" on the page", func() bool {
		holds, err := chromedp.Run(
			p.ctx, chromedp.Evaluate[bool](`(() => { try { return Boolean(`+script+`); } catch { return false; } })()`))
		return err == nil && holds // an error: the tab is loading another page
	})
}

// photograph writes a picture of the whole page into the folder -shots, if that is set.
func (p *tab) photograph(t *testing.T, name string) {
	t.Helper()
	if *shots == "" {
		return
	}
	size := browsertest.Eval[[]float64](t, p.ctx, `[innerWidth, Math.min(document.documentElement.scrollHeight, 2600)]`)
	shot := browsertest.Call(t, p.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{
		Format: "png", CaptureBeyondViewport: new(true), Clip: &page.Viewport{Width: size[0], Height: size[1], Scale: 1},
	})
	if err := os.WriteFile(filepath.Join(*shots, name+".png"), shot.Data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// folder makes a folder with runs in several states; one goes on.
func folder(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	for i := range 5 {
		run := simulated("quick", 24*i)
		if i == 4 {
			run.Environment.Kernel = "6.19.0 #1 SMP PREEMPT_DYNAMIC Debian 6.19.2-1"
		}
		write(t, filepath.Join(root, fmt.Sprintf("2026030%dT090000Z-quick", i+1)), run)
	}
	begin(t, filepath.Join(root, "20260306T090000Z-quick"), simulated("quick", 120), 6)
	broken := filepath.Join(root, "20260302T110000Z-quick")
	begin(t, broken, simulated("quick", 26), 4)
	if err := result.WriteProgress(broken, result.Progress{Process: result.Process{PID: 1, Ticks: 1,
		Boot: result.ThisProcess().Boot, Space: result.ThisProcess().Space}, Done: 0.4, Doing: "ebpf, block 2"}); err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(root, "damaged")
	write(t, damaged, simulated("quick", 30))
	if err := os.WriteFile(filepath.Join(damaged, result.EnvironmentFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	writeCampaign(t, filepath.Join(root, "nodes"))
	return root
}

// TestPagesInABrowser checks every page on all screens: it is accessible and needs no sideways scrolling.
func TestPagesInABrowser(t *testing.T) {
	server := serve(t, live.Config{Dir: folder(t)})
	browser := browsertest.Start(t, t.Context(), browsertest.Program(t))
	for name, address := range map[string]string{
		"list": "/", "run": "/run?run=20260306T090000Z-quick", "broken": "/run?run=20260302T110000Z-quick",
		"compare": "/compare?run=20260301T090000Z-quick&run=20260305T090000Z-quick", "trend": "/trend?experiment=quick",
		"trends": "/trend", "campaign": "/campaign", "damaged": "/run?run=damaged", "nothing": "/run?run=nothing",
	} {
		t.Run(name, func(t *testing.T) {
			p := newTab(t, browser, server)
			p.look(t, screens[0])
			p.open(t, address)
			browsertest.LoadAxe(t, p.ctx)
			for _, screen := range screens {
				p.look(t, screen)
				browsertest.Drawn(t, p.ctx)
				p.photograph(t, name+"-"+screen.name)
				checkFits(t, p, screen)
				for _, text := range browsertest.Inaccessible(t, p.ctx) {
					t.Errorf("%s: %s", screen.name, text)
				}
				if name == "campaign" { // the headings must be visible, also on a phone
					for _, hidden := range browsertest.Eval[[]string](t, p.ctx, `[...document.querySelectorAll("h2[id^=c-]")]
						.filter((e) => e.getBoundingClientRect().height < 10).map((e) => e.textContent)`) {
						t.Errorf("%s: the name of campaign %s is hidden", screen.name, hidden)
					}
				}
			}
		})
	}
}

// checkFits checks that the page is no wider than the screen, and that buttons and links on a phone are large enough.
func checkFits(t *testing.T, p *tab, s screen) {
	t.Helper()
	if wide := browsertest.Eval[int64](t, p.ctx, `document.documentElement.scrollWidth`); wide > s.width {
		t.Errorf("%s: the page is %d pixels wide, the screen %d", s.name, wide, s.width)
	}
	if s.width > 500 {
		return
	}
	for _, small := range browsertest.Eval[[]string](
		t, p.ctx, `[...document.querySelectorAll("form button, select, .site a, nav a")]
		.filter((e) => e.getClientRects().length && e.getBoundingClientRect().height < 24)
		.map((e) => e.textContent.slice(0, 40))`) {
		t.Errorf("%s: %q is less than 24 pixels high", s.name, small)
	}
}

// TestPageGrows: a page shows a run that grows, ends and is deleted. It always shows the figures, the state and the
// time left. What the reader has unfolded stays open, and the focus stays.
func TestPageGrows(t *testing.T) {
	root := t.TempDir()
	dir, run := filepath.Join(root, "grows"), simulated("quick", 1)
	begin(t, dir, run, 2)
	server := serve(t, live.Config{Dir: root})
	browser := browsertest.Start(t, t.Context(), browsertest.Program(t))
	p := newTab(t, browser, server)
	p.look(t, screens[0])
	p.open(t, "/run?run=grows")
	p.await(t, "the status", `document.querySelector("#progress .progress").ariaValueNow === "20"`)
	browsertest.Eval[bool](t, p.ctx, `document.querySelector("#latest details").open = true;
		document.querySelector('nav a[href="#trust"]').focus(); window.unchanged = true; scrollTo(0, 300); true`)
	for _, blocks := range []int{5, 8} {
		begin(t, dir, run, blocks)
		p.await(t, "more of the run", fmt.Sprintf(
			`document.querySelector("#progress .progress").ariaValueNow === "%d" &&
			document.querySelector("main").textContent.includes(%q) &&
			document.querySelector("#progress").textContent.includes("left")`, blocks*10, counts(t, dir)))
	}
	if got := browsertest.Eval[[]any](t, p.ctx, `[window.unchanged, document.querySelector("#latest details").open,
		document.activeElement.hash, scrollY, document.querySelectorAll("h2#status").length,
		document.querySelectorAll("th button").length > 0]`); fmt.Sprint(got) != "[true true #trust 300 1 true]" {
		t.Errorf("after the page has grown: %v", got)
	}
	write(t, dir, run) // it ends
	if err := os.Remove(filepath.Join(dir, result.ProgressFile)); err != nil {
		t.Fatal(err)
	}
	p.await(t, "the end",
		`!document.querySelector("#progress") && !document.querySelector("nav").textContent.includes("Going on") &&
		document.querySelector("#results")`)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	p.await(t, "that it is gone", `document.querySelector(".connection").textContent.includes("deleted")`)
}

// counts returns the sentence about accepted trials in the report of a run's folder.
func counts(t *testing.T, dir string) string {
	t.Helper()
	run, err := measure.ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	return words.Counted(measure.Summarise(run, analysis.Options{}).Trials.Accepted, "trial") + " accepted"
}

// TestKeyboardAlone uses only keys: it chooses and compares two runs, and searches for a run.
func TestKeyboardAlone(t *testing.T) {
	root := folder(t)
	server := serve(t, live.Config{Dir: root})
	browser := browsertest.Start(t, t.Context(), browsertest.Program(t))
	p := newTab(t, browser, server)
	p.look(t, screens[2])
	p.open(t, "/")
	tabTo := func(script string) {
		t.Helper()
		for range 200 {
			if browsertest.Eval[bool](t, p.ctx, "(() => { try { return "+script+"; } catch { return false; } })()") {
				if ring := browsertest.Eval[string](
					t, p.ctx, `getComputedStyle(document.activeElement).outlineStyle`); ring == "none" {
					t.Errorf("the focus is not seen: %s", script)
				}
				return
			}
			browsertest.Press(t, p.ctx, kb.Tab)
		}
		t.Fatalf("no key leads to %s", script)
	}
	for _, name := range []string{"20260305T090000Z-quick", "20260301T090000Z-quick"} {
		tabTo(fmt.Sprintf(`document.activeElement.value === %q`, name))
		browsertest.Press(t, p.ctx, " ")
	}
	p.await(t, "the count", `document.getElementById("chosen").textContent === "Two are chosen."`)
	// The script renews the list when another run appears, and keeps the choice.
	write(t, filepath.Join(root, "20260307T090000Z-quick"), simulated("quick", 150))
	p.await(t, "a further run", `document.querySelector("main").textContent.includes("20260307T090000Z-quick")`)
	p.await(t, "the count", `document.getElementById("chosen").textContent === "Two are chosen."`)
	tabTo(`document.activeElement.textContent === "Compare the two chosen"`)
	browsertest.Press(t, p.ctx, kb.Enter)
	p.await(t, "the comparison",
		`document.querySelector("h2").textContent === "20260305T090000Z-quick over 20260301T090000Z-quick"`)
	tabTo(`document.activeElement.textContent === "Runs"`)
	browsertest.Press(t, p.ctx, kb.Enter)
	p.await(t, "the list", `location.pathname === "/" && document.activeElement && document.querySelector(".filter")`)
	tabTo(`document.activeElement.type === "search"`)
	browsertest.Press(t, p.ctx, "6.19"+kb.Enter)
	p.await(t, "what was found",
		`location.search.includes("6.19") && document.querySelectorAll(".runs tbody tr").length === 1`)
}
