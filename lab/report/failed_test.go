package report_test

import (
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
)

// TestFailedBlocksInTheTable: below the terminal's table, each error of failed blocks has one line with the blocks,
// counted from 1. Of failed blocks that a resumed run measured later, only the number is given.
func TestFailedBlocksInTheTable(t *testing.T) {
	failed := func(dut string, block int, measured bool) analysis.FailedBlock {
		return analysis.FailedBlock{
			Cell: result.NewCell(result.DUT, dut), Block: block, Error: "agent ended", Measured: measured}
	}
	s := analysis.Summary{FailedBlocks: []analysis.FailedBlock{
		failed("ebpf", 0, false), failed("ebpf", 0, false), failed("ebpf", 2, false), failed("opennds", 1, true),
		failed("opennds", 3, false),
	}}
	var b strings.Builder
	if err := report.Terminal(&b, s, 0); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Block failed: ebpf, blocks 1 and 3: agent ended\n", "Block failed: opennds, block 4: agent ended\n",
		"Failed at first and measured since, when the run was resumed: 1 block.\n",
	} {
		if strings.Count(b.String(), want) != 1 {
			t.Errorf("not once %q:\n%s", want, b.String())
		}
	}
}
