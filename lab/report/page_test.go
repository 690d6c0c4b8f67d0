package report_test

import (
	"bytes"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/gateweigh/gateweigh/internal/browsertest"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
)

// The tests of this file use pages in a real browser: see browser_test.go for view, tab, open and eval. In the page,
// rows and marks have the attributes data-cell and data-value, by which they are compared with summary.json.

// bothSweeps describes a run with several bandwidths and several numbers of clients, as in the study, so that the page
// has every section.
func bothSweeps() analysistest.Spec {
	spec := portalSpec()
	spec.DUTs = append(spec.DUTs, analysistest.DUT{Name: "allow-list", Ratio: 1.01})
	spec.Clients, spec.Offered = []int{1, 10, 50, 100}, []float64{100, 200, 400, 800, 1000}
	return spec
}

// TestPageInBrowser opens the page as its readers do.
func TestPageInBrowser(t *testing.T) {
	browser := newBrowser(t)
	spec := bothSweeps()
	run := simulate(spec)
	dir, _ := write(t, run)
	addCourses(t, dir, run)
	file := filepath.Join(dir, report.HTMLFile)
	s, cells := readSummary(t, dir), rawCells(t, dir)
	t.Run("courses", func(t *testing.T) { checkCourses(t, open(t, browser, file, phone), len(spec.DUTs)) })
	t.Run("tables", func(t *testing.T) { checkTables(t, open(t, browser, file, wide), cells) })
	t.Run("charts", func(t *testing.T) { checkMarks(t, open(t, browser, file, wide), s) })
	t.Run("keyboard", func(t *testing.T) { checkKeyboard(t, open(t, browser, file, wide)) })
	t.Run("marks say what they are", func(t *testing.T) { checkTips(t, open(t, browser, file, wide)) })
	t.Run("answers lead to findings", func(t *testing.T) { checkAnswers(t, open(t, browser, file, phone)) })
	t.Run("printing", func(t *testing.T) { checkPrinting(t, open(t, browser, file, wide)) })
	t.Run("schemes", func(t *testing.T) { checkSchemes(t, open(t, browser, file, wide)) })
	for _, v := range []view{wide, phone, paper} {
		t.Run("fits "+v.name, func(t *testing.T) { checkFits(t, open(t, browser, file, v)) })
	}
}

// checkTables compares the tables of results with summary.json: each cell is in each table once, and each column with
// the name of a figure shows it.
func checkTables(t *testing.T, p *tab, cells []map[string]any) {
	t.Helper()
	checkFields(t, p, cells,
		[]string{"metrics.cpu_ns_per_bit.change.mean", "verdict.word", "metrics.cpu_core_pct.device.mean",
			"metrics.rtt_p99_median_us.device.mean", "metrics.rtt_p50_median_us.clean.mean", "metrics.pss_mib.device.mean",
			"metrics.retransmit_ratio.device.mean", "verdict.p_different", "pairs", "rejected"})
	// The increase is computed from two figures of summary.json, which does not have it itself.
	increases := eval[[]string](t, p, `(() => {
		const table = [...document.querySelectorAll("#results ~ * table.sortable")].find((t) => t.tHead.querySelector("[data-field='verdict.word']"));
		const at = [...table.tHead.rows[0].cells].findIndex((th) => th.textContent.startsWith("Increase"));
		return [...table.tBodies[0].rows].map((tr) => tr.cells[at].dataset.sort);
	})()`)
	for i, cell := range cells {
		device, clean := figureOf(cell, "metrics.cpu_normalised_pct.device.mean").(float64),
			figureOf(cell, "metrics.cpu_normalised_pct.clean.mean").(float64)
		want := 100 * (device/clean - 1)
		if got, err := strconv.ParseFloat(increases[i], 64); err != nil || math.Abs(got-want) > 1e-3 {
			t.Errorf("%v: the table has an increase of %q, summary.json of %g", cell["dimensions"], increases[i], want)
		}
	}
}

