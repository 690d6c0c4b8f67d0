// Tests of pictures of a report's page. newBrowser starts Chromium, and open shows a file in a tab with the window of a
// reader (view: phone, wide, paper); eval evaluates JavaScript there (browser_test.go).

package report_test

import (
	"flag"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"

	"github.com/gateweigh/gateweigh/internal/browsertest"
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/measure/logins"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
)

var (
	desktop = view{name: "desk", width: 1440, height: 900}

	pictureOf = flag.String(
		"picture-of", "", "run folder with the report that TestPicture takes a picture of; default: a simulated run")
	pictureIn = flag.String("picture-in", "", "PNG file that TestPicture writes; default: none")
)

// The picture is the ranking of devices on the page's first screen: a row for each device, with a mark at its figure.

// sevenGateways is a run of seven devices: one costs less than the clean router, one the same, one cannot be told apart
// from it, one costs more, and three are at their limit.
func sevenGateways() result.Run {
	run := simulate(analysistest.Spec{
		Seed: 3, DUTs: []analysistest.DUT{
			{Name: "coovachilli", Ratio: 9.4, MaxMbps: 553, PSSMiB: 6}, {Name: "gateway-ebpf", Ratio: 0.79, PSSMiB: 27},
			{Name: "gateway-nfqueue", Ratio: 8.6, MaxMbps: 676, PSSMiB: 27},
			{Name: "gateway-nfqueue-fast", Ratio: 1.17, PSSMiB: 27},
			{Name: "gateway-tun", Ratio: 8.2, MaxMbps: 702, PSSMiB: 27}, {Name: "gateway-tun-fast", Ratio: 1.03, PSSMiB: 27},
			{Name: "opennds", Ratio: 2.84, PSSMiB: 6},
		},
		Clients: []int{100}, Offered: []float64{400, 1000}, Blocks: 6, Windows: 3, AABlocks: 6, BlockSD: 0.02, WindowSD: 0.02,
	})
	run.Environment.Title = "portal-bandwidth with duts=opennds,coovachilli,gateway-ebpf, window=1s, warmup=1s, " +
		"blocks=3 (without that: Study 1: CPU against bandwidth, 100 clients, 100 to 1000 Mbit/s)"
	return run
}

// box is the place of an element in the window and its font size, pixels.
type box struct{ Left, Right, Top, Bottom, Font float64 }

// drawnRow is a device as the picture shows it.
type drawnRow struct {
	Device, Note, Cell, Value, Lo, Hi string
	Mark                              float64 // the middle of the mark
	Reach                             *box
	Texts                             []box // name, value and note
}

// drawnRows reads the picture of a page.
func drawnRows(t *testing.T, p *tab) []drawnRow {
	t.Helper()
	return eval[[]drawnRow](t, p, `(() => {
		const box = (e) => { const b = e.getBoundingClientRect();
			return { left: b.left, right: b.right, top: b.top, bottom: b.bottom, font: parseFloat(getComputedStyle(e).fontSize) }; };
		const middle = (e) => { const b = box(e); return (b.left + b.right) / 2; };
		return [...document.querySelectorAll(".ranking .row")].map((row) => {
			const mark = row.querySelector(".mark"), reach = row.querySelector(".reach"), data = mark ? mark.dataset : {};
			return { device: row.querySelector(".device").textContent, note: row.querySelector(".note").innerText, cell: data.cell ?? "", value: data.value ?? "", lo: data.lo ?? "", hi: data.hi ?? "",
				mark: mark ? middle(mark) : -1, reach: reach && box(reach), texts: [...row.querySelectorAll(".device, .value, .value small, .note")].map(box) };
		});
	})()`)
}

// TestFirstScreen: the whole picture is visible without scrolling, on a desktop and on a phone. Its texts are large
// enough, and its marks are at the figures of summary.json.
func TestFirstScreen(t *testing.T) {
	browser := newBrowser(t)
	dir, _ := write(t, sevenGateways())
	s := readSummary(t, dir)
	for _, v := range []view{desktop, phone} {
		t.Run(v.name, func(t *testing.T) {
			p := open(t, browser, filepath.Join(dir, report.HTMLFile), v)
			rows := drawnRows(t, p)
			checkRanked(t, rows, s)
			checkRoom(t, p, rows, v)
		})
	}
}

// checkRanked compares the rows with the summary: each device once, the cheapest first, at its heaviest load.
func checkRanked(t *testing.T, rows []drawnRow, s stored) {
	t.Helper()
	want := map[string]storedCell{}
	for _, c := range s.Cells {
		if c.Dimensions.Number(result.OfferedMbps) == 1000 {
			want[c.Dimensions.String()] = c
		}
	}
	if len(rows) != len(want) {
		t.Fatalf("%d rows for %d devices", len(rows), len(want))
	}
	for i, row := range rows {
		c, known := want[row.Cell]
		if e := c.Metrics.Change(cost.PerBit); !known || row.Device != c.dut() || row.Value != e.Mean.String() ||
			row.Lo != e.Lo.String() || row.Hi != e.Hi.String() {
			t.Errorf("%s is at %s [%s, %s], summary.json has %+v", row.Cell, row.Value, row.Lo, row.Hi, e)
		}
		if i > 0 && row.Mark < rows[i-1].Mark {
			t.Errorf("%s is below %s, and its mark is left of the other's", row.Device, rows[i-1].Device)
		}
		if row.Reach == nil || row.Reach.Left > row.Mark || row.Reach.Right < row.Mark {
			t.Errorf("%s: the mark at %g is not within its interval %+v", row.Device, row.Mark, row.Reach)
		}
		delivered := c.Metrics.Device(cost.Delivered).Mean
		limited := delivered < 980
		if limited != strings.Contains(row.Note, "delivers ") ||
			(c.Verdict.Word == analysis.Inconclusive) != strings.Contains(row.Note, "left open") {
			t.Errorf("%s, %s, delivers %g: the note is %q", row.Device, c.Verdict.Word, float64(delivered), row.Note)
		}
	}
}

