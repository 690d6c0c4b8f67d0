package result_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gateweigh/gateweigh/lab/result"
)

// These tests pack run folders into bundles (archives with all files that a report needs) and unpack them.

// runFiles are the files of a run folder, by path: all that a bundle can contain, and some that it leaves out.
var runFiles = map[string]string{
	result.EnvironmentFile:       `{"version":1,"experiment":"x"}`,
	result.ExperimentFile:        "name = \"x\"\n",
	result.TrialsFile:            goodTrial + goodBlock + `{"version":1,"ki`,
	result.TornFile:              "{\"vers\n",
	"profiles/b/dut.pb.gz":       "\x1f\x8b",
	"profiles/a/clean.folded":    "napi;skb 12\n",
	"profiles/a/perf.data.3":     "PERFILE2",
	"logs/a-router/agent.stderr": "hello\n",
	"summary.json":               "{}",
	"notes.txt":                  "mine\n",
}

// makeRun writes files into a new run folder and returns its path.
func makeRun(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "r")
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// bundle packs a run folder, with its logs or without, and returns the bundle's path.
func bundle(t *testing.T, dir string, logs bool) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "b.tar.gz")
	if _, err := result.WriteBundle(t.Context(), dir, name, logs); err != nil {
		t.Fatal(err)
	}
	return name
}

// contents returns the contents of all files below dir, by path.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		got[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestBundleHoldsTheRunAndNothingElse: an unpacked bundle reads like the run, and has no reports, notes or raw
// profiles.
func TestBundleHoldsTheRunAndNothingElse(t *testing.T) {
	dir := makeRun(t, runFiles)
	foreign := []string{"summary.json", "notes.txt", "profiles/a/perf.data.3"}
	for _, logs := range []bool{false, true} {
		want := map[string]string{}
		for name, content := range runFiles {
			if !slices.Contains(foreign, name) && (logs || !strings.HasPrefix(name, "logs/")) {
				want[name] = content
			}
		}
		out := filepath.Join(t.TempDir(), "new", "r")
		if err := result.UnpackBundle(t.Context(), bundle(t, dir, logs), out); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, contents(t, out)); diff != "" {
			t.Errorf("logs %v: (-want +got)\n%s", logs, diff)
		}
		here, err := result.ReadRun(dir)
		there, err2 := result.ReadRun(out)
		here.Dir, there.Dir = "", ""
		if diff := cmp.Diff(here, there); diff != "" || err != nil || err2 != nil {
			t.Errorf("%v, %v, read differently:\n%s", err, err2, diff)
		}
	}
}

