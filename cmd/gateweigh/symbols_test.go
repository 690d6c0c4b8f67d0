// Tests of profiles without the names of kernel functions.

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/profile"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. measured accepts the exit codes 0 and exitRejected: on a busy machine some trials are rejected.
// simulated(t, dir, name, seed, ratio) writes a run folder with simulated trials, in which a device costs ratio times
// as much as the clean router. profiled adds a CPU profile to a run folder. oneCell is an experiment of one window with
// the device allowlist.

// TestHiddenSymbolsAreSaid: when the kernel hides the addresses of its functions, no profile is recorded. run, explain,
// doctor and the report give the reason and the capability that helps.
func TestHiddenSymbolsAreSaid(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "one.toml", oneCell)
	// hidden is command where all addresses in /proc/kallsyms are zero.
	hidden := func(args ...string) *exec.Cmd {
		cmd := command(t, dir, args...)
		const hide = `sed 's/^[0-9a-f]*/0000000000000000/' /proc/kallsyms >zero; mount --bind zero /proc/kallsyms; exec "$0" "$@"`
		inner := exec.Command("unshare", append([]string{"-m", "sh", "-ec", hide}, cmd.Args...)...)
		inner.Dir, inner.Env = cmd.Dir, cmd.Env
		return inner
	}
	e := finish(t, hidden("run", "one.toml", "--profile", "-o", "r"))
	measured(t, e)
	explained := finish(t, command(t, dir, "explain", "r", "allowlist"))
	doctor := finish(t, hidden("doctor", "--quick"))
	for what, text := range map[string]string{"run": e.stderr, "explain": explained.stderr, "report": string(read(t, dir,
		"r/report.html")), "doctor": doctor.stdout} {
		text = strings.Join(strings.Fields(text), " ")
		for _, want := range []string{"hides where its functions are", "CAP_SYSLOG"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not say %q:\n%s", what, want, text)
			}
		}
	}
	if explained.code != exitUsage {
		t.Errorf("explain: exit %d", explained.code)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "r", result.ProfilesFolder)); len(left) > 0 {
		t.Errorf("profiles that say nothing: %v", left)
	}
}

// TestProfilesThatSayNothing: explain and the page say that an old profile has no names of functions, or no samples.
func TestProfilesThatSayNothing(t *testing.T) {
	for says, spoil := range map[string]func(*profile.Side){
		"hid where they are": func(s *profile.Side) {
			for i := range s.Stacks {
				s.Stacks[i].Frames[1] = profile.Frame{Func: profile.Unknown, Module: "?"}
			}
		},
		"took no sample": func(s *profile.Side) { s.Accounts[0].Samples, s.Accounts[0].SampledNs = 0, 0 },
	} {
		dir := t.TempDir()
		simulated(t, dir, "r", 1, 1.2)
		profiled(t, filepath.Join(dir, "r"))
		list, err := profile.ReadAll(filepath.Join(dir, "r"))
		if err != nil {
			t.Fatal(err)
		}
		spoil(&list[0].DUT)
		spoil(&list[0].Clean)
		if err := profile.Write(filepath.Join(dir, "r"), list[0]); err != nil {
			t.Fatal(err)
		}
		if e := finish(t, command(t, dir, "explain", "r", "allowlist")); e.code != 0 || !strings.Contains(e.stdout, says) {
			t.Errorf("explain does not say %q: exit %d\n%s%s", says, e.code, e.stdout, e.stderr)
		}
		if e := finish(t, command(t, dir, "report", "r")); e.code != 0 ||
			!strings.Contains(string(read(t, dir, "r/report.html")), says) {
			t.Errorf("the page does not say %q: %+v", says, e)
		}
	}
}
