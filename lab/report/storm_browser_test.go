// Tests of a page of login storms in a browser. newBrowser starts Chromium, and open shows a file in a tab with the
// window of a reader (view: phone, wide, paper); eval evaluates JavaScript there (browser_test.go).

package report_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/gateweigh/gateweigh/lab/report"
)

// TestStormPageInBrowser opens the page of a run of login storms in a browser: tables and curves have the figures of
// summary.json, and it fits screens and paper. See browser_test.go for view, tab, open and eval.
func TestStormPageInBrowser(t *testing.T) {
	browser := newBrowser(t)
	dir, _ := write(t, loginRun())
	file := filepath.Join(dir, report.HTMLFile)
	cells := rawCells(t, dir)
	t.Run("tables", func(t *testing.T) {
		checkFields(t, open(t, browser, file, wide), cells, []string{"metrics.login_per_second.device.mean",
			"metrics.login_p99_ms.device.mean", "metrics.login_router_ms.device.mean",
			"metrics.lease_per_second.device.mean", "metrics.pss_kib_per_client.device.mean", "counts.login_asked"})
	})
	t.Run("curves", func(t *testing.T) { checkCurves(t, open(t, browser, file, wide), cells) })
	for _, v := range []view{wide, phone, paper} {
		t.Run("fits "+v.name, func(t *testing.T) { checkFits(t, open(t, browser, file, v)) })
	}
	for _, v := range []view{wide, phoneDark} {
		t.Run("accessible "+v.name, func(t *testing.T) {
			p := open(t, browser, file, v)
			p.unfold(t)
			checkAccessible(t, p)
		})
	}
}

// checkCurves requires a mark for 50 %, 90 % and the last point of each curve of logins and leases over time, at the
// summary's time.
func checkCurves(t *testing.T, p *tab, cells []map[string]any) {
	t.Helper()
	marks := eval[[]string](t, p, `[...document.querySelectorAll("svg g.point")].map((g) => g.dataset.value)`)
	want := 0
	for _, c := range cells {
		for _, phase := range []string{"login_through", "lease_through"} {
			curve := figureOf(c, "curves."+phase).([]any)
			for i, point := range curve {
				at := point.(map[string]any)
				if share := at["share_pct"].(float64); i != len(curve)-1 && share != 50 && share != 90 {
					continue
				}
				want++
				if !slices.ContainsFunc(marks, func(m string) bool { return sameFigure(m, at["ms"]) }) {
					t.Errorf("%s of %v: no mark at %v ms", phase, c["dimensions"], at["ms"])
				}
			}
		}
	}
	if len(marks) != want {
		t.Errorf("%d marks, want %d", len(marks), want)
	}
}
