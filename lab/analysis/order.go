package analysis

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/gateweigh/gateweigh/lab/result"
)

// CompareCells returns the order of a run's cells in tables: by profile, direction (upload first), frame size, IP
// protocol, device, clients, load.
func CompareCells(run result.Run) func(a, b result.Cell) int {
	return func(a, b result.Cell) int {
		return cmp.Or(
			result.CompareCells(a, b, result.Profile),
			-result.CompareCells(a, b, result.Direction),
			CompareSizes(run, a, b),
			result.CompareCells(a, b, result.LinkMbps, result.Family, result.DUT, result.Clients, result.OfferedMbps),
		)
	}
}

// CompareSizes orders cells of a run by frame size, in the order of the experiment's list. Where the run's folder has
// no experiment any more, numbers of bytes come first and names follow.
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

// inOrder is Compare, and an order of cells that are equal by it: a map's random one would change the summary.
func (input Input) inOrder(a, b result.Cell) int {
	return cmp.Or(input.Compare(a, b), cmp.Compare(a.String(), b.String()))
}