// checkFields compares the figures in all tables of results with the cells of summary.json. The figures in wanted must
// be shown. Names are paths such as "metrics.cpu_ns_per_bit.change.mean".
func checkFields(t *testing.T, p *tab, cells []map[string]any, wanted []string) {
	t.Helper()
	type row struct {
		Key    string
		Fields map[string]string
	}
	tables := eval[[][]row](t, p, `[...document.querySelectorAll("#results ~ * table.sortable, #results ~ table.sortable")]
		.filter((table) => table.tHead.querySelector("[data-field]"))
		.map((table) => [...table.tBodies[0].rows].map((tr) => ({
			Key: tr.dataset.cell,
			Fields: Object.fromEntries([...table.tHead.rows[0].cells].flatMap((th, i) =>
				th.dataset.field ? [[th.dataset.field, tr.cells[i].dataset.sort]] : [])),
		})))`)
	seen := map[string]bool{}
	for _, rows := range tables {
		if len(rows) != len(cells) {
			t.Errorf("a table of %d rows for %d cells", len(rows), len(cells))
			continue
		}
		for i, r := range rows {
			for field, shown := range r.Fields {
				seen[field] = true
				if want := figureOf(cells[i], field); !sameFigure(shown, want) {
					t.Errorf("%s, %s: the table has %q, summary.json %v", r.Key, field, shown, want)
				}
			}
		}
	}
	for _, field := range wanted {
		if !seen[field] {
			t.Errorf("no table shows %s", field)
		}
	}
}

// figureOf returns the value at a path ("verdict.word") in a cell of summary.json; nil if there is none.
func figureOf(cell map[string]any, field string) any {
	var at any = cell
	for _, key := range strings.Split(field, ".") {
		m, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = m[key]
	}
	return at
}

// sameFigure reports whether a text in the page is the value want of summary.json; an absent value is an empty text.
func sameFigure(shown string, want any) bool {
	switch w := want.(type) {
	case nil:
		return shown == ""
	case string:
		return shown == w
	case float64:
		n, err := strconv.ParseFloat(shown, 64)
		return err == nil && math.Abs(n-w) <= 1e-9*math.Abs(w)
	}
	return false
}

// checkMarks compares the charts with the summary: the chart of a sweep has exactly one mark for each level, at the
// summary's figure.
func checkMarks(t *testing.T, p *tab, s stored) {
	type chartMarks struct {
		Heading string
		Marks   [][2]string // name and figure
	}
	charts := eval[[]chartMarks](
		t, p, `[...document.querySelectorAll("#charts ~ * figure, #charts ~ figure")].map((f) => ({
		Heading: f.querySelector("h4").textContent,
		Marks: [...f.querySelectorAll("svg .point")].map((g) => [g.dataset.cell, g.dataset.value]),
	}))`)
	ratios := map[string]string{}
	for _, c := range s.Cells {
		ratios[c.Dimensions.String()] = c.Metrics.Change(cost.PerBit).Mean.String()
	}
	cpu, levels := levelFigures(s)
	drawn := map[string]int{}
	for _, ch := range charts {
		along := result.OfferedMbps
		if strings.Contains(ch.Heading, "over clients") {
			along = result.Clients
		}
		kind, want := "ratio", ratios
		switch {
		case strings.HasPrefix(ch.Heading, "Router CPU, normalised"):
			kind, want = "cpu", cpu[along]
		case !strings.HasPrefix(ch.Heading, "Overhead ratio over"):
			continue
		}
		for _, m := range ch.Marks {
			if value, known := want[m[0]]; !known || value != m[1] {
				t.Errorf("%s: the mark of %s is at %s, summary.json has %q", ch.Heading, m[0], m[1], value)
			}
			drawn[kind]++
		}
	}
	// Each cell is on one chart over bandwidth and on one over clients.
	if drawn["ratio"] != 2*len(s.Cells) || drawn["cpu"] != levels || levels == 0 {
		t.Errorf("%d marks of ratios for %d cells, %d of CPU for %d levels", drawn["ratio"], len(s.Cells), drawn["cpu"],
			levels)
	}
}

// levelFigures returns the normalised CPU of each level of each sweep, and the number of levels. Keys are the dimension
// along which the sweep goes, and the name of the level's mark.
func levelFigures(s stored) (figures map[result.Dimension]map[string]string, levels int) {
	figures = map[result.Dimension]map[string]string{result.OfferedMbps: {}, result.Clients: {}}
	for _, sweep := range s.Sweeps {
		for _, l := range sweep.Levels {
			figures[sweep.Along][sweep.Cell.With(sweep.Along, float64(l.Level)).String()] = l.CPUNormalised.Mean.String()
			levels++
		}
	}
	return figures, levels
}

