// Tests of runs under several kernels.

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/result"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. simulated(t, dir, name, seed, ratio) writes a run folder with simulated trials, in which a device
// costs ratio times as much as the clean router.

// TestFolderOfKernels: report rebuilds all reports of a comparison of kernels. A command for one run names the runs
// that the folder holds.
func TestFolderOfKernels(t *testing.T) {
	dir := t.TempDir()
	for seed, name := range []string{"6.1", "native"} {
		simulated(t, dir, filepath.Join("r", name), uint64(seed), 1.2)
	}
	write(t, filepath.Join(dir, "r"), kernelsFile,
		`{"kernels": [{"folder": "6.1", "kernel": "6.1"}, {"folder": "native", "kernel": "native"}]}`)
	e := finish(t, command(t, dir, "report", "r"))
	if e.code != 0 || !strings.Contains(e.stdout, "allowlist") ||
		!strings.Contains(e.stdout, filepath.Join("r", "report.html")) {
		t.Errorf("exit %d: %s%s", e.code, e.stdout, e.stderr)
	}
	if page := string(read(t, dir, filepath.Join("r", "report.html"))); !strings.Contains(page, `href="6.1/report.html"`) {
		t.Errorf("the report of all leads nowhere:\n%s", page)
	}
	for _, name := range []string{"6.1", "native"} {
		if len(read(t, dir, filepath.Join("r", name, "report.html"))) == 0 {
			t.Errorf("%s has no report", name)
		}
	}
	for _, args := range []string{"bundle r", "compare r r/native", "compare --max-overhead 5% r", "explain r allowlist",
		"report r -o other", "report r --with r/native", "report r/native --with r"} {
		e := finish(t, command(t, dir, strings.Fields(args)...))
		if e.code != exitUsage || !strings.Contains(e.stderr, "r/6.1, r/native") {
			t.Errorf("%s: exit %d: %s", args, e.code, e.stderr)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "r", "native")); err != nil {
		t.Fatal(err)
	}
	if e := finish(t, command(t, dir, "report", "r")); e.code == 0 || !strings.Contains(e.stderr, "kernel native") ||
		!strings.Contains(e.stderr, "run --resume r") {
		t.Errorf("without one of the runs: exit %d: %s", e.code, e.stderr)
	}
}

// TestLoadsOfMixedGuests: when some guests have an emulated CPU and others do not, the loads of all are divided. Loads
// given with --set stay.
func TestLoadsOfMixedGuests(t *testing.T) {
	kvm, tcg := &result.VM{Accelerator: result.KVM}, &result.VM{Accelerator: result.TCG}
	for name, c := range map[string]struct {
		guests  []*result.VM
		given   []string
		divided float64
	}{
		"one of each": {[]*result.VM{kvm, tcg}, nil, 20}, "none emulated": {[]*result.VM{kvm, kvm}, nil, 0},
		"all emulated": {[]*result.VM{tcg, tcg}, nil, 0}, "given": {[]*result.VM{kvm, tcg}, []string{"offered_mbps"}, 0},
	} {
		exp, err := loadExperiment(defaultName)
		if err != nil {
			t.Fatal(err)
		}
		if err := equalise(exp, c.guests, c.given); err != nil || exp.LoadsDividedBy != c.divided ||
			(c.divided > 0) != strings.Contains(exp.Description, "÷ 20") {
			t.Errorf("%s: %v, loads divided by %g: %s", name, err, exp.LoadsDividedBy, exp.Description)
		}
	}
}
