// Tests of devices in several variants.

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. measured accepts the exit codes 0 and exitRejected: on a busy machine some trials are rejected.
// withPath makes a command find programs in its folder. withGatewayd puts gatewayd into a folder.

// TestVariantsOfTheExample: an example experiment defines variants of devices by parameters alone. They start, admit
// clients and are measured.
func TestVariantsOfTheExample(t *testing.T) {
	dir := t.TempDir()
	withGatewayd(t, dir)
	example, err := filepath.Abs("../../examples/gateway-variants.toml")
	if err != nil {
		t.Fatal(err)
	}
	e := finish(t, withPath(command(t, dir, "run", example, "--out", "r", "--set", "blocks=1", "--set", "aa_blocks=0",
		"--set", "clients=3")))
	measured(t, e)
	run, err := measure.ReadRun(filepath.Join(dir, "r"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, trial := range run.Trials {
		seen[trial.Cell.Text(result.DUT)] = true
	}
	for device, about := range map[string]string{
		"gateway-tun-nat":          "gatewayd, data path tun, RADIUS accounts (CHAP), masquerade",
		"gateway-ebpf-nat-limited": "each client limited to 10Gbit/s)",
		"gateway-nfqueue-nat":      "gatewayd, data path nfqueue, RADIUS accounts (CHAP), masquerade",
	} {
		if !seen[device] || !strings.Contains(run.Environment.Tools["device "+device], about) {
			t.Errorf("%s: measured %v, as %q:\n%s", device, seen[device], run.Environment.Tools["device "+device], e.stderr)
		}
	}
	for _, b := range run.Blocks {
		if b.Error != "" {
			t.Errorf("%s: %s", b.DUT, b.Error)
		}
	}
}
