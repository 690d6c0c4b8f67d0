package report_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/gateweigh/gateweigh/lab/profile"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
)

// A flame graph draws a profile: each bar is a function, its width the CPU time with all functions that it calls. The
// tests of this file use it in a browser: see browser_test.go for view, tab, open and eval.

// flameRun writes a run folder with profiles of two devices and returns its page. The profiles' load has no trials, so
// times are not scaled. Some function names contain characters of HTML and JSON.
func flameRun(t *testing.T) (file string) {
	t.Helper()
	dir, _ := write(t, simulate(single()))
	stacks := func(hook float64, daemon string) []profile.Stack {
		list := []profile.Stack{
			flameStack(300, "napi/lan", "napi_poll", "ip_forward"),
			flameStack(200, "napi/lan", "napi_poll", "ip_forward", "ip_output"),
			flameStack(100, "napi/wan", "napi_poll", "ip_forward"),
		}
		if hook > 0 {
			list = append(list, flameStack(hook, "napi/lan", "napi_poll", "nf_hook_slow", "nft_do_chain"),
				flameStack(hook/4, "napi/lan", "napi_poll", "nf_hook_slow"))
		}
		if daemon != "" {
			list = append(list, flameStack(50, daemon, "main</script><b>", "poll\"'&"))
		}
		return list
	}
	for _, dut := range []string{"coovachilli", "opennds"} {
		p := profile.Profile{
			Cell: result.NewCell(
				result.DUT, dut, result.Clients, 21, result.OfferedMbps, 500, result.Direction, "up", result.Profile, "per-packet"),
			FrequencyHz: profile.FrequencyHz, UserStacks: profile.UnwindDWARF, Perf: "perf version 6.1",
			DUT:   flameSide(stacks(400, dut)),
			Clean: flameSide(stacks(0, "")),
		}
		if err := profile.Write(dir, p); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := report.Write(dir); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, report.HTMLFile)
}

// flameStack returns a stack of kernel functions with its own time, below an account (a thread or program).
func flameStack(ns float64, account string, functions ...string) profile.Stack {
	s := profile.Stack{Frames: []profile.Frame{{Func: account}}, NsPerPacket: ns}
	for _, f := range functions {
		s.Frames = append(s.Frames, profile.Frame{Func: f, Module: profile.Kernel})
	}
	return s
}

// flameSide returns one router's profile with these stacks.
func flameSide(stacks []profile.Stack) profile.Side {
	s := profile.Side{Seconds: 10, Packets: 1000, Stacks: stacks}
	for _, st := range stacks {
		s.Accounts = append(
			s.Accounts, profile.Account{Name: st.Frames[0].Func, Ns: int64(1000 * st.NsPerPacket), Samples: 1000})
	}
	return s
}

// bar is one drawn frame.
type bar struct {
	Label, Text, Class string
	Left, Width, Level float64 // shares of the graph; depth from 1
	Selected           bool
}

// bars reads the drawn bars of the page.
func bars(t *testing.T, p *tab) []bar {
	t.Helper()
	return eval[[]bar](t, p, `[...document.querySelectorAll("#flame-graph [role=treeitem]")].map((e) => ({
		label: e.getAttribute("aria-label"), text: e.textContent, class: e.className, left: parseFloat(e.style.left) / 100,
		width: parseFloat(e.style.width) / 100, level: Number(e.getAttribute("aria-level")), selected: e.getAttribute("aria-selected") === "true" }))`)
}

// textsOf returns the bars of a function.
func textsOf(list []bar, function string) (found []bar) {
	for _, b := range list {
		if strings.HasPrefix(b.Label, function+" [") || strings.HasPrefix(b.Label, function+":") {
			found = append(found, b)
		}
	}
	return found
}

// isNear reports whether two shares are equal within 0.001.
func isNear(a, b float64) bool { return a > b-0.001 && a < b+0.001 }

// TestFlameGraphInBrowser uses the flame graph as a reader does.
func TestFlameGraphInBrowser(t *testing.T) {
	browser := newBrowser(t)
	file := flameRun(t)
	for name, check := range map[string]func(*testing.T, *tab){
		"views": checkFlameViews, "search": checkFlameSearch, "zoom by click": checkFlameClick,
		"zoom by keys": checkFlameKeys, "profiles": checkFlameProfiles,
	} {
		t.Run(name, func(t *testing.T) { check(t, open(t, browser, file, wide)) })
	}
	for _, v := range []view{wide, phone, paper} {
		t.Run("fits "+v.name, func(t *testing.T) { checkFits(t, open(t, browser, file, v)) })
	}
	t.Run("without JavaScript", func(t *testing.T) { checkFlameWithoutScript(t, browser, file) })
	for _, v := range []view{wideDark, phone} {
		t.Run("accessible "+v.name, func(t *testing.T) {
			p := open(t, browser, file, v)
			p.unfold(t)
			checkAccessible(t, p)
		})
	}
}

