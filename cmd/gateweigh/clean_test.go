// Tests of gateweigh clean, which removes what killed runs have left.

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/labtest"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. oneCell is an experiment of one window with the device allowlist. start runs a command in the
// background, and said returns its standard error so far. leftovers lists what runs of this test left behind:
// processes, links, rules and mounts.

// TestCleanRemovesWhatNobodyHas: clean removes and names the folders of a killed doctor, of a killed shell and of a
// guest's console. It keeps the folders of a living shell and of other programs.
func TestCleanRemovesWhatNobodyHas(t *testing.T) {
	dir, tmp := t.TempDir(), t.TempDir()
	write(t, dir, "one.toml", oneCell)
	t.Setenv("TMPDIR", tmp)
	folder := func(kind string) (found string) {
		labtest.Await(t, "a folder of a "+kind, func() bool {
			list, err := filepath.Glob(filepath.Join(tmp, "gateweigh-"+kind+"-*", "*")) // something is in it
			if err != nil || len(list) == 0 {
				return false
			}
			found = filepath.Dir(list[0])
			return true
		})
		return found
	}
	doctor := start(t, dir, command(t, dir, "doctor", "--quick"))
	left := []string{folder("doctor")}
	kill(t, doctor.cmd.Process.Pid)
	doctor.cmd.Wait()
	for _, name := range []string{"gateweigh-console-1", "gateweigh-bundle-1", "gateweigh-self-test-1"} {
		left = append(left, filepath.Join(tmp, name))
		if err := os.MkdirAll(filepath.Join(tmp, name, "sub"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	others := []string{filepath.Join(tmp, "gateweigh-of-somebody"), filepath.Join(tmp, "gateweigh-doctor-link"),
		filepath.Join(tmp, "gateweigh-shell-file")}
	if err := os.Mkdir(others[0], 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(others[0], others[1]); err != nil {
		t.Fatal(err)
	}
	write(t, tmp, filepath.Base(others[2]), "")

	shell := start(t, dir, command(t, dir, "shell", "one.toml", "--", "sleep", "1000"))
	living := folder("shell")
	cleaned := func(want, stays []string) {
		t.Helper()
		e := finish(t, command(t, dir, "clean"))
		for _, name := range want {
			if _, err := os.Lstat(name); err == nil || !strings.Contains(e.stdout, name) {
				t.Errorf("%s: %v, clean said:\n%s", name, err, e.stdout)
			}
		}
		for _, name := range stays {
			if _, err := os.Lstat(name); err != nil || strings.Contains(e.stdout, name) {
				t.Errorf("%s: %v, clean said:\n%s", name, err, e.stdout)
			}
		}
		if e.code != 0 {
			t.Errorf("clean: exit %d, %s", e.code, e.stderr)
		}
	}
	cleaned(left, append(slices.Clone(others), living))
	kill(t, shell.cmd.Process.Pid)
	shell.cmd.Wait()
	cleaned([]string{living}, others)
	labtest.Await(t, "everything of the lab to go", func() bool { return leftovers(t) == "" })
	if e := finish(t, command(t, dir, "clean")); e.stdout != "nothing was left\n" {
		t.Errorf("a second clean: %+v", e)
	}
}
