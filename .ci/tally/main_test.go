package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// TestSkipsAreCountedByReason, in lines before the closing one, which has the form that others read.
func TestSkipsAreCountedByReason(t *testing.T) {
	got, _ := goTest(t, false, map[string]string{"a/a_test.go": mixed + `
func TestAgain(t *testing.T) { t.Log("a word before"); t.Skip("no such tool") }
func TestMute(t *testing.T) { t.SkipNow() }
`})
	if want := "skipped, 1: no reason given\nskipped, 2: no such tool\nskipped, 1: the kernel lacks netem\n"; got.absent() != want {
		t.Errorf("%q, want %q", got.absent(), want)
	}
	if got.summary() != "2 passed, 0 failed, 4 skipped" {
		t.Errorf("the closing line is %q", got.summary())
	}
}

// TestNotRun: what did nothing has not passed, and what failed has failed.
func TestNotRun(t *testing.T) {
	got, printed := goTest(t, true, map[string]string{"a/a_test.go": unpackaged})
	if got.summary() != "1 passed, 1 failed, 0 skipped" || got.absent() != "not run here, 2: chilli is not on PATH\n" {
		t.Errorf("%s%s\n%s", got.absent(), got.summary(), printed)
	}
}

// events are lines as go test -json prints them: tests of so many seconds, in this order, each
// with a subtest that takes as long.
func events(seconds ...float64) string {
	var lines strings.Builder
	for i, s := range seconds {
		for _, test := range []string{fmt.Sprintf("Test%d/sub", i+1), fmt.Sprintf("Test%d", i+1)} {
			fmt.Fprintf(&lines, "{\"Action\":\"pass\",\"Package\":\"example/a\",\"Test\":%q,\"Elapsed\":%g}\n", test, s)
		}
	}
	return lines.String()
}

// TestSlowest: the ten slowest tests are named, the slowest first, whole tests only.
func TestSlowest(t *testing.T) {
	for _, tt := range []struct {
		name    string
		seconds []float64
		want    []string // the test's name and seconds, one a line
	}{
		{"none", nil, nil},
		{"few", []float64{0.04, 90.26}, []string{"Test2  example/a  90.3 s", "Test1  example/a  0.0 s"}},
		{"many", []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, []string{
			"Test12  example/a  12.0 s", "Test11  example/a  11.0 s", "Test10  example/a  10.0 s", "Test9  example/a  9.0 s",
			"Test8  example/a  8.0 s",
			"Test7  example/a  7.0 s", "Test6  example/a  6.0 s", "Test5  example/a  5.0 s", "Test4  example/a  4.0 s",
			"Test3  example/a  3.0 s",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ta := tally{w: io.Discard}
			if err := ta.read(strings.NewReader(events(tt.seconds...))); err != nil {
				t.Fatal(err)
			}
			var want strings.Builder
			for _, line := range tt.want {
				fmt.Fprintf(&want, "slow  %s\n", line)
			}
			if got := ta.slowest(); got != want.String() {
				t.Errorf("got:\n%swant:\n%s", got, want.String())
			}
		})
	}
}

// TestBroken: failures are named again behind everything else, whatever kind they are of, and of very many the first
// ones.
func TestBroken(t *testing.T) {
	got, _ := goTest(t, true, map[string]string{
		"a/a_test.go": mixed,
		"b/b_test.go": "package b\nimport \"testing\"\nfunc TestBad(t *testing.T) { t.Error(\"it broke\") }\n",
		"c/c_test.go": "package c\nvar x int = \"\"\n",
	})
	lines := strings.Split(strings.TrimSpace(got.broken()), "\n")
	slices.Sort(lines)
	if want := []string{
		"failed  TestBad  example/b", "failed  example/c", "skipped  TestSkipped  example/a"}; !slices.Equal(lines, want) {
		t.Errorf("got %q, want %q", lines, want)
	}
	for i := range namedBroken {
		got.fail(event{Package: "d", Test: fmt.Sprint("Test", i)}, "failed")
	}
	if n := strings.Count(got.broken(), "\n"); n != namedBroken+1 || !strings.HasSuffix(got.broken(), "failed  3 more\n") {
		t.Errorf("%d lines:\n%s", n, got.broken())
	}
}

// TestStopped: what began and did not end has failed, and is named, whether its package said that it failed or said
// nothing.
func TestStopped(t *testing.T) {
	const lines = `{"Action":"start","Package":"a"}
{"Action":"run","Package":"a","Test":"TestGood"}
{"Action":"pass","Package":"a","Test":"TestGood"}
{"Action":"run","Package":"a","Test":"TestBad"}
{"Action":"fail","Package":"a","Test":"TestBad"}
{"Action":"run","Package":"a","Test":"TestLong"}
{"Action":"run","Package":"a","Test":"TestLong/sub"}
{"Action":"output","Package":"a","Test":"TestLong/sub","Output":"last words\n"}
{"Action":"output","Package":"a","Output":"all stacks\n"}
{"Action":"fail","Package":"a"}
{"Action":"start","Package":"b"}
{"Action":"run","Package":"b","Test":"TestCut"}
{"Action":"start","Package":"c"}
`
	var printed strings.Builder
	ta := tally{w: &printed}
	if err := ta.read(strings.NewReader(lines)); err != nil {
		t.Fatal(err)
	}
	if got := ta.summary(); got != "1 passed, 5 failed, 0 skipped" || ta.ok() {
		t.Errorf("%s, ok %v", got, ta.ok())
	}
	for _, want := range []string{
		"last words\n", "all stacks\n", "did not end, which counts as failed: a TestLong\n", ": a TestLong/sub\n",
		": b TestCut\n", "FAIL  a ", "FAIL  b ", "FAIL  c ",
	} {
		if !strings.Contains(printed.String(), want) {
			t.Errorf("no %q in:\n%s", want, &printed)
		}
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
		{"strict", true, map[string]string{"a/a_test.go": mixed}, "2 passed, 1 failed, 1 skipped", false,
			"counts as failed here: example/a TestSkipped"},
		{"failure", false, map[string]string{
			"a/a_test.go": mixed,
			"b/b_test.go": "package b\nimport \"testing\"\nfunc TestBad(t *testing.T) { t.Error(\"it broke\") }\n",
		}, "2 passed, 1 failed, 2 skipped", false, "it broke"},
		{"does not build", false, map[string]string{"a/a_test.go": "package a\nvar x int = \"\"\n"},
			"0 passed, 1 failed, 0 skipped", false, "cannot use"},
		{"process dies", false, map[string]string{
			"a/a_test.go": "package a\nimport (\"os\"; \"testing\")\nfunc TestExit(t *testing.T) { println(\"last words\"); " +
				"os.Exit(3) }\n"},
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
			if lines := strings.Count(got.broken(), "\n"); lines != got.failed {
				t.Errorf("%d failures, %d named:\n%s", got.failed, lines, got.broken())
			}
		})
	}
}
