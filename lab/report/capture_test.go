package report_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
)

// captured is a run of captures on a slow gateway; several has parameters.
func captured(several bool) result.Run {
	s := analysistest.Captures{
		Seed: 3, Experiment: "capture-gateway", Blocks: 3, ReceiveUs: 1.2, Share: 0.1, Sink: true, Offered: []float64{1, 6, 20, 100, 200, 500, 1000, 1500},
		Settings: []result.Cell{result.NewCell(result.FrameSize, "1514")},
		Sniffers: []analysistest.Sniffer{{Name: "no-capture", Less: []result.Dimension{result.BufferKiB, result.CPUs}}, {Name: "tcpdump-68", FrameUs: 1}, {Name: "tcpdump-1500", FrameUs: 1.4}},
	}
	if several {
		plain := result.NewCell(result.FrameSize, "study5", result.CPUs, 1, result.BufferKiB, 0)
		s.Experiment, s.Offered, s.Sink, s.Settings = "capture-beyond", []float64{100}, false, []result.Cell{plain, plain.With(result.BufferKiB, 10240), plain.With(result.CPUs, 2)}
	}
	return s.Run()
}

// TestCapturePageInBrowser opens the page of runs that measured capturing as its readers do.
func TestCapturePageInBrowser(t *testing.T) {
	browser := newBrowser(t)
	axe, err := os.ReadFile(filepath.Join("testdata", "axe", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	for name, several := range map[string]bool{"rates": false, "parameters": true} {
		views := map[bool][]view{false: {wide, phone, paper}, true: {phone}}[several]
		dir, _ := write(t, captured(several))
		file := filepath.Join(dir, report.HTMLFile)
		cells := rawCells(t, dir)
		p := open(t, browser, file, wide)
		fields := []string{"metrics.captured_pct.device.mean", "metrics.busy_pct.device.mean", "metrics.ns_per_frame.device.mean", "metrics.dropped_pct.device.mean"}
		t.Run(name, func(t *testing.T) { checkFields(t, p, cells, fields) })
		for _, v := range views {
			t.Run(name+" fits "+v.name, func(t *testing.T) {
				p.look(t, v)
				checkFits(t, p)
			})
		}
		if several {
			continue
		}
		t.Run(name+" accessible", func(t *testing.T) {
			p := open(t, browser, file, phoneDark)
			p.unfold(t)
			checkAccessible(t, p, string(axe))
		})
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
