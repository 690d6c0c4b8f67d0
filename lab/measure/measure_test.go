package measure_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/compare"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
)

// The tests of this file use a measure that only the table knows: "idle" of idle_test.go. Its records (type idleTrial)
// have the kind "lull". They show that a run of it is planned, measured, resumed, read, reported and compared.

// tableWithIdle returns the table of measures with "idle" in addition.
func tableWithIdle() measure.Table { return append(measure.All(), idle{}) }

// TestMain lets the test binary serve as the agent of its labs' hosts.
func TestMain(m *testing.M) {
	agent.RunAs(os.Args)
	os.Exit(m.Run())
}

// idleFile is an experiment of three blocks: two of the device "daemon" and one A/A block. Each has two cells of two
// windows.
const idleFile = `measure = "idle"
duts = ["daemon"]
clients = [2]
idle_ms = [100, 300]
blocks = 2
aa_blocks = 1
windows = 2

[dut.daemon]
daemon = ["sh", "-c", "while :; do sleep 0.05; done"]
ready = "true"
`

// load parses a valid experiment, which errors call "idle.toml".
func load(t *testing.T, text string) *experiment.Experiment {
	t.Helper()
	e, err := tableWithIdle().Catalogue().Parse("idle.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestMeasureOfItsOwnIsPlanned: keys, checks and plan of a measure that is only in the table.
func TestMeasureOfItsOwnIsPlanned(t *testing.T) {
	e := load(t, idleFile)
	var got []string
	for _, b := range e.Plan() {
		text := b.DUTLab
		for _, c := range b.Cells {
			text += "; " + c.String()
		}
		got = append(got, text)
	}
	want := []string{
		"a; dut=daemon clients=2 idle_ms=100; dut=daemon clients=2 idle_ms=300",
		"a; dut=clean clients=2 idle_ms=100; dut=clean clients=2 idle_ms=300",
		"b; dut=daemon clients=2 idle_ms=300; dut=daemon clients=2 idle_ms=100",
	}
	if !slices.Equal(got, want) {
		t.Errorf("planned:\n%s", strings.Join(got, "\n"))
	}
	if text := string(e.Encode()); !strings.Contains(text, "idle_ms = [100.0, 300.0]") ||
		strings.Contains(text, "offered_mbps") || strings.Contains(text, "window =") {
		t.Errorf("resolved:\n%s", text)
	}
	for _, tt := range []struct{ text, want string }{
		{"[traffic]\nkind = \"streams\"\n", `traffic.kind: has no meaning with measure = "idle": no client sends`},
		{"[client]\nhost = 2\n", `did you mean "client.hosts"?`},
	} {
		_, err := tableWithIdle().Catalogue().Parse("idle.toml", []byte(idleFile+tt.text))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.text, err, tt.want)
		}
	}
	for text, want := range map[string]string{
		strings.Replace(idleFile, `"idle"`, `"idel"`,
			1): ` or "transition" or "failover" or "roaming" or "idle", not "idel"; did you mean "idle"?`,
		strings.Replace(
			idleFile, "[100, 300]", "[1]", 1): `idle.toml:4: idle_ms: each value must be milliseconds from 100 to 10000`,
		strings.Replace(idleFile, "measure = \"idle\"\n", "", 1): `idle.toml:3: idle_ms: needs measure = "idle"`,
	} {
		if _, err := tableWithIdle().Catalogue().Parse("idle.toml", []byte(text)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestMeasureOfItsOwnRunsAndResumes: in real labs, a run that is interrupted within a block goes on where it ended, and
// every window is recorded once.
func TestMeasureOfItsOwnRunsAndResumes(t *testing.T) {
	e, dir := load(t, idleFile), filepath.Join(t.TempDir(), "run")
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	windows := 0
	config := runner.Config{
		Measure: tableWithIdle().Of(e).Run(), Records: tableWithIdle().Of(e).Records(), Experiment: e, Dir: dir,
		Status: func(p runner.Progress) {
			if strings.HasSuffix(p.Text, " ms") {
				if windows++; windows == 6 {
					interrupt()
				}
			}
		}}
	if _, err := runner.Run(ctx, config); !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted: %v", err)
	}
	out, err := runner.Run(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	if out.Planned != 12 || out.Accepted != 12 || out.Open != 0 || len(out.Failed) > 0 {
		t.Errorf("%+v, want 12 windows", out)
	}
	bundle := filepath.Join(t.TempDir(), "idle.tar.gz")
	if _, err := result.WriteBundle(t.Context(), dir, bundle, false); err != nil {
		t.Fatal(err)
	}
	run, forget, err := tableWithIdle().Open(t.Context(), bundle)
	defer forget()
	if err != nil {
		t.Fatal(err)
	}
	lulls := result.RecordsOf[idleTrial](run.MeasureRecords)
	if run.Environment.Measure != "idle" || len(lulls) != 12 || len(run.Trials) != 0 || run.MeasuredFor() <= 0 {
		t.Fatalf("measure %q, %d records", run.Environment.Measure, len(lulls))
	}
	checkWindowsOnce(t, lulls)
	if n := countIdleBlocks(run.Blocks); n != 3 {
		t.Errorf("%d of %d blocks are recorded with their figures, want 3", n, len(run.Blocks))
	}
	checkReportAndCompare(t, run, summarised(t, run))
	cutShort(t, dir)
	if _, _, err := measure.Open(t.Context(), bundle); err == nil ||
		!strings.Contains(err.Error(), "unknown kind \"lull\"") {
		t.Errorf("opened without its measure: %v", err)
	}
}

// countIdleBlocks counts the blocks that were read with the figures of the measure "idle".
func countIdleBlocks(blocks []result.Block) (n int) {
	for _, b := range blocks {
		if figures, is := b.Figures.(*idleFigures); is && figures.Stretches == "none" {
			n++
		}
	}
	return n
}

// summarised summarises a run and requires figures of both cells.
func summarised(t *testing.T, run result.Run) analysis.Summary {
	t.Helper()
	summary := tableWithIdle().Summarise(run, analysis.Options{})
	if len(summary.Cells) != 2 {
		t.Fatalf("%d cells are summarised, want 2", len(summary.Cells))
	}
	for i, ms := range []float64{100, 300} {
		c := summary.Cells[i]
		if cpu := c.Device("process_core_pct"); c.Number(idleMs) != ms || c.Blocks != 2 || cpu.Mean <= 0 || cpu.N != 2 {
			t.Errorf("cell %s of %d blocks: %+v", c.Cell, c.Blocks, cpu)
		}
	}
	return summary
}

// checkWindowsOnce requires that each of the twelve windows is recorded once, seven of them after the interruption, and
// that the device used CPU.
func checkWindowsOnce(t *testing.T, lulls []*idleTrial) {
	t.Helper()
	seen, resumed, spent := map[string]bool{}, 0, int64(0)
	for _, r := range lulls {
		seen[r.Cell.String()+r.DUTLab+string(rune('0'+r.Window))] = true
		resumed += r.Sitting
		if r.AA != (r.Cell.Text(result.DUT) == experiment.Clean) || r.Device.Seconds < r.Cell.Number(idleMs)/1e3 ||
			r.Clean.ProcessNs < 0 {
			t.Errorf("record %+v", r)
		}
		if !r.AA {
			spent += r.Device.ProcessNs
		}
	}
	if spent <= 0 { // a short window may pass without the daemon
		t.Error("the daemon cost nothing in all windows")
	}
	if len(seen) != 12 || resumed != 7 {
		t.Errorf("%d windows, %d of them after the interruption, want 12 and 7", len(seen), resumed)
	}
}

// cutShort removes the last records of a complete run, two windows and a block, as a full disk may. The summary must
// warn of the missing windows.
func cutShort(t *testing.T, dir string) {
	t.Helper()
	warned := func() string {
		run, err := tableWithIdle().ReadRun(dir)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(tableWithIdle().Summarise(run, analysis.Options{}).Warnings, " ")
	}
	if text := warned(); strings.Contains(text, "planned windows") {
		t.Errorf("a whole run: %s", text)
	}
	path := filepath.Join(dir, result.TrialsFile)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	// The last four elements are two windows, a block, and the empty text after the last line.
	if err := os.WriteFile(path, bytes.Join(lines[:len(lines)-4], nil), 0o644); err != nil {
		t.Fatal(err)
	}
	if text := warned(); !strings.Contains(text, "2 planned windows have no record") {
		t.Errorf("two windows are gone: %s", text)
	}
}

// checkReportAndCompare requires that reports of a run show the measure, and that the run can be compared with itself.
func checkReportAndCompare(t *testing.T, run result.Run, summary analysis.Summary) {
	t.Helper()
	var terminal, page bytes.Buffer
	if err := errors.Join(report.Terminal(&terminal, summary, 0), report.HTML(&page, run, summary)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"terminal": terminal.String(), "page": page.String()} {
		if !strings.Contains(text, "process_core_pct") || !strings.Contains(text, "daemon") {
			t.Errorf("%s does not show the measure:\n%s", name, text)
		}
	}
	opts := compare.Defaults()
	opts.Measures, opts.MaxOverhead = tableWithIdle(), 0.2
	input := compare.Input{Name: "a", Run: run}
	c := compare.Runs(input, input, opts)
	warnings := strings.Join(c.Warnings, " ")
	if len(c.Cells) != 2 || c.Metric.Name != "process_core_pct" ||
		!strings.Contains(warnings, "one run compared with itself") ||
		!strings.Contains(warnings, "own figures are compared") {
		t.Errorf("compared with itself: %d cells by %s, warnings %q", len(c.Cells), c.Metric.Name, c.Warnings)
	}
	// The largest allowed overhead (MaxOverhead) is a ratio to the clean router. The metric is a difference, so it cannot
	// be judged by it.
	for _, cell := range c.Cells {
		if d := cell.Overhead; d.Word != compare.CannotTell || !strings.Contains(d.Note, "needs a ratio") {
			t.Errorf("judged against a clean router: %+v", d)
		}
	}
}

// TestUnknownMeasureIsAnError: a run of an unknown measure is an error that lists the known ones. It is not summarised
// as another measure.
func TestUnknownMeasureIsAnError(t *testing.T) {
	dir := t.TempDir()
	if err := result.WriteEnvironment(dir, result.Environment{Measure: "idle"}); err != nil {
		t.Fatal(err)
	}
	_, opened, err := measure.Open(t.Context(), dir)
	opened()
	_, read := measure.ReadRun(dir)
	for _, err := range []error{err, read} {
		if err == nil || !strings.Contains(err.Error(), `measured "idle"`) ||
			!strings.Contains(err.Error(), "known: cost, logins") {
			t.Errorf("%v", err)
		}
	}
	if _, err := tableWithIdle().ReadRun(dir); err != nil {
		t.Errorf("with the measure in the table: %v", err)
	}
}

// TestSizesAreInTheExperimentsOrder: a run that is read knows the order of its frame sizes.
func TestSizesAreInTheExperimentsOrder(t *testing.T) {
	dir, text := t.TempDir(),
		"measure = \"throughput\"\nduts = [\"clean\"]\nclients = [1]\nframe_sizes = [1514, \"imix\", 60]\n"
	if err := errors.Join(os.WriteFile(filepath.Join(dir, result.ExperimentFile), []byte(text), 0o600),
		result.WriteEnvironment(dir, result.Environment{})); err != nil {
		t.Fatal(err)
	}
	run, err := measure.ReadRun(dir)
	if want := []string{"1514", "imix", "60"}; err != nil || !slices.Equal(run.FrameSizes, want) {
		t.Errorf("%q (%v), want %q", run.FrameSizes, err, want)
	}
}
