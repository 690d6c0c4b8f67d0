package receive

import (
	"slices"

	"github.com/gateweigh/gateweigh/lab/traffic/frames/scale"
)

// The program's histogram counts delays up to 2⁴¹ ns (37 minutes); longer ones are in its last bucket.
const (
	delayScale = scale.Scale(6) // SUB_BITS of the program
	buckets    = len(programsCpu{}.Delays)
)

// Delay is the distribution of one-way delays. Count, sum, least and greatest are exact. Quantiles come from buckets
// that are no wider than 1/64 of their delays.
type Delay struct {
	Frames       uint64
	SumNs        uint64
	MinNs, MaxNs uint64
	counts       []uint64 // by the places of delayScale; never changed, as copies share it
}

// include adds delays with a number of frames, a sum, a least and a greatest value.
func (d *Delay) include(frames, sum, least, greatest uint64) {
	if d.Frames == 0 || least < d.MinNs {
		d.MinNs = least
	}
	d.MaxNs = max(d.MaxNs, greatest)
	d.Frames += frames
	d.SumNs += sum
}

// MeanNs is the mean delay; 0 without frames.
func (d Delay) MeanNs() float64 {
	if d.Frames == 0 {
		return 0
	}
	return float64(d.SumNs) / float64(d.Frames)
}

// QuantileNs is the delay that a share q of the frames, 0 to 1, did not exceed, within 1/128; 0 without frames.
func (d Delay) QuantileNs(q float64) float64 {
	least, greatest, some := delayScale.Quantile(d.counts, q)
	if !some {
		return 0
	}
	middle := float64(least) + float64(greatest-least)/2
	return min(max(middle, float64(d.MinNs)), float64(d.MaxNs))
}

// Since returns the delays that were counted after an earlier reading. Least and greatest are still those of all
// frames.
func (d Delay) Since(before Delay) Delay {
	d.Frames -= before.Frames
	d.SumNs -= before.SumNs
	d.counts = slices.Clone(d.counts)
	for place, n := range before.counts { // before.counts is nil if there was no reading
		d.counts[place] -= n
	}
	return d
}
