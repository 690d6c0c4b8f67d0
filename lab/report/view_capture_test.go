// Tests of the page of a run that measured capturing. newBrowser starts Chromium, and open shows a file in a tab with
// the window of a reader (view: phone, wide, paper); eval evaluates JavaScript there (browser_test.go).

package report_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/capture"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
)

// captureRun returns a simulated run that measured capturing on a gateway with a tenth of a CPU. It compares offered
// loads of 1,514-byte frames; with several, buffer sizes and numbers of CPUs at one load instead.
func captureRun(several bool) result.Run {
	s := analysistest.Captures{
		// Share is the part of a CPU that the gateway has. With Sink it forwards frames to a host that counts them.
		Seed: 3, Experiment: "capture-gateway", Blocks: 3, ReceiveUs: 1.2, Share: 0.1, Sink: true,
		Offered:  []float64{1, 6, 20, 100, 200, 500, 1000, 1500},
		Settings: []result.Cell{result.NewCell(result.FrameSize, "1514")},
		// no-capture has no buffers and no CPUs to choose: Less leaves these dimensions out of its cells.
		Sniffers: []analysistest.Sniffer{{Name: "no-capture", Less: []result.Dimension{capture.BufferKiB, capture.CPUs}}, {
			Name: "tcpdump-68", FrameUs: 1}, {Name: "tcpdump-1500", FrameUs: 1.4}},
	}
	if several {
		plain := result.NewCell(result.FrameSize, "study5", capture.CPUs, 1, capture.BufferKiB, 0)
		s.Experiment, s.Offered, s.Sink, s.Settings = "capture-beyond", []float64{100}, false,
			[]result.Cell{plain, plain.With(capture.BufferKiB, 10240), plain.With(capture.CPUs, 2)}
	}
	run := s.Run()
	for _, l := range run.MeasureRecords {
		t := l.Record.(*capture.Trial)
		t.SharedCPU = t.Cell.Int(capture.CPUs) == 2
		if several && t.Cell.Text(result.DUT) == "tcpdump-68" {
			t.Programs[0].Waiting = t.Programs[0].Frames / 50
			t.Programs[0].Frames -= t.Programs[0].Waiting
		}
	}
	return run
}

// TestCapturePageInBrowser opens the pages of both kinds of captureRun in a browser: they show the figures of the run's
// cells, name the setting, fit screens and paper, and are accessible.
func TestCapturePageInBrowser(t *testing.T) {
	browser := newBrowser(t)
	for name, several := range map[string]bool{"rates": false, "parameters": true} {
		views := map[bool][]view{false: {wide, phone, paper}, true: {phone}}[several]
		dir, _ := write(t, captureRun(several))
		file := filepath.Join(dir, report.HTMLFile)
		cells := rawCells(t, dir)
		p := open(t, browser, file, wide)
		fields := []string{"metrics.captured_pct.device.mean", "metrics.busy_pct.device.mean",
			"metrics.ns_per_frame.device.mean", "metrics.dropped_pct.device.mean"}
		t.Run(name, func(t *testing.T) { checkFields(t, p, cells, fields) })
		t.Run(name+" says the setting", func(t *testing.T) {
			p.setView(t, phone)
			shown := eval[string](t, p,
				`document.querySelector(".ranking .load").checkVisibility() ? document.querySelector(".ranking .load").textContent : ""`)
			if want := map[bool]string{
				false: "1514-byte frames", true: "one CPU, buffers as they are"}[several]; !strings.Contains(shown, want) {
				t.Errorf("a phone shows %q above the devices, want %q", shown, want)
			}
		})
		for _, v := range views {
			t.Run(name+" fits "+v.name, func(t *testing.T) {
				p.setView(t, v)
				checkFits(t, p)
			})
		}
		if several {
			continue
		}
		t.Run(name+" accessible", func(t *testing.T) {
			p := open(t, browser, file, phoneDark)
			p.unfold(t)
			checkAccessible(t, p)
		})
	}
}

// TestCaptureTexts: the page, the terminal's table and the CSV file have the texts that their run needs, and no others.
// A share says of what it is a share. A row says with whom the device's programs share a CPU, and what other work its
// host does. A column is left out where it has no values, as "Waiting" without frames that waited.
func TestCaptureTexts(t *testing.T) {
	texts := func(run result.Run) (page, table, csv string) {
		s := measure.Summarise(run, analysis.Options{})
		var p, b, c bytes.Buffer
		if err := errors.Join(report.HTML(&p, run, s), report.Terminal(&b, s, 0), report.CSV(&c, s)); err != nil {
			t.Fatal(err)
		}
		return p.String(), b.String(), c.String()
	}
	rates, _, _ := texts(captureRun(false))
	page, table, csv := texts(captureRun(true))
	busy := captureRun(true)
	for _, l := range busy.MeasureRecords {
		r := l.Record.(*capture.Trial)
		r.Cell, r.Background = r.Cell.With(result.BackgroundPct, 50), 0.03
	}
	for i := range busy.MeasureRecords {
		busy.MeasureRecords[i].Cell = busy.MeasureRecords[i].Record.(*capture.Trial).Cell
	}
	other, otherTable, _ := texts(busy)
	for _, tt := range []struct {
		where, text, want string
		has               bool
	}{
		{"page with rates", rates, "Highest rate at which nothing is lost", true},
		{"page with rates", rates, "of the frames that passed, at", true},
		{"page with rates", rates, "With one core of router CPU", false},
		{"page with rates", rates, "Waiting <small>", false},
		{"page with settings", page, "Waiting <small>", true},
		{"page with settings", page, "one of them the generator&#39;s", true},
		{"page with settings", page, "with its other work", false},
		{"page with settings", page, "Highest rate at which nothing is lost", false},
		{"page with other work", other, "with its other work", true},
		{"terminal with other work", otherTable, "with its other work", true},
		{"terminal with settings", table, "2, shared", true},
		{"terminal with settings", table, "waiting", true},
		{"terminal with settings", table, "with its other work", false},
		{"CSV", csv, "waiting_pct", true},
	} {
		if strings.Contains(tt.text, tt.want) != tt.has {
			t.Errorf("%s: %q: %v, want %v", tt.where, tt.want, !tt.has, tt.has)
		}
	}
}

// TestShares: a share that is nearly 0 % or 100 % is not written as 0 % or 100 %.
func TestShares(t *testing.T) {
	run := captureRun(true)
	for _, l := range run.MeasureRecords {
		if r := l.Record.(*capture.Trial); len(r.Programs) > 0 {
			r.Programs[0].Frames, r.Programs[0].Dropped, r.Programs[0].Waiting = r.Passed-1, 1, 0
		}
	}
	var b strings.Builder
	if err := report.Terminal(&b, measure.Summarise(run, analysis.Options{}), 0); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"> 99.99 %", "< 0.01 %"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q where one frame of many is lost:\n%s", want, b.String())
		}
	}
}

// TestRunsWithoutTrials: a run that was ended before its first trial has a report, whatever it was to measure.
func TestRunsWithoutTrials(t *testing.T) {
	for _, name := range measure.Catalogue().MeasureNames() {
		t.Run(name, func(t *testing.T) {
			dir, _ := write(t, result.Run{Environment: result.Environment{Measure: name}})
			for _, file := range []string{report.HTMLFile, "summary.csv", "summary.json"} {
				if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