// checkRoom requires that the picture is on the first screen, and that its texts are inside of it and do not overlap.
func checkRoom(t *testing.T, p *tab, rows []drawnRow, v view) {
	t.Helper()
	if share := eval[string](t, p, `(() => { const e = document.querySelector(".trials"), b = e.getBoundingClientRect();
		return b.top >= 0 && b.bottom <= innerHeight ? e.textContent : ""; })()`); !strings.Contains(share, "rejected") {
		t.Errorf("the first screen does not say how many trials were rejected: %q", share)
	}
	picture := eval[box](t, p, `(() => { const b = document.querySelector(".ranking ol").getBoundingClientRect();
		return { left: b.left, right: b.right, top: b.top, bottom: b.bottom }; })()`)
	if picture.Bottom > float64(v.height) || picture.Left < 0 || picture.Right > float64(v.width) {
		t.Errorf("the picture is at %+v in a window of %d x %d", picture, v.width, v.height)
	}
	for _, row := range rows {
		for i, a := range row.Texts {
			if a.Font < 12 {
				t.Errorf("%s: type of %g pixels", row.Device, a.Font)
			}
			if a.Left < picture.Left-1 || a.Right > picture.Right+1 {
				t.Errorf("%s: a text at %+v sticks out of %+v", row.Device, a, picture)
			}
			// The third text, the interval, is inside of the second.
			if next := i + 1; i != 1 && next < len(row.Texts) && boxesOverlap(a, row.Texts[next]) {
				t.Errorf("%s: texts lie on one another: %+v %+v", row.Device, a, row.Texts[next])
			}
		}
	}
}

// boxesOverlap reports whether two boxes overlap by more than a pixel.
func boxesOverlap(a, b box) bool {
	return a.Left < b.Right-1 && b.Left < a.Right-1 && a.Top < b.Bottom-1 && b.Top < a.Bottom-1
}

// TestFirstScreenOfLogins: devices are ranked by the clients that they let in a second.
func TestFirstScreenOfLogins(t *testing.T) {
	dir, s := write(t, loginRun())
	rows := drawnRows(t, open(t, newBrowser(t), filepath.Join(dir, report.HTMLFile), phone))
	for i, dut := range []string{"fast", "opennds"} {
		index := slices.IndexFunc(
			s.Cells, func(c analysis.Cell) bool { return c.DUT() == dut && c.Int(result.Clients) == 100 })
		if want := s.Cells[index].Device(logins.Login + logins.PerSecond).Mean.String(); len(rows) != 2 ||
			rows[i].Device != dut || rows[i].Value != want {
			t.Errorf("%s lets in %s a second: %+v", dut, want, rows)
		}
	}
	if !strings.Contains(rows[1].Note, "leaves 25.0\u00a0% out") || rows[0].Mark < rows[1].Mark {
		t.Errorf("%+v", rows)
	}
}

// TestPicture takes a screenshot of the sentence and the picture of a report, as the README shows them:
//
//	go test ./lab/report -run TestPicture -picture-of RUN -picture-in "$PWD/docs/report.png"
func TestPicture(t *testing.T) {
	dir := *pictureOf
	if dir == "" {
		dir, _ = write(t, sevenGateways())
	}
	const width, scale = 1000, 2
	p := open(t, newBrowser(t), filepath.Join(dir, report.HTMLFile), view{width: width, height: 900})
	at := eval[box](t, p,
		`({ top: document.querySelector("#costs").getBoundingClientRect().top, bottom: document.querySelector(".ranking").getBoundingClientRect().bottom })`)
	shot := browsertest.Call(t, p.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{
		Format: "png", CaptureBeyondViewport: new(true),
		Clip: &page.Viewport{Y: at.Top - 12, Width: width, Height: at.Bottom - at.Top + 24, Scale: scale},
	})
	file := *pictureIn
	if file == "" {
		file = filepath.Join(t.TempDir(), "report.png")
	}
	if err := os.WriteFile(file, shot.Data, 0o644); err != nil {
		t.Fatal(err)
	}
	checkPhoto(t, file, width*scale)
}

// checkPhoto requires that a screenshot has its width and shows marks: more than a few colours.
func checkPhoto(t *testing.T, file string, width int) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	colours := map[string]bool{}
	for y := range img.Bounds().Dy() {
		for x := range img.Bounds().Dx() {
			r, g, b, _ := img.At(x, y).RGBA()
			colours[fmt.Sprint(r>>8, g>>8, b>>8)] = true
		}
	}
	if img.Bounds().Dx() != width || len(colours) < 100 {
		t.Errorf("%d pixels wide and %d colours", img.Bounds().Dx(), len(colours))
	}
}
