package analysis

import (
	"slices"

	"github.com/gateweigh/gateweigh/lab/result"
)

// FailedBlock says why a block, or a storm, ended early.
type FailedBlock struct {
	DUT       string `json:"dut"`
	Clients   int    `json:"clients"`
	Direction string `json:"direction"`
	Profile   string `json:"profile"`
	Block     int    `json:"block"` // counts from 0
	Error     string `json:"error"`
	// Measured: the run was resumed since, and the block then came to its end.
	Measured bool `json:"measured"`
}

// failedBlocks lists the blocks of a run that ended with an error, as they came.
func failedBlocks(run result.Run) []FailedBlock {
	out := []FailedBlock{}
	for i, b := range run.Blocks {
		if b.Error != "" {
			out = append(out, FailedBlock{b.DUT, b.Clients, b.Direction, b.Profile, b.Block, b.Error, endedSince(b, run, i)})
		}
	}
	return out
}

// endedSince reports whether a block that failed was built again in a later sitting
// and came to its end.
func endedSince(failed result.Block, run result.Run, at int) bool {
	for _, b := range run.Blocks[at+1:] {
		if b.Sitting > failed.Sitting && b.Error == "" && b.DUT == failed.DUT && b.AA == failed.AA && b.Clients == failed.Clients &&
			b.Direction == failed.Direction && b.Profile == failed.Profile && b.Block == failed.Block {
			return true
		}
	}
	return slices.ContainsFunc(run.Storms, func(st result.Storm) bool {
		return st.Sitting > failed.Sitting && st.DUT == failed.DUT && st.Clients == failed.Clients && st.LoginRate == failed.LoginRate && st.Block == failed.Block
	})
}
