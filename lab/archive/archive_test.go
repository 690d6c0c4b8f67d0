package archive_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/archive"
	"github.com/gateweigh/gateweigh/lab/result"
)

// small is a run with few records.
func small(experiment string, hour int) result.Run {
	run := analysistest.Run(analysistest.Spec{Seed: uint64(hour), DUTs: []analysistest.DUT{{Name: "opennds", Ratio: 2}},
		Clients: []int{1}, Offered: []float64{100}, Blocks: 2, Windows: 1, AABlocks: 1})
	run.Environment.Experiment, run.Environment.Measure = experiment, "cost"
	run.Environment.Start = run.Environment.Start.Add(time.Duration(hour) * time.Hour)
	run.Environment.End = run.Environment.Start.Add(time.Minute)
	return run
}

func write(t *testing.T, dir string, run result.Run) {
	t.Helper()
	if err := analysistest.Write(dir, run); err != nil {
		t.Fatal(err)
	}
}

func look(t *testing.T, a *archive.Archive) map[string]archive.Entry {
	t.Helper()
	list, err := a.Look()
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]archive.Entry{}
	for _, e := range list {
		byName[e.Name] = e
	}
	return byName
}

// TestStates: the archive tells the state of each run, and which folders are no runs. Long: each folder takes some
// lines.
func TestStates(t *testing.T) {
	root := t.TempDir()
	at := func(name string) string { return filepath.Join(root, name) }
	ended := small("quick", 1)
	write(t, at("finished"), ended)
	write(t, at("kernels/6.1.0"), ended)
	write(t, at("campaign/blocks/0007"), ended)
	write(t, at("too/deep/to/be/found"), ended)
	stopped := small("quick", 2)
	stopped.Environment.Interrupted = true
	write(t, at("interrupted"), stopped)
	open := stopped
	open.Environment.End = time.Time{}
	for name, process := range map[string]result.Process{
		"going": result.ThisProcess(), "killed": {PID: 1, Ticks: 7, Boot: result.ThisProcess().Boot,
			Space: result.ThisProcess().Space}, "elsewhere": {PID: 1, Boot: "another"},
	} {
		write(t, at(name), open)
		p := result.Progress{Process: process, Updated: time.Now(), Left: 90, Done: 0.25}
		if err := result.WriteProgress(at(name), p); err != nil {
			t.Fatal(err)
		}
	}
	write(t, at("early"), open) // of a version that says nothing of its progress
	long := time.Now().Add(-time.Hour)
	for _, name := range []string{"early/" + result.TrialsFile, "early"} {
		if err := os.Chtimes(at(name), long, long); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"damaged": "{", "newer": `{"version":99}`} {
		write(t, at(name), ended)
		if err := os.WriteFile(at(name+"/"+result.EnvironmentFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"garbage", "copy of garbage"} {
		write(t, at(name), ended)
		if err := os.WriteFile(at(name+"/"+result.TrialsFile), []byte("garbage\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(at("copy of garbage/" + result.EnvironmentFile)); err != nil {
		t.Fatal(err)
	}
	write(t, at("pipe"), ended)
	if err := os.Remove(at("pipe/" + result.EnvironmentFile)); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(at("pipe/"+result.EnvironmentFile), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(at("empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	a, err := archive.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]archive.State{
		"finished": archive.Finished, "kernels/6.1.0": archive.Finished, "campaign/blocks/0007": archive.Finished,
		"interrupted": archive.Interrupted, "going": archive.GoingOn, "elsewhere": archive.GoingOn,
		"killed": archive.BrokenOff, "early": archive.BrokenOff, "damaged": archive.Damaged, "newer": archive.Damaged,
		"pipe": archive.Damaged, "garbage": archive.Damaged, "copy of garbage": archive.Damaged,
	}
	got := look(t, a)
	for name, state := range want {
		if got[name].State != state {
			t.Errorf("%s is %q (%s), want %q", name, got[name].State, got[name].Fault, state)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d runs, want %d", len(got), len(want))
	}
	if left, ok := got["going"].TimeLeft(time.Now().Add(30 * time.Second)); !ok || left < 55*time.Second ||
		left > 61*time.Second {
		t.Errorf("time left %v, %v", left, ok)
	}
	if _, ok := got["killed"].TimeLeft(time.Now()); ok {
		t.Error("a run that was killed has time left")
	}
	if e := look(t, alone(t, at("finished"))); e["finished"].State != archive.Finished || len(e) != 1 {
		t.Errorf("one run's folder: %+v", e)
	}
}

func alone(t *testing.T, dir string) *archive.Archive {
	t.Helper()
	a, err := archive.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestLookSeesChanges: runs begin, end and are deleted while an archive is looked at.
func TestLookSeesChanges(t *testing.T) {
	root := t.TempDir()
	a := alone(t, root)
	if len(look(t, a)) != 0 {
		t.Fatal("runs in an empty folder")
	}
	dir := filepath.Join(root, "one")
	run := small("quick", 1)
	ended := run.Environment.End
	run.Environment.End, run.Environment.Interrupted = time.Time{}, true
	write(t, dir, run)
	if err := result.WriteProgress(dir, result.Progress{Process: result.ThisProcess(), Done: 0.1}); err != nil {
		t.Fatal(err)
	}
	if e := look(t, a)["one"]; e.State != archive.GoingOn || e.Progress.Done != 0.1 {
		t.Errorf("begun: %+v", e)
	}
	if err := result.WriteProgress(dir, result.Progress{Process: result.ThisProcess(), Done: 0.2}); err != nil {
		t.Fatal(err)
	}
	if e := look(t, a)["one"]; e.Progress.Done != 0.2 {
		t.Errorf("progress: %+v", e.Progress)
	}
	run.Environment.End, run.Environment.Interrupted = ended, false
	if err := result.WriteEnvironment(dir, run.Environment); err != nil {
		t.Fatal(err)
	}
	if e := look(t, a)["one"]; e.State != archive.Finished {
		t.Errorf("ended: %s", e.State)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if got := look(t, a); len(got) != 0 {
		t.Errorf("deleted: %+v", got)
	}
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Look(); err == nil {
		t.Error("no error of a folder that is gone")
	}
}

// TestThousandRuns: a second look reads only folders that have changed.
func TestThousandRuns(t *testing.T) {
	root := t.TempDir()
	text := `{"version":1,"experiment":"quick","start":"2026-01-01T00:00:00Z","end":"2026-01-01T01:00:00Z"}`
	old := time.Now().Add(-time.Hour)
	for i := range 1000 {
		dir := filepath.Join(root, fmt.Sprintf("r%04d", i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, result.EnvironmentFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
	}
	a := alone(t, root)
	if n := len(look(t, a)); n != 1000 {
		t.Fatalf("%d runs", n)
	}
	// Written without a change of the folder: whoever reads it again would see another experiment.
	other := filepath.Join(root, "r0500", result.EnvironmentFile)
	if err := os.WriteFile(other, []byte(strings.Replace(text, "quick", "other", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if e := look(t, a)["r0500"]; e.Environment.Experiment != "quick" {
		t.Error("a folder that did not change was read again")
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{file: "is not a folder", file + "-not": "does not exist"} {
		if _, err := archive.Open(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
