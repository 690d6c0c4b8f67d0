package report_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/goldentest"
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/measure/logins"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
)

// The tests of this package report runs that analysistest simulates from a Spec: devices with a true cost ratio to the
// clean router, numbers of clients, loads in Mbit/s, blocks and windows. golden compares an output with a file in
// testdata.

// portalSpec describes the simulated run of most tests. Its devices cost 5, 0.9 and 2.2 times as much as the clean
// router.
func portalSpec() analysistest.Spec {
	return analysistest.Spec{
		Seed: 11,
		DUTs: []analysistest.DUT{
			{Name: "coovachilli", Ratio: 5, Process: 0.64, MaxMbps: 770, PSSMiB: 6},
			{Name: "ebpf", Ratio: 0.9, PSSMiB: 12},
			{Name: "opennds", Ratio: 2.2, Process: 0.03, PSSMiB: 9},
		},
		Clients: []int{20}, Offered: []float64{100, 500, 1000}, Blocks: 6, Windows: 4, AABlocks: 6, BlockSD: 0.03,
		WindowSD:    0.04,
		RejectEvery: 17,
	}
}

// single describes a run with one load and one number of clients, so without sweeps.
func single() analysistest.Spec {
	spec := portalSpec()
	spec.Offered, spec.RejectEvery = []float64{500}, 0
	return spec
}

// loginRun is a simulated run of login storms. At the device opennds every fourth client gives up, and its program ends
// in one storm.
func loginRun() result.Run {
	return analysistest.Storms(7, []analysistest.LoginQueue{
		{Name: "fast", LoginMs: 2, Limit: logins.LimitGenerator}, {Name: "opennds", LoginMs: 100, Leaves: 4, Dies: true},
	}, []int{30, 100}, 4)
}

// simulate simulates a run, with a skipped device and a note in its environment.
func simulate(spec analysistest.Spec) result.Run {
	run := analysistest.Run(spec)
	run.Skipped = []result.Skip{
		{DUT: "pppoe-kernel", Reason: "not supported here: this kernel has no PPPoE (CONFIG_PPPOE)"}}
	run.Environment.Skipped = run.Skipped
	run.Environment.Notes = []string{"net.ipv4.neigh.default.gc_thresh3 was raised for the run and restored."}
	return run
}

// golden compares an output with a file in testdata; the flag -update writes the file.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	goldentest.Compare(t, filepath.Join("testdata", name), got)
}

// TestTerminal: the terminal's output of several runs, at several widths in columns (0: no limit).
func TestTerminal(t *testing.T) {
	troubled := portalSpec()
	troubled.RejectEvery = 1
	both := portalSpec()
	both.Directions, both.Clients, both.RejectEvery = []string{"up", "down"}, []int{1, 100}, 0
	both.Offered = []float64{1000}
	oneBlock := single()
	oneBlock.Blocks = 1
	for _, tt := range []struct {
		name  string
		run   result.Run
		width int
	}{
		{"portals", simulate(portalSpec()), 160},
		{"portals-80", simulate(portalSpec()), 80},
		{"portals-40", simulate(portalSpec()), 40},
		{"both", simulate(both), 0},
		{"one-block", simulate(oneBlock), 120},
		{"rejected", simulate(troubled), 100},
		{"empty", result.Run{}, 100},
		{"storms", loginRun(), 160},
		{"storms-60", loginRun(), 60},
		{"captures", captureRun(false), 120},
		{"capture-parameters", captureRun(true), 100},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			if err := report.Terminal(&b, measure.Summarise(tt.run, analysis.Options{}), tt.width); err != nil {
				t.Fatal(err)
			}
			golden(t, "terminal-"+tt.name+".txt", b.Bytes())
		})
	}
}

