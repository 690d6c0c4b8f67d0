// Tests of commands that gateweigh prints for copying.

package main

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/result"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. simulated(t, dir, name, seed, ratio) writes a run folder with simulated trials, in which a device
// costs ratio times as much as the clean router.

// copied finds a command in a text that gateweigh has printed, and returns the arguments that bash would give the
// program if a user copied the command. The command begins with the words in begins. It ends before the words in ends,
// or at the end of the line if ends is empty.
func copied(t *testing.T, text, begins, ends string) []string {
	t.Helper()
	_, line, found := strings.Cut(text, begins)
	line, _, _ = strings.Cut(line, "\n")
	if line = begins + line; ends != "" {
		line, _, _ = strings.Cut(line, ends)
	}
	name, _, _ := strings.Cut(begins, " ")
	out, err := exec.Command("bash", "-c", name+`() { printf '%s\0' "$@"; }; `+line).CombinedOutput()
	if !found || err != nil {
		t.Errorf("no command %q in %q: %v, %s", begins, text, err, out)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

// TestPrintedCommandsCanBeCopied: commands that gateweigh prints are quoted for a shell, also when folders have spaces
// and quotes in their names.
func TestPrintedCommandsCanBeCopied(t *testing.T) {
	dir, odd := t.TempDir(), "my runs/it's  $HOME"
	simulated(t, dir, odd, 1, 1.2)
	bundle := odd + result.BundleSuffix
	if e := finish(t, command(t, dir, "bundle", odd)); e.code != 0 {
		t.Fatal(e.stderr)
	}
	for _, c := range []struct {
		args   []string
		begins string
		ends   string
		want   []string
	}{
		{[]string{"explain", odd, "allowlist"}, "gateweigh run --resume", "", []string{"run", "--resume", odd, "--profile"}},
		{[]string{"explain", bundle, "allowlist"}, "tar xzf", ", then", []string{"xzf", bundle}},
		{[]string{"run", "--resume", bundle}, "tar xzf", " makes", []string{"xzf", bundle}},
		{[]string{"run", "--out", odd}, "--resume", ", or choose", nil},
	} {
		e := finish(t, command(t, dir, c.args...))
		if c.want == nil {
			e.stderr, c.begins, c.want = strings.Replace(e.stderr, "--resume", "gateweigh --resume", 1), "gateweigh --resume",
				[]string{"--resume", odd}
		}
		if got := copied(t, e.stderr, c.begins, c.ends); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q of\n%s", c.args, got, c.want, e.stderr)
		}
	}
}

// TestRunsCommandsCanBeCopied: the commands that a run names at its end and in environment.json are quoted too.
func TestRunsCommandsCanBeCopied(t *testing.T) {
	dir, file, out := t.TempDir(), "my gateway's.toml", "its 'r'"
	write(t, dir, file,
		"duts = [\"broken\"]\nclients = [1]\noffered_mbps = [10]\nblocks = 1\naa_blocks = 0\nwindows = 1\nwindow = "+
			"\"300ms\"\n[dut.broken]\nstart = \"false\"\n")
	e := finish(t, command(t, dir, "run", file, "--out", out))
	if got, want := copied(t, e.stderr, "gateweigh run --resume", ""),
		[]string{"run", "--resume", out}; e.code != exitFailed || !slices.Equal(got, want) {
		t.Errorf("exit %d, %q, want %q of\n%s", e.code, got, want, e.stderr)
	}
	env, err := result.ReadEnvironment(filepath.Join(dir, out, result.EnvironmentFile))
	if got, want := copied(t, env.Command, "gateweigh run", ""),
		[]string{"run", filepath.Join(out, result.ExperimentFile)}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v: the run is repeated by %q, want %q", err, got, want)
	}
}
