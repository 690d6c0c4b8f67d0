package transition

import (
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/lab/traffic/frames/scale"
)

// Distribution has the times of probes for one part of their way, µs. Percentiles are exact (nearest rank).
type Distribution struct {
	Count int     `json:"count"` // probes; if it is 0, all else is 0
	Min   float64 `json:"min"`
	Mean  float64 `json:"mean"`
	Max   float64 `json:"max"`
	P50   float64 `json:"p50"` // median
	P99   float64 `json:"p99"` // 99th percentile
	// Histogram is the number of probes by time: pairs of a bucket's least time, ns, and its count. See Buckets.
	Histogram [][2]int64 `json:"histogram,omitempty"`
}

// Buckets divide the times of histograms: eight buckets for each doubling of the time.
const Buckets = scale.Scale(3)

// Distribute describes times, ns, which it sorts.
func Distribute(ns []int64) (d Distribution) {
	if len(ns) == 0 {
		return d
	}
	slices.Sort(ns)
	rank := func(q float64) float64 {
		return float64(ns[max(1, int(math.Ceil(q*float64(len(ns)))))-1]) / 1e3
	}
	d = Distribution{
		Count: len(ns), Min: float64(ns[0]) / 1e3, Max: float64(ns[len(ns)-1]) / 1e3, P50: rank(0.5), P99: rank(0.99)}
	for _, n := range ns {
		d.Mean += float64(n) / 1e3 / float64(len(ns))
		from, _ := Buckets.Range(Buckets.Place(uint64(max(n, 0))))
		if last := len(d.Histogram) - 1; last >= 0 && d.Histogram[last][0] == int64(from) {
			d.Histogram[last][1]++
		} else {
			d.Histogram = append(d.Histogram, [2]int64{int64(from), 1})
		}
	}
	return d
}
