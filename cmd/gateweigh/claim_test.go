// Tests of runs that users start with wrong or very short settings.

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. measured accepts the exit codes 0 and exitRejected: on a busy machine some trials are rejected.
// oneCell is an experiment of one window with the device allowlist.

// TestBadInputIsBlamed: run names a mistake of its command line before anything else, even while another run measures
// or run folders of this second exist. It leaves no folder.
func TestBadInputIsBlamed(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "one.toml", oneCell)
	write(t, dir, "file", "")
	others := takeSeconds(t, dir)
	unlock, err := runner.LockMachine("the test")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"--kernel ./nope", exitUsage, "/nope: no such file"}, {"--kernel native --kernel nope --out new/r", exitUsage,
			`kernel "nope"`}, {"--out file/r", exitUsage, "not a directory"},
		{"--out file", exitUsage, "file is a file"}, {"", exitFailed, "another run measures"},
		{"--out new/r", exitFailed, "another run measures"},
	} {
		e := finish(t, command(t, dir, append([]string{"run", "one.toml"}, strings.Fields(c.args)...)...))
		if e.code != c.code || !strings.Contains(e.stderr, c.want) {
			t.Errorf("%q: exit %d, want %d and %q: %s", c.args, e.code, c.code, c.want, e.stderr)
		}
	}
	if now := folders(t, dir, "runs"); !slices.Equal(now, others) {
		t.Errorf("folders of runs were %q and are %q", others, now)
	}
	if now := folders(t, dir, "."); !slices.Equal(now, []string{"file", "one.toml", "runs"}) {
		t.Errorf("left: %q", now)
	}
}

// TestRunsOfOneSecond: a run that begins in the same second as another has a folder of its own.
func TestRunsOfOneSecond(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "one.toml", oneCell)
	others := takeSeconds(t, dir)
	measured(t, finish(t, command(t, dir, "run", "one.toml")))
	own := slices.DeleteFunc(folders(t, dir, "runs"), func(name string) bool { return slices.Contains(others, name) })
	if len(own) != 1 || !strings.HasSuffix(own[0], "Z-one-2") ||
		len(read(t, dir, filepath.Join("runs", own[0], "report.html"))) == 0 {
		t.Errorf("the run's folder is %q", own)
	}
}

// takeSeconds makes folders of runs that began in each second of the next minute, and lists them.
func takeSeconds(t *testing.T, dir string) []string {
	t.Helper()
	for instant := time.Now().UTC(); instant.Before(time.Now().Add(time.Minute)); instant = instant.Add(time.Second) {
		folder := filepath.Join(dir, "runs", instant.Format("20060102T150405Z")+"-one")
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, folder, result.TrialsFile, "")
	}
	return folders(t, dir, "runs")
}

// folders lists the folders in dir/name.
func folders(t *testing.T, dir, name string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}