// write writes a run and its report into a new folder, and returns the folder and the summary.
func write(t *testing.T, run result.Run) (dir string, s analysis.Summary) {
	t.Helper()
	dir = t.TempDir()
	if err := analysistest.Write(dir, run); err != nil {
		t.Fatal(err)
	}
	s, err := report.Write(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, s
}

func readFile(t *testing.T, dir, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestTerminalIsPlain: control characters in names of a run are not written to the terminal, which would take them as
// commands.
func TestTerminalIsPlain(t *testing.T) {
	const evil = "d\x1b[31m\n\u009b2Jx"
	s := analysis.Summary{
		Experiment: evil, Mode: evil, Measure: cost.Name,
		Cells: []analysis.Cell{
			{Cell: result.NewCell(result.DUT, evil, result.Profile, evil, result.Direction, evil)},
			{Cell: result.NewCell(result.DUT, "other")},
		},
		Rejects:      []analysis.Tally{{Text: evil, Count: 1}},
		Skipped:      []result.Skip{{DUT: evil, Reason: evil}},
		FailedBlocks: []analysis.FailedBlock{{Cell: result.NewCell(result.DUT, evil), Error: evil}},
		Warnings:     []string{evil},
	}
	for _, width := range []int{0, 40} {
		var b strings.Builder
		if err := report.Terminal(&b, s, width); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(b.String(), "\x1b\u009b") || strings.Count(b.String(), "[31m") != 11 {
			t.Errorf("width %d: %q", width, b.String())
		}
	}
}

// TestWrite writes every file of a simulated run's report, and compares the figures with those of the simulation.
func TestWrite(t *testing.T) {
	dir, _ := write(t, simulate(portalSpec()))
	golden(t, "summary.csv", readFile(t, dir, report.CSVFile))
	s := readSummary(t, dir)
	truth := map[string]float64{"coovachilli": 5, "ebpf": 0.9, "opennds": 2.2}
	if len(s.Cells) != 9 || len(s.Skipped) != 1 {
		t.Fatalf("%d cells, skipped %v", len(s.Cells), s.Skipped)
	}
	for _, c := range s.Cells {
		r := c.Metrics.Change(cost.PerBit)
		if low, high := truth[c.dut()]/1.06, truth[c.dut()]*1.06; float64(r.Mean) < low || float64(r.Mean) > high {
			t.Errorf("%s at %g: ratio %+v, true %g", c.dut(), c.Dimensions.Number(result.OfferedMbps), r, truth[c.dut()])
		}
		if c.Pairs != 24 || c.Blocks != 6 {
			t.Errorf("%s: %d pairs in %d blocks", c.dut(), c.Pairs, c.Blocks)
		}
	}
	first := map[string][]byte{}
	for _, name := range []string{report.SummaryFile, report.CSVFile, report.HTMLFile} {
		first[name] = readFile(t, dir, name)
	}
	if _, err := report.Write(dir); err != nil {
		t.Fatal(err)
	}
	for name, data := range first {
		if !bytes.Equal(data, readFile(t, dir, name)) {
			t.Errorf("%s differs the second time", name)
		}
	}
}

// TestSummaryKeys: summary.json has the keys that other programs read.
func TestSummaryKeys(t *testing.T) {
	dir, _ := write(t, simulate(portalSpec()))
	var s map[string]any
	if err := json.Unmarshal(readFile(t, dir, report.SummaryFile), &s); err != nil {
		t.Fatal(err)
	}
	need := func(where string, in any, keys ...string) {
		for _, key := range keys {
			if _, ok := in.(map[string]any)[key]; !ok {
				t.Errorf("%s has no %q", where, key)
			}
		}
	}
	need("summary", s, "version", "experiment", "measure", "metrics", "primary", "mode", "aa", "cells", "skipped",
		"findings", "sweeps", "cost_models", "stability")
	need("aa", s["aa"], "pairs", "ratio", "sd_log")
	cell := s["cells"].([]any)[0].(map[string]any)
	need("cell", cell, "dimensions", "pairs", "rejected", "metrics", "verdict")
	need("dimensions", cell["dimensions"], "dut", "clients", "offered_mbps", "direction", "profile")
	need("verdict", cell["verdict"], "word", "note")
	need("metrics", cell["metrics"], "delivered_mbps", "cpu_ns_per_bit", "cpu_core_pct", "cpu_normalised_pct",
		"ns_per_packet", "pss_mib",
		"rtt_p50_median_us", "rtt_p99_median_us", "loss_ratio", "retransmit_ratio", "segments_per_burst")
	for metric, sides := range map[string][]string{
		"cpu_ns_per_bit": {"device", "clean", "change"}, "cpu_core_pct": {"device", "clean"}} {
		for _, side := range sides {
			need(metric+"."+side, figureOf(cell, "metrics."+metric+"."+side), "mean", "lo", "hi", "n")
		}
	}
	if s["version"] != 2.0 {
		t.Errorf("version %v", s["version"])
	}
}

// TestCSVShape: the CSV has a row for each cell, and each column has a name of its own.
func TestCSVShape(t *testing.T) {
	dir, s := write(t, simulate(portalSpec()))
	rows, err := csv.NewReader(bytes.NewReader(readFile(t, dir, report.CSVFile))).ReadAll()
	if err != nil { // ReadAll also checks that all rows are of one length
		t.Fatal(err)
	}
	if len(rows) != 1+len(s.Cells) {
		t.Errorf("%d rows for %d cells", len(rows), len(s.Cells))
	}
	seen := map[string]bool{}
	for _, name := range rows[0] {
		if name == "" || seen[name] {
			t.Errorf("column %q is empty or there twice", name)
		}
		seen[name] = true
	}
}

var externalReference = regexp.MustCompile(`(?i)(src|href|url|@import)\s*[=(]?\s*["']?(https?:)?//`)

// checkPage requires what is true of every page: nothing is loaded from outside, no figure is NaN, charts are
// well-formed XML with a title, each id is used once, and headings skip no level.
func checkPage(t *testing.T, html string) {
	t.Helper()
	if m := externalReference.FindString(html); m != "" {
		t.Errorf("the page asks for something outside: %s", m)
	}
	html, script, _ := strings.Cut(html, "<script>")
	if strings.Contains(script, "<table") {
		t.Error("the script does not come last")
	}
	for _, bad := range []string{"NaN", "Inf", "%!", "ZgotmplZ", "&lt;svg", "<nil>"} {
		if strings.Contains(html, bad) {
			t.Errorf("the page has %q in it", bad)
		}
	}
	for _, svg := range regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(html, -1) {
		checkSVG(t, svg)
	}
	ids := map[string]bool{}
	for _, m := range regexp.MustCompile(`\bid="([^"]+)"`).FindAllStringSubmatch(html, -1) {
		if ids[m[1]] {
			t.Errorf("id %q is there twice", m[1])
		}
		ids[m[1]] = true
	}
	level := 0
	for _, m := range regexp.MustCompile(`<h([1-6])`).FindAllStringSubmatch(html, -1) {
		next := int(m[1][0] - '0')
		if next > level+1 {
			t.Errorf("heading h%d follows h%d", next, level)
		}
		level = next
	}
	if strings.Count(html, "<table") != strings.Count(html, "<caption") {
		t.Error("a table without a caption")
	}
}

// checkSVG requires that a chart is well-formed XML with a title, a description and a role.
func checkSVG(t *testing.T, svg string) {
	t.Helper()
	if !strings.Contains(svg, `role="img"`) || !strings.Contains(svg, "<title id=") ||
		!strings.Contains(svg, "<desc id=") {
		t.Errorf("a chart without title, description or role: %.200s", svg)
	}
	decoder := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Errorf("chart is not well-formed: %v", err)
			return
		}
	}
}

