// Tests of devices that need another kernel.

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/labtest"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output.

// TestSkippedDeviceNamesTheCommand: a device needs a feature that this kernel lacks and another one has. The run and
// its report name the command that measures the device under that kernel.
func TestSkippedDeviceNamesTheCommand(t *testing.T) {
	if _, err := os.Stat("/proc/config.gz"); err != nil {
		if installed, _ := filepath.Glob("/boot/config-*"); len(installed) == 0 {
			t.Skip("the kernel lacks its configuration: CONFIG_IKCONFIG_PROC")
		}
	}
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	labtest.FetchedKernel(t, "CONFIG_GATEWEIGH_TOY=y\n")
	write(t, dir, "toys.toml", `duts = ["toy", "other"]
clients = [2]
offered_mbps = [2]
[dut.toy]
kernel = ["CONFIG_GATEWEIGH_TOY"]
start = "true"
[dut.other]
kernel = ["CONFIG_GATEWEIGH_NOWHERE"]
start = "true"
`)
	e := finish(t, command(t, dir, "run", "toys.toml", "--set", "clients=3", "--set", "duts=toy,other", "-o", "r"))
	const want = "the kernel lacks CONFIG_GATEWEIGH_TOY; runs with --kernel debian: gateweigh run toys.toml --set " +
		"clients=3 --kernel debian --set duts=toy"
	if e.code != exitNothingRan || !strings.Contains(e.stderr, want+"\n") ||
		!strings.Contains(e.stderr, "other: the kernel lacks CONFIG_GATEWEIGH_NOWHERE\n") {
		t.Errorf("exit %d: %s", e.code, e.stderr)
	}
	for _, file := range []string{"environment.json", "summary.json", "report.html"} {
		if text, err := os.ReadFile(filepath.Join(dir, "r", file)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s does not name the command: %v", file, err)
		}
	}
}

// TestBeginning: the command that a report names is quoted for a shell.
func TestBeginning(t *testing.T) {
	for _, c := range []struct {
		args  []string
		flags runFlags
		want  string
	}{
		{nil, runFlags{}, "gateweigh run quick"},
		{[]string{"my gateways/it's.toml"}, runFlags{set: []string{"duts=a,b", "clients=5", "name=two words"}},
			`gateweigh run 'my gateways/it'\''s.toml' --set clients=5 --set 'name=two words'`},
		{nil, runFlags{resuming: true}, "gateweigh run runs/r/experiment.toml"},
	} {
		if got := beginning(c.args, c.flags, "runs/r"); got != c.want {
			t.Errorf("%v: %s, want %s", c.args, got, c.want)
		}
	}
}