// checkKeyboard uses the page without a mouse.
func checkKeyboard(t *testing.T, p *tab) {
	p.typeKeys(t, kb.Tab)
	if class := eval[string](t, p, `document.activeElement.className`); class != "skip" {
		t.Errorf("the first stop of the Tab key is %q, not the skip link", class)
	}
	p.typeKeys(t, kb.Enter)
	if id := eval[string](t, p, `document.activeElement.id`); id != "main" {
		t.Errorf("the skip link leads to %q", id)
	}
	focus := func(field string) {
		if !eval[bool](t, p,
			fmt.Sprintf(`(() => { const b = document.querySelector('#results ~ * [data-field=%q] button'); b.focus();
			return document.activeElement === b; })()`, field)) {
			t.Fatalf("the heading of %s takes no focus", field)
		}
	}
	column := func() []float64 {
		return eval[[]float64](t, p, `(() => {
			const table = document.querySelector("#results ~ * table.sortable");
			const at = [...table.tHead.rows[0].cells].findIndex((th) => th.dataset.field === "metrics.cpu_ns_per_bit.change.mean");
			return [...table.tBodies[0].rows].map((tr) => Number(tr.cells[at].dataset.sort));
		})()`)
	}
	for i, keys := range []string{kb.Enter, " "} {
		focus("metrics.cpu_ns_per_bit.change.mean")
		p.typeKeys(t, keys)
		got := column()
		for j := 1; j < len(got); j++ {
			if i == 0 && got[j] < got[j-1] || i == 1 && got[j] > got[j-1] {
				t.Fatalf("sorted by key %q: %v", keys, got)
			}
		}
		want := []string{"ascending", "descending"}[i]
		if state := eval[string](t, p, `document.querySelector("th[aria-sort]").getAttribute("aria-sort")`); state != want {
			t.Errorf("aria-sort is %q, want %q", state, want)
		}
	}
	checkFocus(t, p)
}

// checkFocus requires that the focus is visible, and that everything that scrolls or folds can have it.
func checkFocus(t *testing.T, p *tab) {
	if width := eval[string](t, p, `getComputedStyle(document.activeElement).outlineStyle`); width == "none" {
		t.Error("the focus does not show")
	}
	if n := eval[int](t, p, `[...document.querySelectorAll(".scroll, pre")].filter((e) => e.tabIndex < 0).length`); n > 0 {
		t.Errorf("%d scrolling regions take no focus", n)
	}
	// A fold opens with the keyboard too.
	if !eval[bool](t, p,
		`(() => { const s = document.querySelector("#results ~ details summary"); s.focus(); return true; })()`) {
		t.Fatal("no fold")
	}
	p.typeKeys(t, kb.Enter)
	if !eval[bool](t, p, `document.activeElement.parentElement.open`) {
		t.Error("a fold does not open with the Enter key")
	}
}

// checkTips requires that pointing at a mark of a chart shows its description.
func checkTips(t *testing.T, p *tab) {
	text := eval[string](t, p, `(() => {
		const mark = document.querySelector("#charts ~ * svg .point");
		const said = mark.querySelector("title").textContent;
		mark.querySelector(".hit").dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
		const tip = document.querySelector(".tip");
		return tip.hidden || tip.textContent !== said ? "" : said;
	})()`)
	if !strings.Contains(text, "of a core") {
		t.Errorf("pointing at a mark shows %q", text)
	}
}

// checkAnswers requires that the link of an answer opens the fold with its finding.
func checkAnswers(t *testing.T, p *tab) {
	if state := eval[string](t, p, `(async () => {
		const link = document.querySelector(".answers a");
		const fold = document.getElementById(link.hash.slice(1)).closest("details");
		const before = fold.open;
		link.click();
		await new Promise((done) => fold.open ? done() : fold.addEventListener("toggle", done));
		return before + " " + fold.open;
	})()`); state != "false true" {
		t.Errorf("the fold of a finding before and after following its link: %s", state)
	}
}

