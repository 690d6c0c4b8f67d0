package analysis

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gateweigh/gateweigh/lab/result"
)

// TestFailedBlocksSinceMeasured: a failed block that a resume has measured counts no longer as failed, and no other
// does.
func TestFailedBlocksSinceMeasured(t *testing.T) {
	// in returns the record of a block in a sitting, the part of a run between two interruptions. An empty err: the block
	// was completed.
	in := func(dut string, number, sitting int, err string) result.Block {
		return block(dut, 3, func(b *result.Block) { b.Block, b.Sitting, b.Error = number, sitting, err })
	}
	run := result.Run{Blocks: []result.Block{
		in("a", 0, 0, "agent ended"), in("a", 1, 0, "agent ended"), in("b", 0, 0, ""), in("b", 0, 0, "late"),
		in("a", 0, 1, "agent ended"), in("a", 0, 2, ""), in("a", 1, 1, "again"), in("c", 2, 0, "no device"),
	}}
	alone := Trial{Trial: result.Trial{Cell: run.Blocks[7].Cell(), Block: 2, Sitting: 1}}
	want := []bool{true, false, false, true, false, true}
	got := failedBlocks(Input{Run: run, Alone: true, Trials: []Trial{alone}})
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, f := range got {
		if f.Measured != want[i] {
			t.Errorf("%s, block %d, %q: measured since: %t", f.Cell, f.Block, f.Error, f.Measured)
		}
	}
}

// block returns the record of a block, changed by change.
func block(dut string, clients int, change func(*result.Block)) result.Block {
	b := result.Block{DUT: dut, Clients: clients, Direction: result.Up, Profile: result.PerPacket}
	change(&b)
	return b
}

// TestLimitsAreTheFewestClients: the limit of a device is the smallest number of clients at which it broke. A block
// that failed for another reason shows no limit.
func TestLimitsAreTheFewestClients(t *testing.T) {
	broke := func(how string) func(*result.Block) { return func(b *result.Block) { b.Broke = how } }
	fine, failed := func(*result.Block) {}, func(b *result.Block) { b.Error = "no cable" }
	got := limits([]result.Block{
		block("b", 10, fine), block("b", 1000, broke("later")), block("b", 100, broke("first")), block("b", 50, fine),
		block("a", 10, fine), block("a", 1000, failed),
	})
	if diff := cmp.Diff([]Limit{{DUT: "b", Clients: 100, Took: 50, How: "first"}}, got); diff != "" {
		t.Error(diff)
	}
}
