package analysis

import (
	"github.com/gateweigh/gateweigh/lab/result"
)

// FailedBlock says why a block ended early.
type FailedBlock struct {
	Cell  result.Cell `json:"dimensions"` // those that are the same throughout the block
	Block int         `json:"block"`      // counts from 0
	Error string      `json:"error"`
	// Measured: the run was resumed since, and the block then came to its end.
	Measured bool `json:"measured"`
}

// failedBlocks lists the blocks of a run that ended with an error, as they came.
func failedBlocks(in Input) []FailedBlock {
	out := []FailedBlock{}
	for i, b := range in.Run.Blocks {
		if b.Error != "" {
			out = append(out, FailedBlock{b.Cell(), b.Block, b.Error, in.endedSince(b, i)})
		}
	}
	return out
}

// endedSince reports whether a block that failed was built again in a later sitting
// and came to its end: its record says so, or, of a measure that records no blocks
// that go well, one of its trials.
func (in Input) endedSince(failed result.Block, at int) bool {
	for _, b := range in.Run.Blocks[at+1:] {
		if b.Sitting > failed.Sitting && b.Error == "" && b.AA == failed.AA && b.Cell() == failed.Cell() && b.Block == failed.Block {
			return true
		}
	}
	for _, t := range in.Trials {
		if in.Alone && t.Sitting > failed.Sitting && t.Cell == failed.Cell() && t.Block == failed.Block {
			return true
		}
	}
	return false
}