// checkFlameViews requires the right widths and colours of bars, for the difference and for the clean router alone. The
// device costs 300+200+100+400+100+50 = 1150 ns per packet, the clean router 600.
func checkFlameViews(t *testing.T, p *tab) {
	list := bars(t, p)
	hook := textsOf(list, "nf_hook_slow")
	if len(hook) != 1 || !isNear(hook[0].Width, 500.0/1150) || !strings.Contains(hook[0].Class, "more4") ||
		!strings.Contains(hook[0].Label, "difference +500.0") {
		t.Errorf("nf_hook_slow in the difference: %+v", hook)
	}
	if forward := textsOf(list, "ip_forward"); len(forward) != 2 || !strings.Contains(forward[0].Class, "same") ||
		!isNear(forward[0].Width, 500.0/1150) {
		t.Errorf("ip_forward: %+v", forward)
	}
	if odd := textsOf(list, "main</script><b>"); len(odd) != 1 || odd[0].Text != "main</script><b>" {
		t.Errorf("a name with markup: %+v", odd)
	}
	eval[bool](t, p, `document.querySelector("input[value=clean]").click(); true`)
	list = bars(t, p)
	if len(textsOf(list, "nf_hook_slow")) != 0 {
		t.Error("the clean router is drawn with the device's hook")
	}
	if forward := textsOf(list, "ip_forward"); len(forward) != 2 || !isNear(forward[0].Width, 500.0/600) ||
		!strings.Contains(forward[0].Class, "kernel") {
		t.Errorf("ip_forward of the clean router: %+v", forward)
	}
}

// checkFlameSearch requires that a search marks the matching bars and gives their share.
func checkFlameSearch(t *testing.T, p *tab) {
	eval[bool](t, p, `document.querySelector("#flame-search").focus(); true`)
	p.typeKeys(t, "NF")
	var found []string
	for _, b := range bars(t, p) {
		if strings.Contains(b.Class, "found") {
			found = append(found, b.Text)
		}
	}
	if fmt.Sprint(found) != "[nf_hook_slow nft_do_chain]" {
		t.Errorf("marked: %v", found)
	}
	text := `document.querySelector("#flame-found").textContent`
	// nft_do_chain is part of nf_hook_slow and counts once.
	if got := eval[string](t, p, text); !strings.Contains(got, "2 frames match: device 500.0 ns per packet (43.5 %)") ||
		!strings.Contains(got, "difference +500.0") {
		t.Errorf("search says %q", got)
	}
	p.typeKeys(t, "xyz")
	if got := eval[string](t, p, text); !strings.Contains(got, "Nothing matches “NFxyz”") {
		t.Errorf("a search in vain says %q", got)
	}
}

// checkFlameClick requires that a click on a bar zooms to it, and that the reset button shows all again.
func checkFlameClick(t *testing.T, p *tab) {
	if err := chromedp.Do(p.ctx, chromedp.Click(`#flame-graph [aria-label^="nf_hook_slow"]`)); err != nil {
		t.Fatal(err)
	}
	list := bars(t, p)
	hook, chain := textsOf(list, "nf_hook_slow"), textsOf(list, "nft_do_chain")
	if len(hook) != 1 || !isNear(hook[0].Width, 1) || !hook[0].Selected || len(chain) != 1 ||
		!isNear(chain[0].Width, 0.8) {
		t.Errorf("zoomed: %+v, %+v", hook, chain)
	}
	if callers := textsOf(list, "napi_poll"); len(callers) != 1 || !isNear(callers[0].Width, 1) ||
		len(textsOf(list, "ip_forward")) != 0 {
		t.Errorf("around it: %+v", list)
	}
	if got := eval[string](t, p, `document.querySelector("#flame-detail").textContent`); !strings.HasPrefix(
		got, "nf_hook_slow [kernel]: device 500.0 ns per packet (43.5 %)") {
		t.Errorf("detail %q", got)
	}
	if err := chromedp.Do(p.ctx, chromedp.Click("#flame-reset")); err != nil {
		t.Fatal(err)
	}
	if hook := textsOf(bars(t, p), "nf_hook_slow"); !isNear(hook[0].Width, 500.0/1150) {
		t.Errorf("after the reset: %+v", hook)
	}
}

