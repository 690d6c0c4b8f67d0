// Tests of the warm-up between logins and measurement.

package main

import (
	"path/filepath"
	"testing"

	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output.

// twoLoads is an experiment whose device changes nothing. A block measures two loads, one after the other, each after a
// warm-up.
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

// TestWarmupAfterLogins: the seconds of a block's first load begin after its warm-up, because the lab does not meter
// the device's processes before. The seconds of later loads include their warm-up.
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