// TestBundleIsReproducible: the bundle of a copy with other times and modes in another folder has the same bytes.
func TestBundleIsReproducible(t *testing.T) {
	one, other := makeRun(t, runFiles), makeRun(t, runFiles)
	if err := os.Chmod(filepath.Join(other, result.TrialsFile), 0o444); err != nil {
		t.Fatal(err)
	}
	a, b := read(t, bundle(t, one, true)), read(t, bundle(t, other, true))
	if !bytes.Equal(a, b) {
		t.Error("two bundles of the same run differ")
	}
	again := filepath.Join(t.TempDir(), "r")
	if err := result.UnpackBundle(t.Context(), bundle(t, one, true), again); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, read(t, bundle(t, again, true))) {
		t.Error("the bundle of an unpacked bundle differs")
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestBundleIsRefused: WriteBundle refuses what is not a run, and never overwrites a file that is not a bundle.
func TestBundleIsRefused(t *testing.T) {
	dir := makeRun(t, runFiles)
	taken := filepath.Join(t.TempDir(), "taken")
	if err := os.WriteFile(taken, []byte("a letter"), 0o644); err != nil {
		t.Fatal(err)
	}
	linked := makeRun(t, runFiles)
	if err := os.Symlink("/etc/hostname", filepath.Join(linked, "profiles/a/dut.folded")); err != nil {
		t.Fatal(err)
	}
	newer := makeRun(t, map[string]string{result.TrialsFile: `{"version":2,"kind":"trial"}` + "\n"})
	for name, c := range map[string]struct{ dir, out, want string }{
		"no run":        {t.TempDir(), "", "not a run folder"},
		"newer record":  {newer, "", "use a newer gateweigh"},
		"foreign file":  {dir, taken, "is not a bundle: choose another name"},
		"a folder":      {dir, t.TempDir(), "is not a file"},
		"a device":      {dir, os.DevNull, "is not a file"},
		"symbolic link": {linked, "", "profiles/a/dut.folded is not a plain file"},
	} {
		if c.out == "" {
			c.out = filepath.Join(t.TempDir(), "b.tar.gz")
		}
		if _, err := result.WriteBundle(t.Context(), c.dir, c.out, false); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if string(read(t, taken)) != "a letter" {
		t.Error("a foreign file was overwritten")
	}
	name := bundle(t, dir, false)
	if _, err := result.WriteBundle(t.Context(), dir, name, true); err != nil {
		t.Errorf("replacing an earlier bundle: %v", err)
	}
}

// TestUnpackLeavesForeignFoldersAlone: a bundle is unpacked into an empty folder or over the same run, and not over
// another run or file.
func TestUnpackLeavesForeignFoldersAlone(t *testing.T) {
	dir := makeRun(t, runFiles)
	name := bundle(t, dir, false)
	if err := result.UnpackBundle(t.Context(), name, dir); err != nil {
		t.Errorf("over the run itself: %v", err)
	}
	empty := t.TempDir()
	if err := result.UnpackBundle(t.Context(), name, empty); err != nil || len(contents(t, empty)) != 6 {
		t.Errorf("into an empty folder: %v, %d files", err, len(contents(t, empty)))
	}
	foreign := makeRun(t, map[string]string{result.TrialsFile: goodBlock})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("a letter"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, taken := range []string{foreign, file} {
		if err := result.UnpackBundle(t.Context(), name, taken); err == nil ||
			!strings.Contains(err.Error(), "choose another folder with -o") {
			t.Errorf("over %s: %v", taken, err)
		}
	}
	if diff := cmp.Diff(map[string]string{result.TrialsFile: goodBlock}, contents(t, foreign)); diff != "" ||
		string(read(t, file)) != "a letter" {
		t.Errorf("a foreign folder was changed:\n%s", diff)
	}
	for _, parent := range []string{filepath.Dir(foreign), filepath.Dir(file)} {
		if entries, err := os.ReadDir(parent); err != nil || len(entries) != 1 {
			t.Errorf("left behind: %v, %v", entries, err)
		}
	}
}

// TestOpen: Open reads a run folder in its place, and a bundle by unpacking it into a temporary folder, which forget
// removes.
func TestOpen(t *testing.T) {
	dir := makeRun(t, runFiles)
	run, forget, err := result.Open(t.Context(), bundle(t, dir, false))
	if err != nil || len(run.Trials) != 1 || run.Torn != 16 {
		t.Errorf("%d trials, %d torn, %v", len(run.Trials), run.Torn, err)
	}
	if len(read(t, filepath.Join(run.Dir, "profiles/a/clean.folded"))) == 0 {
		t.Error("no profiles in the unpacked run")
	}
	forget()
	if _, err := os.Stat(run.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there: %v", run.Dir, err)
	}
	run, forget, err = result.Open(t.Context(), dir)
	forget()
	if err != nil || run.Dir != dir || len(contents(t, dir)) != len(runFiles) {
		t.Errorf("a folder: %v, %v", run.Dir, err)
	}
	if _, _, err := result.Open(t.Context(), "/no/such/run"); err == nil ||
		!strings.Contains(err.Error(), "is not a run folder, nor a bundle") {
		t.Errorf("nothing there: %v", err)
	}
}

// TestOpenSweeps: opening a bundle removes the temporary folders of processes that were killed, and no others.
func TestOpenSweeps(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	_, forget, err := result.Open(t.Context(), bundle(t, makeRun(t, runFiles), false))
	must(err)
	old := time.Now().Add(-time.Hour)
	left := filepath.Join(tmp, "gateweigh-bundle-1")
	must(os.MkdirAll(filepath.Join(left, "run"), 0o700))
	must(os.MkdirAll(filepath.Join(tmp, ".gateweigh-new-2"), 0o700)) // its process may be about to lock it
	must(os.Mkdir(filepath.Join(tmp, "other"), 0o700))
	names := func() (names []string) {
		all, err := os.ReadDir(tmp)
		must(err)
		for _, e := range all {
			names = append(names, e.Name())
			if e.Name() != ".gateweigh-new-2" {
				must(os.Chtimes(filepath.Join(tmp, e.Name()), old, old))
			}
		}
		return names
	}
	before := names()
	_, again, err := result.Open(t.Context(), bundle(t, makeRun(t, runFiles), false))
	must(err)
	again()
	if after := names(); len(after) != len(before)-1 || slices.Contains(after, "gateweigh-bundle-1") {
		t.Errorf("of %q are left %q", before, after)
	}
	forget()
	if after := names(); !slices.Equal(after, []string{".gateweigh-new-2", "other"}) {
		t.Errorf("in the end are left %q", after)
	}
}

// TestInterruptedBundles: when the context has ended, packing, opening and unpacking return its cause as their error
// and leave no file behind.
func TestInterruptedBundles(t *testing.T) {
	dir := makeRun(t, runFiles)
	name, out := bundle(t, dir, false), t.TempDir()
	t.Setenv("TMPDIR", out)
	cause := errors.New("somebody pressed Ctrl-C")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	_, packed := result.WriteBundle(ctx, dir, filepath.Join(out, "b.tar.gz"), false)
	_, forget, opened := result.Open(ctx, name)
	forget()
	for what, err := range map[string]error{
		"pack": packed, "open": opened, "unpack": result.UnpackBundle(ctx, name, filepath.Join(out, "r")),
	} {
		if !errors.Is(err, cause) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if entries, err := os.ReadDir(out); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// entry is one file of a forged archive: kind is its tar type flag, link the target of a symbolic or hard link.
type entry struct {
	name, content string
	kind          byte
	link          string
}
