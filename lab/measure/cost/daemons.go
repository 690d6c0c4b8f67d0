package cost

import (
	"maps"
	"math"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// levelDaemons returns the trials with the work of sporadic daemons spread
// evenly. A daemon that works for a tenth of a second every 15 s falls
// into one window in thirty and multiplies the cost of that one. So a window's
// process time becomes
//
//	median over the windows of its cell and block   (what follows the load)
//	+ standing share                                (what does not)
//
// where the standing share is the device's process CPU over the whole stretches
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
		if !known || !measured || t.AA || typical > sporadic {
			continue
		}
		out[i].Device = maps.Clone(t.Device)
		out[i].Device["process_ns"] = math.Trunc((typical + share) * 1e9 * t.Device["seconds"])
	}
	return out
}

// sporadic is the process CPU, in cores, above which a device's processes are
// taken to follow the load and are left as they were measured.
const sporadic = 0.01

type cellBlock struct {
	cell    result.Cell
	block   int
	sitting int
}

// processMedians is the median process CPU of the accepted windows of each cell
// and block, in cores.
func processMedians(trials []analysis.Trial) map[cellBlock]float64 {
	rates := map[cellBlock][]float64{}
	for _, t := range trials {
		if seconds := t.Device["seconds"]; t.Accepted && !t.AA && seconds > 0 {
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
	type sum struct{ ns, seconds float64 }
	sums := map[result.Cell]sum{}
	for _, b := range blocks {
		if b.AA {
			continue
		}
		cell := b.Cell()
		s := sums[cell]
		for _, st := range b.Stretches {
			if typical, measured := medians[cellBlock{cell.With(result.OfferedMbps, st.OfferedMbps), b.Block, b.Sitting}]; measured {
				s.ns += float64(st.ProcessNs) - typical*1e9*st.Seconds
				s.seconds += st.Seconds
			}
		}
		if s.seconds > 0 {
			sums[cell] = s
		}
	}
	shares := map[result.Cell]float64{}
	for cell, s := range sums {
		shares[cell] = max(0, s.ns/1e9/s.seconds)
	}
	return shares
}
