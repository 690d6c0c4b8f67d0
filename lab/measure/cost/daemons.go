package cost

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// levelDaemons returns the trials with the work of sporadic daemons spread evenly. A daemon that works for 0.1 s every
// 15 s falls into one window in thirty, and multiplies the cost of that window. So a window's process time becomes
//
//	median over the windows of its cell and block   (work that follows the load)
//	+ standing share                                (work that does not)
//
// The median takes each window's quietest attempt. The standing share is the device's process CPU over whole stretches
// of load less those medians, averaged over all blocks of the run. Nothing is dropped: work that is missing from the
// medians is in the standing share. Two kinds of trials stay as they are: those of a device whose process time follows
// the load, and those whose blocks have no record.
func levelDaemons(trials []analysis.Trial, blocks []result.Block) []analysis.Trial {
	medians := processMedians(trials)
	standing := standingShares(medians, blocks)
	out := make([]analysis.Trial, len(trials))
	for i, t := range trials {
		out[i] = t
		share, known := standing[t.Cell.Without(result.OfferedMbps)]
		typical, measured := medians[cellBlock{t.Cell, t.Block, t.Sitting}]
		if !known || !measured || t.AA || typical > sporadicCores {
			continue
		}
		out[i].Device = maps.Clone(t.Device)
		out[i].Device["process_ns"] = math.Trunc((typical + share) * 1e9 * t.Device["seconds"])
	}
	return out
}

// sporadicCores is the process CPU, in cores, above which a device's processes are
// taken to follow the load and are left as they were measured.
const sporadicCores = 0.01

// cellBlock identifies the windows of one cell in one block of one sitting.
type cellBlock struct {
	cell    result.Cell
	block   int
	sitting int
}

// processMedians returns the median process CPU, in cores, of the accepted windows of each cell and block. A window
// that was measured several times is in it once, with the attempt that counts.
func processMedians(trials []analysis.Trial) map[cellBlock]float64 {
	rates := map[cellBlock][]float64{}
	counts := analysis.Counting(trials)
	for i, t := range trials {
		if seconds := t.Device["seconds"]; counts[i] && !t.AA && seconds > 0 {
			key := cellBlock{t.Cell, t.Block, t.Sitting}
			rates[key] = append(rates[key], t.Device["process_ns"]/1e9/seconds)
		}
	}
	medians := map[cellBlock]float64{}
	for key, list := range rates {
		medians[key] = analysis.Median(list)
	}
	return medians
}

// standingShares returns the CPU, in cores, that a device's processes use whatever the load, by the cell without its
// load. It is the process CPU of the stretches of all blocks less the medians of their windows.
func standingShares(medians map[cellBlock]float64, blocks []result.Block) map[result.Cell]float64 {
	ns, seconds, shares := map[result.Cell]float64{}, map[result.Cell]float64{}, map[result.Cell]float64{}
	for _, b := range blocks {
		cell := b.Cell()
		for _, st := range StayOf(b).Stretches {
			if typical, measured := medians[cellBlock{
				cell.With(result.OfferedMbps, st.OfferedMbps), b.Block, b.Sitting}]; measured && !b.AA {
				ns[cell] += float64(st.ProcessNs) - typical*1e9*st.Seconds
				seconds[cell] += st.Seconds
			}
		}
	}
	for cell, long := range seconds {
		if long > 0 {
			shares[cell] = max(0, ns[cell]/1e9/long)
		}
	}
	return shares
}

// housekeepingWarnings name the devices whose housekeeping comes less often than once a block. A block's stretches
// follow each other. So a block that is as long as the device's period has the housekeeping at least once, and
// levelDaemons spreads it over the block's windows. A shorter block has it by chance or not at all.
func housekeepingWarnings(blocks []result.Block) []string {
	longest := map[result.Cell]float64{} // seconds under load in one block
	period := map[string]float64{}       // by device, seconds
	for _, b := range blocks {
		stay := StayOf(b)
		if b.AA || stay.HousekeepingSeconds <= 0 || len(stay.Stretches) == 0 {
			continue
		}
		var loaded float64
		for _, st := range stay.Stretches {
			loaded += st.Seconds
		}
		longest[b.Cell()] = max(longest[b.Cell()], loaded)
		period[b.DUT] = stay.HousekeepingSeconds
	}
	short := map[string]float64{} // by device, its shortest group's longest block
	for group, seconds := range longest {
		if known, ok := short[group.Text(result.DUT)]; !ok || seconds < known {
			short[group.Text(result.DUT)] = seconds
		}
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(short)) {
		if short[name] < period[name] {
			out = append(out, fmt.Sprintf("%s works by itself every %.0f s, and blocks of this run load it for %.0f s: "+
				"that work is missing from its figures or there by chance. Blocks with more windows or loads hold it (keys "+
				"windows and offered_mbps), from %.0f s on.",
				name, period[name], short[name], period[name]))
		}
	}
	return out
}
