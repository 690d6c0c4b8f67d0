package result_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gateweigh/gateweigh/lab/result"
)

// These tests write records and cut the file short, as a crash may. figures, sideFigures and blockFigures stand for the
// figures that a measure adds to records of trials and blocks.

// figures are the figures of a trial.
type figures struct {
	DUT   sideFigures `json:"dut"`
	Clean sideFigures `json:"clean"`
}

// sideFigures are the figures of one window of a trial.
type sideFigures struct {
	Seconds  float64          `json:"seconds"`
	ThreadNs map[string]int64 `json:"thread_ns"`
}

// blockFigures are the figures of a block.
type blockFigures struct {
	LoginMs []float64 `json:"login_ms"`
}

// kinds tells readers the types of the figures of trials and blocks.
var kinds = []result.Kind{
	{Name: result.KindTrial, New: func() any { return new(figures) }},
	{Name: result.KindBlock, New: func() any { return new(blockFigures) }},
}

// trial returns an accepted trial with this number of its window.
func trial(window int) result.Trial {
	return result.Trial{
		Cell: result.NewCell(result.DUT, "opennds", result.Clients, 20, result.OfferedMbps, 500, result.Direction, "up",
			result.Profile, "per-packet"),
		Block: 1, Window: window, DUTLab: "b", Start: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC), Accepted: true,
		Figures: &figures{
			DUT: sideFigures{Seconds: 2, ThreadNs: map[string]int64{"napi/lan": 123}}, Clean: sideFigures{Seconds: 2}},
	}
}

// open opens the records of a run folder for writing. It requires OpenWriter to report a torn last line of wantTorn
// bytes.
func open(t *testing.T, dir string, wantTorn int) *result.Writer {
	t.Helper()
	w, torn, err := result.OpenWriter(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	if torn != wantTorn {
		t.Errorf("torn bytes: got %d, want %d", torn, wantTorn)
	}
	return w
}

// TestWriteAndRead: trials and blocks are read as they were written. A closed writer refuses records.
func TestWriteAndRead(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, 0)
	block := result.Block{DUT: "opennds", Clients: 20, Seconds: 9, Figures: &blockFigures{LoginMs: []float64{1, 2}}}
	for i := range 3 {
		if err := w.AppendTrial(trial(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.AppendBlock(block); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := result.ReadTrials(filepath.Join(dir, result.TrialsFile), kinds...)
	if err != nil {
		t.Fatal(err)
	}
	var want result.Records
	for i := range 3 {
		r := trial(i)
		r.Version, r.Kind = result.Version, result.KindTrial
		want.Trials = append(want.Trials, r)
	}
	block.Version, block.Kind = result.Version, result.KindBlock
	want.Blocks = []result.Block{block}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	if err := w.AppendTrial(trial(9)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("append after Close: %v", err)
	}
}

// TestNaNIsRefusedAndLeavesNothing: a figure that JSON cannot express is an error, and leaves no part of its record.
func TestNaNIsRefusedAndLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, 0)
	bad := trial(0)
	bad.Figures.(*figures).DUT.Seconds = math.NaN()
	if err := w.AppendTrial(bad); err == nil {
		t.Error("NaN was written")
	}
	if err := w.AppendTrial(trial(1)); err != nil {
		t.Fatal(err)
	}
	got, err := result.ReadTrials(filepath.Join(dir, result.TrialsFile), kinds...)
	if err != nil || len(got.Trials) != 1 || got.Trials[0].Window != 1 {
		t.Errorf("got %d trials, %v", len(got.Trials), err)
	}
}

// TestSecondWriterIsRefused: a run folder has one writer at a time.
func TestSecondWriterIsRefused(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir, 0)
	if _, _, err := result.OpenWriter(dir); err == nil {
		t.Error("two writers on one run")
	}
	first.Close()
	open(t, dir, 0)
}

// TestTornLine cuts a file at every byte of its last record, as a crash may.
func TestTornLine(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, 0)
	for i := range 2 {
		if err := w.AppendTrial(trial(i)); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	whole, err := os.ReadFile(filepath.Join(dir, result.TrialsFile))
	if err != nil {
		t.Fatal(err)
	}
	first := strings.IndexByte(string(whole), '\n') + 1
	for cut := first; cut < len(whole); cut++ {
		checkTorn(t, whole, first, cut)
	}
}

// checkTorn writes the first cut bytes of a file with two records. Only the first record, which ends at byte first,
// must be read; a writer must move the rest to TornFile and append after the first record.
func checkTorn(t *testing.T, whole []byte, first, cut int) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, result.TrialsFile)
	if err := os.WriteFile(path, whole[:cut], 0o644); err != nil {
		t.Fatal(err)
	}
	seen, err := result.ReadTrials(path, kinds...)
	if err != nil || len(seen.Trials) != 1 || seen.Torn != cut-first {
		t.Fatalf("cut at %d: %d trials, %d torn, %v", cut, len(seen.Trials), seen.Torn, err)
	}
	w := open(t, dir, cut-first)
	if err := w.AppendTrial(trial(7)); err != nil {
		t.Fatal(err)
	}
	w.Close()
	seen, err = result.ReadTrials(path, kinds...)
	if err != nil || len(seen.Trials) != 2 || seen.Trials[1].Window != 7 || seen.Torn != 0 {
		t.Fatalf("cut at %d, after recovery: %d trials, %v", cut, len(seen.Trials), err)
	}
	aside, err := os.ReadFile(filepath.Join(dir, result.TornFile))
	switch {
	case cut == first && !errors.Is(err, os.ErrNotExist):
		t.Errorf("nothing was torn, yet %s exists", result.TornFile)
	case cut > first && string(aside) != string(whole[first:cut])+"\n":
		t.Errorf("cut at %d: kept aside %q, %v", cut, aside, err)
	}
}

// TestTornLineLongerThanOneRead: the torn last line is longer than the 64 KiB that the writer reads at a time. In the
// first case it is the whole file.
func TestTornLineLongerThanOneRead(t *testing.T) {
	for _, head := range []string{"", `{"version":1,"kind":"block","dut":"x"}` + "\n"} {
		dir := t.TempDir()
		tail := `{"version":1,"kind":"trial","x":"` + strings.Repeat("y", 200_001)
		if err := os.WriteFile(filepath.Join(dir, result.TrialsFile), []byte(head+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		open(t, dir, len(tail)).Close()
		left, err := os.ReadFile(filepath.Join(dir, result.TrialsFile))
		if err != nil || string(left) != head {
			t.Errorf("left %d bytes, want %d (%v)", len(left), len(head), err)
		}
		aside, err := os.ReadFile(filepath.Join(dir, result.TornFile))
		if err != nil || string(aside) != tail+"\n" {
			t.Errorf("kept aside %d bytes, want %d (%v)", len(aside), len(tail)+1, err)
		}
	}
}
