package main

import (
	"path/filepath"
	"testing"

	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
)

const twoLoads = `duts = ["none"]
clients = [1]
offered_mbps = [10, 20]
blocks = 1
aa_blocks = 0
windows = 1
window = "200ms"
warmup = "3s"
redo = 0
[dut.none]
start = "true"
`

// TestWarmupAfterLogins: a device's processes are not metered in the warm-up of a block's first load, only in those of
// later ones.
func TestWarmupAfterLogins(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "two.toml", twoLoads)
	e := finish(t, command(t, dir, "run", "two.toml", "--out", "r"))
	run, err := measure.ReadRun(filepath.Join(dir, "r"))
	if err != nil || len(run.Blocks) != 1 || len(cost.StayOf(run.Blocks[0]).Stretches) != 2 {
		t.Fatalf("%v, blocks %+v\n%s", err, run.Blocks, e.stderr)
	}
	b := run.Blocks[0]
	first, second := cost.StayOf(b).Stretches[0], cost.StayOf(b).Stretches[1]
	if b.SetupSeconds+first.WarmupSeconds+first.Seconds+second.Seconds > b.Seconds {
		t.Errorf("the block took %g s with %g of set-up; its loads %g s after a warm-up of %g, and %g", b.Seconds,
			b.SetupSeconds, first.Seconds, first.WarmupSeconds, second.Seconds)
	}
	if second.Seconds < second.WarmupSeconds {
		t.Errorf("the second load took %g s, warm-up %g", second.Seconds, second.WarmupSeconds)
	}
}
