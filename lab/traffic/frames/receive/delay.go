package receive

// The buckets of the program's histogram: one for each ns below 64, then 64 for each doubling, up to 2⁴¹ ns
// (37 minutes).
const (
	subBits = 6
	buckets = len(programsCpu{}.Delays)
)

// Delay is the distribution of one-way delays: count, sum, least and greatest are exact, what lies between
// them is counted in buckets no wider than 1/64 of their delays.
type Delay struct {
	Frames       uint64
	SumNs        uint64
	MinNs, MaxNs uint64
	Buckets      []Bucket // with frames, ascending
}

// Bucket is how many delays were LowNs or up to WidthNs-1 longer.
type Bucket struct{ LowNs, WidthNs, Frames uint64 }

// fill takes the program's counts over.
func (d *Delay) fill(counts *[buckets]uint64) {
	for i, n := range counts {
		if n > 0 {
			low, width := bucket(i)
			d.Buckets = append(d.Buckets, Bucket{low, width, n})
		}
	}
}

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

// QuantileNs is the delay that a share q of the frames did not exceed, within 1/128; 0 without frames.
func (d Delay) QuantileNs(q float64) float64 {
	var total uint64
	for _, b := range d.Buckets {
		total += b.Frames
	}
	if total == 0 {
		return 0
	}
	rank := min(uint64(q*float64(total)), total-1)
	var passed uint64
	for _, b := range d.Buckets {
		if passed += b.Frames; passed > rank {
			return min(max(float64(b.LowNs)+float64(b.WidthNs-1)/2, float64(d.MinNs)), float64(d.MaxNs))
		}
	}
	return float64(d.MaxNs)
}

// Since is the distribution of what was counted after an earlier reading; least and greatest are those of all.
func (d Delay) Since(before Delay) Delay {
	d.Frames -= before.Frames
	d.SumNs -= before.SumNs
	all, was := d.Buckets, before.Buckets
	d.Buckets = nil
	for _, b := range all {
		if len(was) > 0 && was[0].LowNs == b.LowNs { // what was counted once stays counted
			b.Frames, was = b.Frames-was[0].Frames, was[1:]
		}
		if b.Frames > 0 {
			d.Buckets = append(d.Buckets, b)
		}
	}
	return d
}

// bucket is the least delay that is counted at place i, and how many ns are counted there.
func bucket(i int) (low, width uint64) {
	if i < 1<<subBits {
		return uint64(i), 1
	}
	shift := i>>subBits - 1
	return (1<<subBits | uint64(i)&(1<<subBits-1)) << shift, 1 << shift
}
