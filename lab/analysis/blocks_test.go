package analysis

import (
	"cmp"
	"testing"

	"github.com/gateweigh/gateweigh/lab/result"
)

// TestAResumedBlockIsTwo: a block that was interrupted and resumed counts as two, because its labs were built twice.
func TestAResumedBlockIsTwo(t *testing.T) {
	// A sitting is the part of a run between two interruptions.
	window := func(block, window, sitting int) Trial {
		cell := result.NewCell(result.DUT, "d", result.Clients, 1, result.OfferedMbps, 10, result.Direction, result.Up,
			result.Profile, result.PerPacket)
		return Trial{Trial: result.Trial{Cell: cell, Block: block, Window: window, Sitting: sitting, Accepted: true}}
	}
	input := Input{Load: []result.Dimension{result.OfferedMbps},
		Compare: func(a, b result.Cell) int { return cmp.Compare(a.String(), b.String()) }}
	blocks := input.byBlock([]Trial{window(0, 0, 0), window(0, 1, 0), window(0, 2, 1), window(1, 0, 1)})
	if len(blocks) != 3 || len(blocks[0]) != 2 || len(blocks[1]) != 1 || blocks[1][0].Window != 2 {
		t.Errorf("grouped as %d blocks, want block 0 in two sittings and block 1", len(blocks))
	}
}
