// Tests of runs whose devices capture packets.

package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/capture"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. measured accepts the exit codes 0 and exitRejected: on a busy machine some trials are rejected.
// start runs a command in the background, and said returns its standard error so far. records counts the records of a
// kind in the folder r. resumed resumes the run in the folder r to its end and reads it.

// captureSmall is an experiment of capture: two devices, of which one does not capture, get two windows each.
const captureSmall = `measure = "capture"
topology = "tap"
duts = ["no-capture", "sink-mmap"]
offered_mbps = [10]
frame_sizes = [200]
frames = 100
windows = 2
blocks = 1
redo = 0
snap_lengths = [60]
`

// TestKilledCaptureRun: a run whose lab process is killed leaves nothing behind, and the run that completes it
// measures each window once.
func TestKilledCaptureRun(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "small.toml", captureSmall)
	b := start(t, dir, command(t, dir, "run", "small.toml", "--out", "r"))
	b.recorded(t, dir, capture.KindCapture)
	kill(t, b.cmd.Process.Pid)
	run := resumed(t, dir)
	seen := map[string]int{}
	for _, l := range run.MeasureRecords {
		seen[l.Cell.String()+" "+string(rune('0'+l.Window))]++
	}
	for window, n := range seen {
		if n != 1 {
			t.Errorf("%s is recorded %d times", window, n)
		}
	}
	if len(seen) != 2*2 {
		t.Errorf("%d windows, want two of two devices: %v", len(seen), seen)
	}
	e := finish(t, command(t, dir, "report", "r"))
	for _, want := range []string{`captured`, `\bsnap\b`, `no-capture`, `(?m)^sink-mmap +60 `} {
		if !regexp.MustCompile(want).MatchString(e.stdout) {
			t.Errorf("the report lacks %q:\n%s%s", want, e.stdout, e.stderr)
		}
	}
}

// TestCaptureDevicesAreDevices: an experiment that does not measure capture can have capture programs as devices. They
// cost CPU time, which the clean router does not show.
func TestCaptureDevicesAreDevices(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "small.toml", `duts = ["sink-mmap", "sink-xdp"]
clients = [2]
offered_mbps = [10]
blocks = 1
aa_blocks = 0
windows = 1
window = "300ms"
warmup = "200ms"
redo = 0
`)
	e := finish(t, command(t, dir, "run", "small.toml", "--out", "r"))
	measured(t, e)
	run, err := measure.ReadRun(filepath.Join(dir, "r"))
	if err != nil || len(run.Trials) != 1 || len(run.Skipped) != 1 ||
		!strings.Contains(run.Skipped[0].Reason, "takes frames away") {
		t.Fatalf("%d trials, %v, skipped %v", len(run.Trials), err, run.Skipped)
	}
	if m := cost.SidesOf(run.Trials[0]); m.DUT.ProcessNs == 0 || m.DUT.ThreadNs["sink-mmap"] != m.DUT.ProcessNs ||
		m.Clean.ProcessNs > 0 {
		t.Errorf("the program had %d ns (%v), those of the clean router %d", m.DUT.ProcessNs, m.DUT.ThreadNs,
			m.Clean.ProcessNs)
	}
}
