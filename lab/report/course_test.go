// Tests of the file of courses, readings in the midst of trials. simulate makes a run from a description such as
// portalSpec or single, without measuring; write writes it and its report into a folder (report_test.go).

package report_test

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
)

// A course has the figures of a window in short steps, for the device's side and for the clean router's.

// addCourses gives each trial of a written run a course of 4 steps of 100 ms, and writes the report again. The device's
// CPU is 10 % of a core higher in each further block. In the device's last step no probe came back.
func addCourses(t *testing.T, dir string, run result.Run) {
	t.Helper()
	w, _, err := result.OpenWriter(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, tr := range run.Trials {
		c := result.CourseOf(tr)
		c.StepMs = 100
		mbps, pct := []float64{100, 90, 110, 100}, 20+10*float64(tr.Block)
		c.Device = result.SideCourse{
			LinkMbps: mbps, CorePct: []float64{pct, pct, pct, pct}, RTTUs: []float64{400, 900, 600, 0}}
		c.Clean = result.SideCourse{LinkMbps: mbps, CorePct: []float64{15, 15, 15, 15}, RTTUs: []float64{300, 310, 290, 300}}
		if !tr.Accepted || tr.AA {
			c.Device.CorePct = []float64{9000, 9000, 9000, 9000}
		}
		if err := w.AppendCourse(c); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := report.Write(dir); err != nil {
		t.Fatal(err)
	}
}

// TestCourseCSV: the CSV of courses has the median and quartiles over the blocks, for each step of each side and cell.
// Rejected trials and A/A trials do not count.
func TestCourseCSV(t *testing.T) {
	run := simulate(portalSpec())
	dir, s := write(t, run)
	if _, err := os.Stat(filepath.Join(dir, report.CourseCSVFile)); err == nil {
		t.Error("a run without courses has their CSV")
	}
	addCourses(t, dir, run)
	rows, err := csv.NewReader(strings.NewReader(string(readFile(t, dir, report.CourseCSVFile)))).ReadAll()
	if err != nil || len(rows) != 1+8*len(s.Cells) {
		t.Fatalf("%d rows for %d cells of 4 steps and 2 sides: %v", len(rows), len(s.Cells), err)
	}
	got := map[string]string{}
	for i, name := range rows[0] {
		got[name] = rows[4][i] // the device's last step
	}
	last := 0.0 // block
	for _, tr := range run.Trials {
		if tr.Cell == s.Cells[0].Cell && !tr.AA {
			last = max(last, float64(tr.Block))
		}
	}
	for name, want := range map[string]float64{"ms": 300, "link_mbps": 100, "cpu_core_pct": 20 + 5*last,
		"cpu_core_pct_lo": 20 + 2.5*last, "cpu_core_pct_hi": 20 + 7.5*last, "cpu_core_pct_blocks": last + 1} {
		if !sameFigure(got[name], want) {
			t.Errorf("%s is %q, want %g: %v", name, got[name], want, got)
		}
	}
	if got["side"] != "device" || got["rtt_us"] != "" || got["rtt_us_blocks"] != "0" {
		t.Errorf("a step in which no probe came back: %v", got)
	}
}

// checkCourses requires that the page draws three charts for each device, each with an area for the device and one for
// the clean router.
func checkCourses(t *testing.T, p *tab, devices int) {
	t.Helper()
	got := eval[[]int](t, p, `(() => {
		const part = document.querySelector("section[aria-labelledby='course']");
		const areas = [...part.querySelectorAll("svg .area")];
		const seen = areas.filter((a) => a.getBoundingClientRect().width > 100);
		return [part.querySelectorAll("h3").length, part.querySelectorAll("svg").length, areas.length, seen.length];
	})()`)
	if len(got) != 4 || got[0] != devices || got[1] != 3*devices || got[2] != 6*devices || got[3] != got[2] {
		t.Errorf("devices, charts, areas, areas in sight: %v, want %d devices", got, devices)
	}
}
