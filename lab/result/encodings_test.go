package result_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/result"
)

// TestFilesThatAnEditorSaved: byte order marks are no part of a run's files, and records in UTF-16 are called that.
func TestFilesThatAnEditorSaved(t *testing.T) {
	dir := makeRun(t, runFiles)
	for _, name := range []string{result.EnvironmentFile, result.TrialsFile} {
		path := filepath.Join(dir, name)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append([]byte("\ufeff"), data...), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if run, err := result.ReadRun(dir); err != nil || len(run.Trials) == 0 {
		t.Errorf("with marks: %d trials, %v", len(run.Trials), err)
	}
	if err := os.WriteFile(filepath.Join(dir, result.TrialsFile), []byte("\xff\xfe{\x00}\x00\n\x00"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := result.ReadRun(dir); err == nil || !strings.Contains(err.Error(), "trials.jsonl:1: it is UTF-16 text") {
		t.Errorf("in UTF-16: %v", err)
	}
}