// checkPrinting prints the page: all folds are open on paper, and as before afterwards.
func checkPrinting(t *testing.T, p *tab) {
	open := `document.querySelectorAll("details[open]").length`
	eval[bool](t, p, `addEventListener("beforeprint", () => {
		window.atPrint = [document.querySelectorAll("details:not([open])").length, document.querySelectorAll("th button").length]; }); true`)
	before := eval[int](t, p, open)
	pdf, err := chromedp.Run(
		p.ctx, chromedp.PrintToPDF(chromedp.PDFPaper(chromedp.PaperA4), chromedp.PDFPrintBackground()))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(pdf, []byte("%PDF-")) || len(pdf) < 20_000 {
		t.Errorf("a PDF of %d bytes", len(pdf))
	}
	if at := eval[[]int](t, p, `window.atPrint`); at[0] != 0 || at[1] != 0 {
		t.Errorf("printed with %d closed folds and %d buttons in headings", at[0], at[1])
	}
	if after := eval[int](t, p, open); after != before {
		t.Errorf("%d folds open after printing, %d before", after, before)
	}
	if eval[int](t, p, `document.querySelectorAll("th button").length`) == 0 {
		t.Error("tables do not sort any more after printing")
	}
}

// checkSchemes requires a light background in the light colour scheme and a dark one in the dark scheme.
func checkSchemes(t *testing.T, p *tab) {
	brightness := `(() => { const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/[0-9.]+/g).map(Number);
		return (r + g + b) / 3; })()`
	if light := eval[float64](t, p, brightness); light < 200 {
		t.Errorf("the light page has a brightness of %.0f", light)
	}
	p.setView(t, wideDark)
	if dark := eval[float64](t, p, brightness); dark > 60 {
		t.Errorf("the dark page has a brightness of %.0f", dark)
	}
}

// checkFits requires that nothing sticks out of the page with every fold open. Wide tables scroll on their own, but not
// on paper.
func checkFits(t *testing.T, p *tab) {
	sizes := `[document.documentElement.scrollWidth, document.documentElement.clientWidth]`
	for _, state := range []string{"folded", "unfolded"} {
		if got := eval[[]int](t, p, sizes); got[0] > got[1] {
			t.Errorf("%s: the page is %d pixels wide in a window of %d", state, got[0], got[1])
		}
		p.unfold(t)
	}
	for _, pair := range eval[[]string](t, p, overlaps) {
		t.Errorf("in a chart: %s", pair)
	}
	if !eval[bool](t, p, `matchMedia("print").matches`) {
		return
	}
	eval[bool](t, p, `dispatchEvent(new Event("beforeprint"))`)
	for _, caption := range eval[[]string](t, p, `[...document.querySelectorAll("table")]
		.filter((table) => table.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
		.map((table) => table.caption.textContent)`) {
		t.Errorf("on paper a table is cut off: %s", caption)
	}
}

// overlaps is JavaScript that lists texts of charts that cover another text of the same chart, or a mark of its legend.
const overlaps = `[...document.querySelectorAll("figure svg")].flatMap((svg) => {
	const boxes = [...svg.querySelectorAll("text, .mark")].filter((e) => e.tagName == "text" || !e.closest(".point"))
		.map((e) => ({ b: e.getBoundingClientRect(), text: e.textContent || "a mark" }));
	const title = svg.querySelector("title").textContent;
	return boxes.flatMap((a, i) => boxes.slice(i + 1).filter((c) => (a.text != "a mark" || c.text != "a mark") &&
		a.b.left < c.b.right - 1 && c.b.left < a.b.right - 1 && a.b.top < c.b.bottom - 3 && c.b.top < a.b.bottom - 3)
		.map((c) => title + ": " + a.text + " lies on " + c.text));
}).slice(0, 10)`

// TestPageIsAccessible checks the whole page with axe-core, the accessibility checker that most tools use.
func TestPageIsAccessible(t *testing.T) {
	browser := newBrowser(t)
	spec := bothSweeps() // every kind of section, but fewer rows: the checker reads each cell of each table
	spec.Clients, spec.Offered = []int{10, 100}, []float64{100, 800, 1000}
	dir, _ := write(t, simulate(spec))
	for _, v := range []view{wide, wideDark, phone, phoneDark} {
		t.Run(v.name, func(t *testing.T) {
			p := open(t, browser, filepath.Join(dir, report.HTMLFile), v)
			p.unfold(t)
			checkAccessible(t, p)
		})
	}
}

// checkAccessible runs axe-core on the page.
func checkAccessible(t *testing.T, p *tab) {
	t.Helper()
	browsertest.LoadAxe(t, p.ctx)
	for _, text := range browsertest.Inaccessible(t, p.ctx) {
		t.Error(text)
	}
}