// checkFlameKeys requires that arrow keys move the focus between bars, Enter zooms and Escape zooms out.
func checkFlameKeys(t *testing.T, p *tab) {
	active := `document.activeElement.getAttribute("aria-label") || ""`
	eval[bool](t, p, `document.querySelector("#flame-graph [tabindex='0']").focus(); true`)
	for _, step := range []struct{ keys, want string }{
		{kb.ArrowDown, "coovachilli"}, {kb.ArrowRight, "napi/lan"}, {kb.ArrowRight, "napi/wan"}, {kb.ArrowLeft, "napi/lan"},
		{kb.ArrowDown, "napi_poll"}, {kb.ArrowDown, "ip_forward"}, {kb.ArrowRight, "nf_hook_slow"},
		{kb.Enter, "nf_hook_slow"}, {kb.ArrowUp, "napi_poll"}, {kb.End, "nft_do_chain"},
	} {
		p.typeKeys(t, step.keys)
		if got := eval[string](t, p, active); !strings.HasPrefix(got, step.want) {
			t.Fatalf("after %q the focus is on %q, want %s", step.keys, got, step.want)
		}
	}
	if hook := textsOf(bars(t, p), "nf_hook_slow"); !isNear(hook[0].Width, 1) {
		t.Errorf("Enter did not zoom: %+v", hook)
	}
	p.typeKeys(t, kb.Escape)
	if hook, poll := textsOf(bars(t, p), "nf_hook_slow"), textsOf(bars(t, p), "napi_poll"); !isNear(hook[0].Width, 0.5) ||
		!poll[0].Selected {
		t.Errorf("Escape did not zoom out by one: %+v, %+v", hook, poll)
	}
	if n := eval[int](t, p, `document.querySelectorAll("#flame-graph [tabindex='0']").length`); n != 1 {
		t.Errorf("Tab reaches %d bars, want 1", n)
	}
}

// checkFlameProfiles requires that choosing another profile changes graph and table.
func checkFlameProfiles(t *testing.T, p *tab) {
	shown := `[...document.querySelectorAll(".flame-profile:not([hidden]) h3")].map((h) => h.textContent).join()`
	if got := eval[string](t, p, shown); !strings.HasPrefix(got, "coovachilli") || strings.Contains(got, "opennds") {
		t.Errorf("tables of %q", got)
	}
	eval[bool](t, p,
		`(() => { const s = document.querySelector("#flame-profile"); s.selectedIndex = 1; s.dispatchEvent(new Event("change")); return true; })()`)
	if got := eval[string](t, p, shown); !strings.HasPrefix(got, "opennds") {
		t.Errorf("tables of %q after choosing opennds", got)
	}
	if len(textsOf(bars(t, p), "opennds")) != 1 {
		t.Error("the graph is still of the other device")
	}
	table := eval[string](t, p, `document.querySelector(".flame-profile:not([hidden]) table").innerText`)
	for _, want := range []string{"nft_do_chain", "+400.0", "sum", "+550.0", "No accepted trial of this cell"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
}

// checkFlameWithoutScript requires that a browser without JavaScript shows a table and a drawing of each profile.
func checkFlameWithoutScript(t *testing.T, browser context.Context, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// A browser without scripts shows the contents of <noscript>.
	plain := strings.NewReplacer("<noscript>", "", "</noscript>", "").Replace(string(text))
	for strings.Contains(plain, "<script") {
		before, rest, _ := strings.Cut(plain, "<script")
		_, after, _ := strings.Cut(rest, "</script>")
		plain = before + after
	}
	noScript := filepath.Join(t.TempDir(), "plain.html")
	if err := os.WriteFile(noScript, []byte(plain), 0o644); err != nil {
		t.Fatal(err)
	}
	p := open(t, browser, noScript, phone)
	p.unfold(t)
	if got := eval[[]int](t, p,
		`[document.querySelectorAll("svg.flame-static rect").length, document.querySelectorAll(".flame-profile table").length,
		[...document.querySelectorAll(".flame-profile, .flame-static")].filter((e) => e.getBoundingClientRect().height === 0).length,
		document.querySelector("#flame-view").getBoundingClientRect().height]`); got[0] < 16 || got[1] != 2 || got[2] != 0 ||
		got[3] != 0 {
		t.Errorf("bars, tables, hidden parts, height of the controls: %v", got)
	}
}
