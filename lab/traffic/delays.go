package traffic

import (
	"slices"
	"time"
)

// Delays has the times of a generator's streams for one step of their beginning, microseconds. Zero: not known.
type Delays struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Worst returns the larger of two delays, figure by figure: if several generators share a load, the slowest one counts.
func (d Delays) Worst(o Delays) Delays {
	return Delays{max(d.P50, o.P50), max(d.P99, o.P99), max(d.Max, o.Max)}
}

// delays summarises the times that all streams took for one step. It sorts them.
func delays(all []time.Duration) Delays {
	if len(all) == 0 {
		return Delays{}
	}
	slices.Sort(all)
	at := func(share float64) float64 {
		return float64(all[int(share*float64(len(all)-1))]) / float64(time.Microsecond)
	}
	return Delays{at(0.5), at(0.99), at(1)}
}
