package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/result"
)

// TestVariantsOfTheExample: devices that an example has only parameters of are installed, admit their clients and are
// measured, as quick does it.
func TestVariantsOfTheExample(t *testing.T) {
	dir := t.TempDir()
	withGatewayd(t, dir)
	example, err := filepath.Abs("../../examples/gateway-variants.toml")
	if err != nil {
		t.Fatal(err)
	}
	cmd := command(t, dir, "run", example, "--out", "r", "--set", "blocks=1", "--set", "aa_blocks=0", "--set", "clients=3")
	cmd.Env = append(cmd.Env, "PATH="+dir+":"+os.Getenv("PATH"))
	e := finish(t, cmd)
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