// TestHTML: the pages of several runs are valid (checkPage) and contain some texts (wants).
func TestHTML(t *testing.T) {
	all := portalSpec()
	all.Clients, all.Directions, all.RejectEvery = []int{1, 10, 100, 1000}, []string{"up", "down"}, 0
	rejected := portalSpec()
	rejected.RejectEvery = 1
	oneBlock := portalSpec()
	oneBlock.Blocks, oneBlock.AABlocks = 1, 1
	solo := single()
	solo.Mode = result.ModeSolo
	turns := portalSpec()
	turns.Mode = result.ModeSolo
	hostile := single()
	hostile.DUTs[0].Name = `<script>alert("x")</script>`
	for _, tt := range []struct {
		name  string
		run   result.Run
		wants []string
	}{
		{"portals", simulate(portalSpec()), []string{
			"to 4.95 times with coovachilli, which delivers only 770\u00a0Mbit/s", "delivers 770 of 1000\u00a0Mbit/s",
			"Router CPU, normalised, over bandwidth, 20 clients", "Noise floor", "CONFIG_PPPOE",
			"gateweigh run simulated", "generator at", "Example CPU", "endpoints on CPU 1",
		}},
		{"both sweeps", simulate(all), []string{"normalised, over clients, 1 Gbit/s",
			"normalised, over bandwidth, 1000 clients", "Overhead ratio over clients, 500 Mbit/s", "more charts", "Download"}},
		{"single", simulate(single()), []string{"Router CPU at 500 Mbit/s, 20 clients", "Overhead ratio at 500 Mbit/s"}},
		{"solo", simulate(solo), []string{"Solo: DUT and clean router are measured one after the other"}},
		{"ceilings", simulate(turns),
			[]string{"What each carries without loss, alone on the machine", "≥ 1000", "shortfall"}},
		{"one block", simulate(oneBlock), []string{"One block only, so no interval", "this run leaves open"}},
		{"only rejected", simulate(rejected), []string{"No trial was accepted", "nothing to draw", "generator at"}},
		{"no trials", simulate(analysistest.Spec{}),
			[]string{"no device could run here", "CONFIG_PPPOE", "No trial was accepted"}},
		{"storms", loginRun(), []string{
			"How they take a storm", "lets in 515", "leaves 25.0\u00a0% out", "300 of 400 clients", "ended by itself",
			"Logged in: 100 clients, all at once",
			"no answer from 10.1.0.1:2050", "RADIUS", "KiB a client",
		}},
		{"no storms", result.Run{Environment: result.Environment{Measure: logins.Name}},
			[]string{"No storm was recorded", "No storm was accepted"}},
		{"hostile names", simulate(hostile), []string{"&lt;script&gt;alert"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, _ := write(t, tt.run)
			page := string(readFile(t, dir, report.HTMLFile))
			checkPage(t, page)
			for _, want := range tt.wants {
				if !strings.Contains(page, want) {
					t.Errorf("the page does not say %q", want)
				}
			}
			if strings.Contains(page, "<script>alert") {
				t.Error("a name became markup")
			}
			if bytes.Contains(readFile(t, dir, report.SummaryFile), []byte("NaN")) {
				t.Error("NaN in summary.json")
			}
		})
	}
}

