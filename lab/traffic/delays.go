package traffic

import (
	"slices"
	"time"
)

// Delays are how long the streams of a generator took for one step of their
// beginning, microseconds. Zero: not known.
type Delays struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Worst is the larger of two, figure by figure: of generators that share a load, the
// slowest stands for all.
func (d Delays) Worst(o Delays) Delays {
	return Delays{max(d.P50, o.P50), max(d.P99, o.P99), max(d.Max, o.Max)}
}

// beginning is when a stream got through the steps of its beginning.
type beginning struct{ connect, firstByte time.Duration }

// delays sums up one step of all streams.
func delays(all []beginning, step func(beginning) time.Duration) Delays {
	if len(all) == 0 {
		return Delays{}
	}
	us := make([]float64, len(all))
	for i, b := range all {
		us[i] = float64(step(b)) / float64(time.Microsecond)
	}
	slices.Sort(us)
	at := func(share float64) float64 { return us[int(share*float64(len(us)-1))] }
	return Delays{at(0.5), at(0.99), us[len(us)-1]}
}
