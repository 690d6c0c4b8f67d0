package analysis

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/gateweigh/gateweigh/lab/result"
)

// CompareCells orders the cells of a run for reading: profile, direction (upload first), size of frames, device,
// clients, load.
func CompareCells(run result.Run) func(a, b result.Cell) int {
	return func(a, b result.Cell) int {
		return cmp.Or(
			result.CompareCells(a, b, result.Profile),
			-result.CompareCells(a, b, result.Direction),
			CompareSizes(run, a, b),
			result.CompareCells(a, b, result.LinkMbps, result.DUT, result.Clients, result.OfferedMbps),
		)
	}
}

// CompareSizes orders cells of a run by their frames' size: as the experiment lists them, and then, where the run's
// folder has lost its experiment, numbers of bytes before names.
func CompareSizes(run result.Run, a, b result.Cell) int {
	place := func(size string) (listed, bytes int) {
		if listed = slices.Index(run.FrameSizes, size); listed < 0 {
			listed = len(run.FrameSizes)
		}
		bytes, err := strconv.Atoi(size)
		if err != nil {
			bytes = math.MaxInt
		}
		return listed, bytes
	}
	x, y := a.Text(result.FrameSize), b.Text(result.FrameSize)
	listedX, bytesX := place(x)
	listedY, bytesY := place(y)
	return cmp.Or(cmp.Compare(listedX, listedY), cmp.Compare(bytesX, bytesY), cmp.Compare(x, y))
}
