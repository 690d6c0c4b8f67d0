package experiment_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/measure"
)

// TestFilesOfOneName: files of the same name are kept apart, in a run's folder too, and a key that is set anew names
// other files than before.
func TestFilesOfOneName(t *testing.T) {
	dir := t.TempDir()
	for name, sizes := range map[string]string{
		"x.csv": "60,1", "other/x.csv": "1514,1", "other/more/x.csv": "590,1", "new/x.csv": "100,1"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("bytes,weight\n"+sizes+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "e.toml")
	parse := func(names string) (*experiment.Experiment, error) {
		return measure.Catalogue().Parse(file, []byte(
			"duts = [\"allowlist\"]\nclients = [2]\noffered_mbps = [20]\ntraffic = { kind = \"frames\" }\nframe_sizes = ["+names+
				"]\n"))
	}
	longest := func(e *experiment.Experiment, name string) int {
		t.Helper()
		sizes, err := e.SizesOf(name)
		if err != nil {
			t.Fatal(err)
		}
		return sizes.Longest()
	}
	want := map[string]int{"other-x.csv": 1514, "x.csv": 60, "other-more-x.csv": 590}
	for _, order := range []string{
		`"other/x.csv", "x.csv", "other/more/x.csv"`, `"x.csv", "other/more/x.csv", "other/x.csv"`} {
		e, err := parse(order)
		if err != nil {
			t.Fatalf("%s: %v", order, err)
		}
		files, err := e.Files()
		if err != nil || len(files) != 3 || len(e.FrameSizes) != 3 {
			t.Errorf("%s: %d files of %v, %v", order, len(files), e.FrameSizes, err)
		}
		run := filepath.Join(dir, "run")
		for name, data := range files {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(run, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(run, name), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		again, err := measure.Catalogue().Parse(filepath.Join(run, "experiment.toml"), e.Encode())
		if err != nil {
			t.Fatal(err)
		}
		for name, bytes := range want {
			if longest(e, name) != bytes || longest(again, name) != bytes {
				t.Errorf("%s: %s has frames of %d bytes, and of %d in the run's folder, want %d", order, name, longest(e, name),
					longest(again, name), bytes)
			}
		}
		if !slices.Equal(e.FrameSizes, again.FrameSizes) {
			t.Errorf("%v became %v", e.FrameSizes, again.FrameSizes)
		}
	}
	e, err := parse(`"other/x.csv"`)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		set   string
		bytes int
	}{{"x.csv", 60}, {"new/x.csv", 100}, {"x.csv", 60}, {"other/x.csv", 1514}} {
		if err := e.Set("frame_sizes", tt.set); err != nil {
			t.Fatal(err)
		}
		if err := e.Set("clients", "3"); err != nil {
			t.Fatal(err)
		}
		if err := e.Check(); err != nil || longest(e, "x.csv") != tt.bytes {
			t.Errorf("set to %s: frames of %d bytes, %v, want %d", tt.set, longest(e, "x.csv"), err, tt.bytes)
		}
	}
	if _, err := parse(`"x.csv", "./x.csv"`); err == nil || !strings.Contains(err.Error(), "same file") {
		t.Errorf("a file twice: %v", err)
	}
}
