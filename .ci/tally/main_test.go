package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// goTest runs go test -json on packages made of the given files, and tallies it.
func goTest(t *testing.T, strict bool, files map[string]string) (tally, string) {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module example\n\ngo 1.26\n"
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "test", "-json", "./...")
	cmd.Dir = dir
	out, err := cmd.Output()
	if len(out) == 0 {
		t.Fatalf("go test printed nothing: %v", err)
	}
	var printed strings.Builder
	ta := tally{strict: strict, w: &printed}
	if err := ta.read(strings.NewReader(string(out))); err != nil {
		t.Fatal(err)
	}
	return ta, printed.String()
}

const mixed = `package a
import "testing"
func TestGood(t *testing.T) { t.Run("sub", func(t *testing.T) {}) }
func TestSkipped(t *testing.T) { t.Skip("no such tool") }
func TestKernel(t *testing.T) { t.Skip("the kernel lacks netem") }
`

const unpackaged = `package a
import "testing"
func TestGood(t *testing.T) {}
func TestOne(t *testing.T) { t.Attr("not-run", "chilli is not on PATH") }
func TestTwo(t *testing.T) { t.Attr("not-run", "chilli is not on PATH") }
func TestBroken(t *testing.T) { t.Attr("not-run", "no shell"); t.Error("it broke") }
`

// TestNotRun: what did nothing has not passed, and what failed has failed.
func TestNotRun(t *testing.T) {
	got, printed := goTest(t, true, map[string]string{"a/a_test.go": unpackaged})
	if got.summary() != "1 passed, 1 failed, 0 skipped" || got.absent() != "not run here, 2: chilli is not on PATH\n" {
		t.Errorf("%s%s\n%s", got.absent(), got.summary(), printed)
	}
}

func TestCounts(t *testing.T) {
	tests := []struct {
		name   string
		strict bool
		files  map[string]string
		want   string
		ok     bool
		prints string
	}{
		{"skips", false, map[string]string{"a/a_test.go": mixed}, "2 passed, 0 failed, 2 skipped", true, "no such tool"},
		{"strict", true, map[string]string{"a/a_test.go": mixed}, "2 passed, 1 failed, 1 skipped", false, "counts as failed here: example/a TestSkipped"},
		{"failure", false, map[string]string{
			"a/a_test.go": mixed,
			"b/b_test.go": "package b\nimport \"testing\"\nfunc TestBad(t *testing.T) { t.Error(\"it broke\") }\n",
		}, "2 passed, 1 failed, 2 skipped", false, "it broke"},
		{"does not build", false, map[string]string{"a/a_test.go": "package a\nvar x int = \"\"\n"}, "0 passed, 1 failed, 0 skipped", false, "cannot use"},
		{"process dies", false, map[string]string{"a/a_test.go": "package a\nimport (\"os\"; \"testing\")\nfunc TestExit(t *testing.T) { println(\"last words\"); os.Exit(3) }\n"},
			"0 passed, 1 failed, 0 skipped", false, "last words"},
		{"no tests", false, map[string]string{"a/a.go": "package a\n"}, "0 passed, 0 failed, 0 skipped", false, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, printed := goTest(t, tt.strict, tt.files)
			if got.summary() != tt.want || got.ok() != tt.ok {
				t.Errorf("%s, ok %v; want %s, ok %v\n%s", got.summary(), got.ok(), tt.want, tt.ok, printed)
			}
			if !strings.Contains(printed, tt.prints) {
				t.Errorf("no %q in:\n%s", tt.prints, printed)
			}
		})
	}
}
