package frames

import (
	"slices"
	"testing"
)

// The tests of this file check when the frames of a plan are due if they come in bursts. All frames of a burst are due
// together, at the time of the first. Scattered bursts are due at a random place of their interval. named gives a mix
// of sizes by its name, and allFrames reads a whole plan.

// TestBurstsKeepTheRate: a burst of eight frames is due every eight gaps, and its frames go to three streams in turn.
func TestBurstsKeepTheRate(t *testing.T) {
	sizes := named(t, "imix")
	const burst, gap = 8, 1000 // ns between frames
	cfg := Config{Sizes: sizes, Schedule: Schedule{PacketsPerSecond: 1e9 / gap}, Burst: burst, Streams: 3, Count: 1000}
	for index, f := range allFrames(t, cfg) {
		if want := int64(index/burst) * burst * gap; f.Due != want || int(f.Stream) != index%3 {
			t.Fatalf("frame %d of stream %d is due at %d ns, want %d of stream %d", index, f.Stream, f.Due, want, index%3)
		}
	}
}

// TestScatteredBurstsStayInTheirIntervals: GapSeed sets the places of scattered bursts in their intervals, and does not
// change the frames' sizes.
func TestScatteredBurstsStayInTheirIntervals(t *testing.T) {
	sizes := named(t, "imix")
	const burst, gap, n = 8, 1000, 80_000
	cfg := Config{Sizes: sizes, Schedule: Schedule{PacketsPerSecond: 1e9 / gap}, Burst: burst, Scatter: true, Seed: 5,
		GapSeed: 1, Count: n}
	one := allFrames(t, cfg)
	cfg.GapSeed = 2
	other := allFrames(t, cfg)
	var sum, same int
	for index, f := range one {
		place := f.Due - int64(index/burst)*burst*gap
		if place < 0 || place >= burst*gap || f.Due != one[index/burst*burst].Due {
			t.Fatalf("frame %d is due %d ns into its interval of %d, and the burst's first at %d", index, place, burst*gap,
				one[index/burst*burst].Due)
		}
		if f.Bytes != other[index].Bytes {
			t.Fatalf("frame %d has %d bytes, and %d with another seed of gaps", index, f.Bytes, other[index].Bytes)
		}
		sum += int(place)
		if f.Due == other[index].Due {
			same++
		}
	}
	if mean := float64(sum) / n / (burst * gap); mean < 0.48 || mean > 0.52 {
		t.Errorf("bursts are due at %.3f of their intervals in the mean, want the middle", mean)
	}
	if same > n/100 {
		t.Errorf("%d of %d frames are due at the same time with another seed", same, n)
	}
	if !slices.IsSortedFunc(one, func(a, b Frame) int { return int(a.Due - b.Due) }) {
		t.Error("bursts are out of order")
	}
}

// TestOnlyConstantRatesScatter: plans with random gaps, or whose frames are due at once, cannot be scattered.
func TestOnlyConstantRatesScatter(t *testing.T) {
	sizes := named(t, "60")
	for _, s := range []Schedule{{PacketsPerSecond: 1000, Poisson: true}, {AtOnce: true}} {
		if _, err := NewPlan(Config{Sizes: sizes, Schedule: s, Scatter: true}); err == nil {
			t.Errorf("%+v was scattered", s)
		}
	}
}
