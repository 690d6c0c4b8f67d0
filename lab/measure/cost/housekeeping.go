package cost

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gateweigh/gateweigh/lab/result"
)

// housekeepingWarnings name the devices that work by themselves less often than
// once a block. A block's stretches follow each other, so one that is as long as
// the device's period holds that work at least once, and levelDaemons spreads it
// over the block's windows. In shorter ones it is there by chance or not at all.
func housekeepingWarnings(blocks []result.Block) []string {
	longest := map[result.Cell]float64{} // seconds under load in one block
	period := map[string]float64{}       // by device, seconds
	for _, b := range blocks {
		if b.AA || b.HousekeepingSeconds <= 0 || len(b.Stretches) == 0 {
			continue
		}
		var loaded float64
		for _, st := range b.Stretches {
			loaded += st.Seconds
		}
		group := b.Cell()
		longest[group] = max(longest[group], loaded)
		period[b.DUT] = b.HousekeepingSeconds
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
				"that work is missing from its figures or there by chance. Blocks with more windows or loads hold it (`windows`, `offered_mbps`), from %.0f s on.",
				name, period[name], short[name], period[name]))
		}
	}
	return out
}
