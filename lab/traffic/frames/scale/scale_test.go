package scale

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestBounds: buckets follow each other without gaps, each number is in the bucket with its range, and no bucket is
// wider than documented.
func TestBounds(t *testing.T) {
	for _, s := range []Scale{0, 3, 6} {
		next := uint64(0)
		for place := range s.Size(64) {
			least, greatest := s.Range(place)
			if least != next || greatest < least || s.Place(least) != place || s.Place(greatest) != place {
				t.Fatalf("scale %d: place %d is from %d to %d, want it from %d on; these numbers are at %d and %d", s, place, least,
					greatest, next, s.Place(least), s.Place(greatest))
			}
			if width := greatest - least + 1; width > 1 && width > least>>s {
				t.Fatalf("scale %d: place %d, from %d on, has %d numbers", s, place, least, width)
			}
			next = greatest + 1
		}
		if next != 0 { // 2⁶⁴
			t.Errorf("scale %d: the last place ends at %d", s, next-1)
		}
	}
}

// TestQuantile compares quantiles of buckets with those of sorted numbers.
func TestQuantile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Scale(rapid.IntRange(0, 8).Draw(t, "scale"))
		numbers := rapid.SliceOfN(rapid.Uint64Range(0, 1<<rapid.IntRange(1, 63).Draw(t, "bits")-1), 1, 100).Draw(t, "numbers")
		counts := make([]uint64, s.Size(64))
		for _, n := range numbers {
			counts[s.Place(n)]++
		}
		slices.Sort(numbers)
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		want := numbers[min(int(q*float64(len(numbers))), len(numbers)-1)]
		if least, greatest, some := s.Quantile(counts, q); !some || want < least || want > greatest {
			t.Errorf("quantile %g is from %d to %d, want %d in it", q, least, greatest, want)
		}
	})
	if _, _, some := Scale(3).Quantile(make([]uint64, 16), 0.5); some {
		t.Error("there is a quantile of nothing")
	}
}
