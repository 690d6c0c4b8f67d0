// Tests of the marks of runs with an emulated CPU. simulate makes a run from a description such as portalSpec or
// single, without measuring; write writes it and its report into a folder (report_test.go).

package report_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/studies"
)

// runInVM returns the records of a simulated run in a virtual machine, large enough for a page with charts, sweeps and
// findings. accelerator is result.KVM, where the virtual machine uses a real CPU, or result.TCG, where QEMU emulates
// one.
func runInVM(accelerator string) result.Run {
	run := simulate(analysistest.Spec{
		Seed: 5, DUTs: []analysistest.DUT{{Name: "opennds", Ratio: 2.2}, {Name: "gateway-ebpf", Ratio: 0.8}},
		Clients: []int{100}, Offered: []float64{5, 10, 50},
		Blocks: 6, Windows: 3, AABlocks: 4, BlockSD: 0.02, WindowSD: 0.03,
	})
	run.Environment.VM = &result.VM{
		Kernel: "debian", Release: "6.1.0-56-amd64", Accelerator: accelerator, CPU: "QEMU", MemoryMiB: 1500}
	return run
}

// captions matches the captions of charts and tables in a page.
var captions = regexp.MustCompile(`(?s)<(figcaption|caption)[^>]*>(.*?)</(figcaption|caption)>`)

// TestEmulatedCPUIsMarked: figures of an emulated CPU are no costs of a real one. So everything that shows figures and
// may be copied alone carries the mark "relative, emulated CPU": the terminal's heading, every chart and table of the
// page, each row of the CSV and summary.json.
func TestEmulatedCPUIsMarked(t *testing.T) {
	run := runInVM(result.TCG)
	run.Environment.LoadsDividedBy = 20
	s := measure.Summarise(run, analysis.Options{})
	for _, study := range studies.Beside(s) {
		s.Findings = append(s.Findings, study.Findings...)
	}
	var table, page, rows, summary bytes.Buffer
	if err := errors.Join(report.Terminal(&table, s, 0), report.HTML(&page, run, s), report.CSV(&rows, s), report.JSON(
		&summary, s)); err != nil {
		t.Fatal(err)
	}
	if head, _, _ := strings.Cut(table.String(), "\n"); !strings.Contains(head, result.EmulatedMark) ||
		!strings.Contains(head, "6.1.0-56-amd64") || !strings.Contains(head, "÷ 20") {
		t.Errorf("the terminal's heading is %q", head)
	}
	found := captions.FindAllStringSubmatch(page.String(), -1)
	for _, c := range found {
		if !strings.Contains(strings.ToLower(c[2]), strings.ToLower(result.EmulatedMark)) &&
			!strings.HasPrefix(c[2], "Reasons") && !strings.HasPrefix(c[2], "Rejected") &&
			!strings.HasPrefix(c[2], "The study's questions") { // its note has the mark instead
			t.Errorf("caption without the mark: %q", c[2])
		}
	}
	if len(found) < 10 {
		t.Errorf("%d tables and charts on the page, want 10 or more", len(found))
	}
	if n := strings.Count(rows.String(), result.EmulatedMark); n != len(s.Cells) {
		t.Errorf("%d of %d rows of the CSV are marked", n, len(s.Cells))
	}
	var stored struct{ Mark string }
	if err := json.Unmarshal(summary.Bytes(), &stored); err != nil || stored.Mark != result.EmulatedMark {
		t.Errorf("summary.json: %v, mark %q", err, stored.Mark)
	}
}

// TestVMOnARealCPU: the report of a run in a virtual machine with KVM names its kernel and has no mark, because the CPU
// is real.
func TestVMOnARealCPU(t *testing.T) {
	run := runInVM(result.KVM)
	s := measure.Summarise(run, analysis.Options{})
	var table, page bytes.Buffer
	if err := errors.Join(report.Terminal(&table, s, 0), report.HTML(&page, run, s)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"terminal": table.String(), "page": page.String()} {
		if !strings.Contains(text, "(KVM), Linux 6.1.0-56-amd64") || strings.Contains(text, "mulated CPU") {
			t.Errorf("%s: kernel %t, mark %t", name, strings.Contains(text, "(KVM), Linux"),
				strings.Contains(text, "mulated CPU"))
		}
	}
}
