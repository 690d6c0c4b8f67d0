package result_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/result"
)

// TestFollowerReadsWhatGrew appends to a run's trials, tears a line, cuts the file and replaces it. After each step the
// Follower returns the same as ReadRun, which reads everything. Long: each step has a line.
func TestFollowerReadsWhatGrew(t *testing.T) {
	dir := t.TempDir()
	trials := filepath.Join(dir, result.TrialsFile)
	if err := result.WriteEnvironment(dir, result.Environment{Experiment: "one"}); err != nil {
		t.Fatal(err)
	}
	line := func(window string) string {
		return `{"version":1,"kind":"trial","cell":{"dut":"x"},"block":0,"window":` + window +
			`,"attempt":0,"start":"2026-01-01T00:00:00Z","accepted":true}` + "\n"
	}
	half := line("7")[:40]
	follower := result.Follow(dir)
	for _, step := range []struct {
		name, text string // text is the contents of trials.jsonl
		grew       bool   // there are more whole records than at the step before
		trials     int    // number of trials read
		torn       int    // length of a last line that is cut short
	}{
		{"none yet", "", true, 0, 0},
		{"two", line("0") + line("1"), true, 2, 0},
		{"the same", line("0") + line("1"), false, 2, 0},
		{"torn", line("0") + line("1") + half, false, 2, len(half)},
		{"mended", line("0") + line("1") + line("7"), true, 3, 0},
		{"repeated", line("0") + line("1") + line("7") + line("1"), true, 3, 0},
		{"cut", line("0"), true, 1, 0},
	} {
		// WriteFile keeps the inode, as a run that appends does.
		if err := os.WriteFile(trials, []byte(step.text), 0o644); err != nil {
			t.Fatal(err)
		}
		run, grew, err := follower.Read()
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if grew != step.grew || len(run.Trials) != step.trials || run.Torn != step.torn {
			t.Errorf("%s: grew %v, %d trials, %d torn", step.name, grew, len(run.Trials), run.Torn)
		}
		if whole, err := result.ReadRun(dir); err != nil || len(whole.Trials) != len(run.Trials) ||
			whole.TornLine != run.TornLine || whole.Repeated != run.Repeated {
			t.Errorf("%s: %+v, and read whole %+v, %v", step.name, run, whole, err)
		}
	}
	if err := os.WriteFile(trials, []byte(line("0")+"{}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second call returns the error again
		if _, _, err := follower.Read(); err == nil || !strings.Contains(err.Error(), "trials.jsonl:2: no version") {
			t.Errorf("a damaged line: %v", err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, _, err := follower.Read(); err == nil || !strings.Contains(err.Error(), "is not a run folder") {
		t.Errorf("a folder that is gone: %v", err)
	}
}

// TestFollowerRefusesWhatNeverEnds: a pipe in a stranger's folder would hold up whoever reads it.
func TestFollowerRefusesWhatNeverEnds(t *testing.T) {
	for _, name := range []string{result.TrialsFile, result.EnvironmentFile, result.ExperimentFile} {
		dir := t.TempDir()
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := result.Follow(dir).Read(); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestProgressKeepsItsProcess: progress.json names the process that measures, so that a reader can tell whether this
// process still runs, also after its number was given to another process.
func TestProgressKeepsItsProcess(t *testing.T) {
	dir := t.TempDir()
	p := result.Progress{Process: result.ThisProcess(), Updated: time.Now().UTC().Truncate(time.Second), Doing: "x",
		Done: 0.5, Left: 3, Blocks: 4, Behind: 2, Windows: 8, Accepted: 3}
	if err := result.WriteProgress(dir, p); err != nil {
		t.Fatal(err)
	}
	got, err := result.ReadProgress(dir)
	if p.Version = 1; err != nil || got != p {
		t.Fatalf("%+v, %v; want %+v", got, err, p)
	}
	if alive, known := got.Process.Alive(); !alive || !known {
		t.Errorf("this process: alive %v, known %v", alive, known)
	}
	other := got.Process
	other.Ticks++ // the number was given to another process
	if alive, known := other.Alive(); alive || !known {
		t.Errorf("an earlier process: alive %v, known %v", alive, known)
	}
	other = got.Process
	other.Boot = "another"
	if _, known := other.Alive(); known {
		t.Error("a process of another boot is known")
	}
}