// TestHTMLGolden compares a whole page with the stored one.
func TestHTMLGolden(t *testing.T) {
	run := simulate(single())
	var b bytes.Buffer
	if err := report.HTML(&b, run, measure.Summarise(run, analysis.Options{})); err != nil {
		t.Fatal(err)
	}
	golden(t, "report.html", b.Bytes())
}

// TestStudy: the page compares a run over several bandwidths with the study. With a second run, over several numbers of
// clients, it compares further tables and findings.
func TestStudy(t *testing.T) {
	load, clients := portalSpec(), portalSpec()
	load.Clients, load.Offered = []int{100}, []float64{100, 200, 400, 800, 1000}
	clients.Clients, clients.Offered = []int{1, 10, 50, 100}, []float64{1000}
	dir := t.TempDir()
	if err := analysistest.Write(dir, simulate(load)); err != nil {
		t.Fatal(err)
	}
	alone, err := report.Write(dir)
	if err != nil {
		t.Fatal(err)
	}
	first := string(readFile(t, dir, report.HTMLFile))
	checkPage(t, first)
	further := measure.Summarise(simulate(clients), analysis.Options{})
	both, err := report.WriteWith(dir, report.Options{With: []analysis.Summary{further}})
	if err != nil {
		t.Fatal(err)
	}
	second := string(readFile(t, dir, report.HTMLFile))
	checkPage(t, second)
	for _, tt := range []struct {
		in          string
		page        string
		has, hasNot []string
	}{
		{"one run", first, []string{`id="table-5.1"`, `id="table-A.1"`, "Figure 5.5", "146.85", "not tested"},
			[]string{`id="table-5.5"`}},
		{"both runs", second, []string{`id="table-5.1"`, `id="table-5.5"`, "Figure 5.6", "154.45", "not measured here"}, nil},
	} {
		for _, want := range tt.has {
			if !strings.Contains(tt.page, want) {
				t.Errorf("%s: the page has no %q", tt.in, want)
			}
		}
		for _, not := range tt.hasNot {
			if strings.Contains(tt.page, not) {
				t.Errorf("%s: the page has %q", tt.in, not)
			}
		}
	}
	if testedFindings(alone) == 0 || testedFindings(both) <= testedFindings(alone) {
		t.Errorf("%d findings tested by one run, %d by both", testedFindings(alone), testedFindings(both))
	}
	if !strings.Contains(string(readFile(t, dir, report.SummaryFile)), `"holds": null`) {
		t.Error("an open finding is not null")
	}
}

// testedFindings counts the findings of the study that hold or fail in a run.
func testedFindings(s analysis.Summary) (n int) {
	for _, f := range s.Findings {
		if f.Holds != nil {
			n++
		}
	}
	return n
}

// TestWriteWithoutRun: a folder without a run is an error.
func TestWriteWithoutRun(t *testing.T) {
	if _, err := report.Write(t.TempDir()); err == nil || !strings.Contains(err.Error(), "not a run folder") {
		t.Errorf("got %v", err)
	}
}
