package cost

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// levelDaemons returns the trials with the work of sporadic daemons spread
// evenly. A daemon that works for a tenth of a second every 15 s falls
// into one window in thirty and multiplies the cost of that one. So a window's
// process time becomes
//
//	median over the windows of its cell and block   (what follows the load; of each its quietest attempt)
//	+ standing share                                (what does not)
//
// where the standing share is the device's process CPU over whole stretches
// of load less those medians, averaged over all blocks of the run. Nothing is
// dropped: work that is missing from the medians is in the standing share. Trials
// of a device whose process time follows the load are left as they are, and so
// are all without block records.
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

type cellBlock struct {
	cell    result.Cell
	block   int
	sitting int
}

// processMedians is the median process CPU of the accepted windows of each cell
// and block, in cores: of the attempts that count.
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

// standingShares is what a device's processes use whatever the load, in cores,
// by the cell without its load: what the stretches of all blocks hold beyond
// the medians of their windows.
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

// housekeepingWarnings name the devices that work by themselves less often than
// once a block. A block's stretches follow each other, so one that is as long as
// the device's period holds that work at least once, and levelDaemons spreads it
// over the block's windows. In shorter ones it is there by chance or not at all.
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
