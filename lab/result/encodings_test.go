package result_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/result"
)

// TestFilesThatAnEditorSaved: a byte order mark at the beginning of a run's files is skipped. The error about records
// in UTF-16 says that they are UTF-16. makeRun writes runFiles, the files of a run, into a new folder.
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
