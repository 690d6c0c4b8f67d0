// Finds the cells that a device managed in run A, and no longer in run B.

package compare

import (
	"fmt"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// measuredRun is a run with its summary.
type measuredRun struct {
	result.Run
	analysis.Summary
}

// hiccupShare is the largest share of a cell's trials in which a flag counts as a hiccup of the machine.
const hiccupShare = 0.1

// noLongerManaged returns the cells that the device could measure in A but not in B: it takes fewer clients, cannot be
// started, stops, or carries less of the load or loses packets. They fail a gate, whatever the costs are. unclear are
// cells for which the reason may be another machine or another speed.
func (c *Comparison) noLongerManaged(a, b measuredRun) (list, unclear []Missing) {
	for _, before := range a.Summary.Cells {
		if before.Pairs == 0 || a.Measure != b.Measure {
			continue
		}
		i := slices.IndexFunc(b.Summary.Cells, func(cell analysis.Cell) bool { return cell.Cell == before.Cell })
		if i < 0 {
			if reason := notManaged(before.Cell, b.Summary); reason != "" {
				list = append(list, Missing{before.Cell, reason})
			}
			continue
		}
		switch reason := shortfallReason(before, b.Summary.Cells[i], b.Run); {
		case reason == "":
		case c.SameMachine && a.Speed() == b.Speed():
			list = append(list, Missing{before.Cell, reason})
		default:
			unclear = append(unclear, Missing{before.Cell, reason + ", on another machine or at another speed"})
		}
	}
	return list, unclear
}

// notManaged says why a cell has no trial, if the device is the reason. Otherwise it returns "".
func notManaged(cell result.Cell, s analysis.Summary) string {
	if reason := limitAt(cell, s); reason != "" {
		return reason
	}
	for _, f := range s.FailedBlocks {
		if !f.AA && !f.Measured && f.Covers(cell) {
			return "its block failed: " + result.OneLine(f.Error)
		}
	}
	return ""
}

// limitAt says that a cell has more clients than its device takes. Otherwise it returns "".
func limitAt(cell result.Cell, s analysis.Summary) string {
	for _, l := range s.Limits {
		if l.DUT == cell.Text(result.DUT) && cell.HasDimension(result.Clients) && cell.Int(result.Clients) >= l.Clients {
			return fmt.Sprintf("the device does not take %s: %s", words.Counted(l.Clients, "client"), result.OneLine(l.How))
		}
	}
	return ""
}

// shortfallReason says how the device falls short in a cell of B, although it carried the load in A. Otherwise it
// returns "". before and after are the cell in A and in B.
func shortfallReason(before, after analysis.Cell, b result.Run) string {
	if !after.HasDimension(result.OfferedMbps) || before.FlaggedShare(result.FlagSaturated) > hiccupShare ||
		before.FlaggedShare(result.FlagLossy) > hiccupShare {
		return ""
	}
	delivered, offered := after.Device(cost.Delivered).Mean, after.Text(result.OfferedMbps)
	switch after.NotCarried() {
	case result.FlagSaturated:
		return fmt.Sprintf("the device carried %s Mbit/s in A, and carries %.4g in B", offered, float64(delivered))
	case result.FlagLossy:
		return fmt.Sprintf("the device carried %s Mbit/s in A, and loses more than 1 %% of the packets in B", offered)
	}
	if after.Pairs == 0 && carriedNothing(after.Cell, b.Trials) {
		return fmt.Sprintf(
			"the device carried %s Mbit/s in A, and in B, where its clean router did, no trial passed with as much", offered)
	}
	return ""
}

// carriedNothing reports whether the device never carried its load in those trials of a cell in which the clean router
// did. If the clean router failed too, the machine was held up, so such trials do not count.
func carriedNothing(cell result.Cell, trials []result.Trial) bool {
	full := 0
	for _, t := range trials {
		sides, is := t.Figures.(*cost.Sides)
		if !is || t.AA || t.Cell != cell || sides.Clean.DeliveredMbps < result.FullLoad*sides.Clean.OfferedMbps {
			continue
		}
		if full++; sides.DUT.DeliveredMbps >= result.FullLoad*sides.DUT.OfferedMbps {
			return false
		}
	}
	return full > 0
}
