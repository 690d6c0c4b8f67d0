package frames

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"
	"pgregory.net/rapid"
)

// sizeCounts returns how often each size occurs.
func sizeCounts(list []Frame) map[int]float64 {
	n := map[int]float64{}
	for _, f := range list {
		n[int(f.Bytes)]++
	}
	return n
}

// pValue returns the probability that chance alone takes counts at least as far from the expected ones (want) as got is
// (chi-square test).
func pValue(got, want map[int]float64) float64 {
	sum := 0.0
	for bytes, n := range want {
		sum += (got[bytes] - n) * (got[bytes] - n) / n
	}
	return distuv.ChiSquared{K: float64(len(want) - 1)}.Survival(sum)
}

// TestEachPeriodHasItsShares: each period of a mix has exactly the frames of its weights. A period is the shortest
// number of frames with whole shares.
func TestEachPeriodHasItsShares(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		weights := map[int]int{}
		var list []Weight
		for range rapid.IntRange(1, 8).Draw(rt, "sizes") {
			bytes, w := rapid.IntRange(MinBytes, MaxBytes).Draw(rt, "bytes"), rapid.IntRange(0, 20).Draw(rt, "weight")
			weights[bytes] += w
			list = append(list, Weight{bytes, float64(w) / 8}) // decimals
		}
		s, err := Histogram("x", list)
		if err != nil {
			for _, w := range weights {
				if w > 0 {
					rt.Fatalf("%v: %v", list, err)
				}
			}
			return
		}
		period := s.Period()
		frames := allFrames(t,
			Config{Sizes: s, Schedule: Schedule{AtOnce: true}, Count: int64(3 * period), Seed: rapid.Uint64().Draw(rt, "seed")})
		total := 0
		for _, w := range weights {
			total += w
		}
		for one := range slices.Chunk(frames, period) {
			for bytes, n := range sizeCounts(one) {
				if int(n)*total != weights[bytes]*period {
					rt.Errorf("a period of %d has %v frames of %d bytes, whose weight is %d of %d", period, n, bytes, weights[bytes],
						total)
				}
			}
		}
	})
}

// TestPublishedMixes: the mixes have the means and percentiles that their sources publish.
func TestPublishedMixes(t *testing.T) {
	ip := func(s Sizes, share float64) int { // length of the IP packet at a quantile (share) of the mix
		rank := 0.0
		for _, w := range s.Shares() {
			if rank += w.Weight / float64(s.Period()); rank >= share {
				return max(w.Bytes-EthernetBytes, 0)
			}
		}
		return 0
	}
	caida := named(t, "caida")
	var got []int
	for _, share := range []float64{0.05, 0.25, 0.5, 0.75, 0.95} {
		got = append(got, ip(caida, share))
	}
	if fmt.Sprint(got) != "[46 46 93 576 1500]" { // 40 bytes are padded to 46
		t.Errorf("percentiles of caida: %v", got)
	}
	padded := 6 * 200.0 / 500
	if mean := caida.MeanBytes() - EthernetBytes - padded; math.Abs(mean-413) > 0.5 {
		t.Errorf("the mean of caida is %v, want 413", mean)
	}
	r := Config{Sizes: named(t, "study5"), Schedule: Schedule{Mbps: 920}}.rate()
	if math.Abs(r.PacketsPerSecond/180_000-1) > 0.01 {
		t.Errorf("study5 at 920 Mbit/s: %v packets/s, want about 180,000", r.PacketsPerSecond)
	}
	if imix := named(t, "imix"); imix.Period() != 12 || math.Abs(imix.MeanBytes()-(7*60+4*590+1514)/12.) > 1e-9 {
		t.Errorf("imix: %v", imix.Shares())
	}
}

// TestSizesOfPartOfAPlan compares the frames that a plan has sent, up to the middle of a period, with its mix.
func TestSizesOfPartOfAPlan(t *testing.T) {
	var wide []Weight
	for bytes := MinBytes; bytes <= 1514; bytes += 7 {
		wide = append(wide, Weight{bytes, 1e6 + float64(bytes*bytes)/3})
	}
	large, err := Histogram("large", wide) // its exact period would be too long
	if err != nil || large.Period() != maxPeriod {
		t.Fatalf("a period of %d frames, %v", large.Period(), err)
	}
	sum := 0.0
	for _, w := range wide {
		sum += w.Weight
	}
	for i, w := range large.Shares() {
		if off := math.Abs(w.Weight/maxPeriod - wide[i].Weight/sum); off > 1.0/maxPeriod {
			t.Errorf("the share of %d bytes is wrong by %g", w.Bytes, off)
		}
	}
	for _, s := range []Sizes{named(t, "imix"), named(t, "study5"), named(t, "caida"), large} {
		const n = 100_003
		want := map[int]float64{}
		for _, w := range s.Shares() {
			want[w.Bytes] = w.Weight * n / float64(s.Period())
		}
		if p := pValue(sizeCounts(allFrames(t, Config{Sizes: s, Schedule: Schedule{AtOnce: true}, Count: n, Seed: 3})),
			want); p < 0.001 {
			t.Errorf("%s: sizes as far from what was asked have a probability of %g", s.Name, p)
		}
	}
}

// TestShuffleHasNoOrder: after a shuffle, a frame's size says nothing about the next one's.
func TestShuffleHasNoOrder(t *testing.T) {
	frames := allFrames(t, Config{Sizes: named(t, "imix"), Schedule: Schedule{AtOnce: true}, Count: 120_000, Seed: 5})
	share := map[int]float64{60: 7, 590: 4, 1514: 1}
	got, want := map[int]float64{}, map[int]float64{}
	for period := range slices.Chunk(frames, 12) {
		for i := range 11 {
			got[int(period[i].Bytes)<<16|int(period[i+1].Bytes)]++
		}
	}
	for a, x := range share {
		for b, y := range share {
			if a == b {
				y--
			}
			if y > 0 {
				want[a<<16|b] = x / 12 * y / 11 * 110_000
			}
		}
	}
	if p := pValue(got, want); p < 0.001 || len(got) != len(want) {
		t.Errorf("pairs as far from chance have a probability of %g: %v", p, got)
	}
}

// TestBadSizes: unknown mixes, sizes and weights are errors. want has parts of the error.
func TestBadSizes(t *testing.T) {
	for _, tt := range []struct {
		name string
		make func() (Sizes, error)
		want []string
	}{
		{"a name", func() (Sizes, error) { return Named("imx") }, []string{"imx", "imix", "study5", "caida"}},
		{"too short", func() (Sizes, error) { return Named("59") }, []string{"59", "60"}},
		{"too long", func() (Sizes, error) { return Named("9015") }, []string{"9015", "9014"}},
		{"nothing", func() (Sizes, error) { return Histogram("h", nil) }, []string{"h", "weight"}},
		{"no weight", func() (Sizes, error) { return Histogram("h", []Weight{{60, 0}}) }, []string{"weight"}},
		{"a negative weight", func() (Sizes, error) { return Histogram("h", []Weight{{60, -1}}) }, []string{"60", "-1"}},
		{"not a number", func() (Sizes, error) { return Histogram("h", []Weight{{60, math.NaN()}}) }, []string{"NaN"}},
		{"endless", func() (Sizes, error) { return Histogram("h", []Weight{{60, math.Inf(1)}}) }, []string{"Inf"}},
		{"an empty genome", func() (Sizes, error) { return OfGenome("", nil) }, []string{"empty"}},
		{"an unknown letter", func() (Sizes, error) { return OfGenome("aaz", nil) }, []string{"letter 3", "z"}},
		{"a capital without a size", func() (Sizes, error) { return OfGenome("aB", nil) }, []string{"letter 2", "B"}},
		{"a custom size out of range", func() (Sizes, error) { return OfGenome("A", map[string]int{"A": 63}) },
			[]string{"63"}},
	} {
		_, err := tt.make()
		for _, w := range tt.want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v, want an error that says %q", tt.name, err, w)
			}
		}
	}
}

// TestGenome: a sequence of sizes is written as a genome (RFC 6985, one letter a size) and read again.
func TestGenome(t *testing.T) {
	frames := allFrames(t, Config{Sizes: named(t, "imix"), Schedule: Schedule{AtOnce: true}, Count: 36, Seed: 1})
	text, custom, err := Genome(frames)
	// The same on any architecture: this is what the seed stands for.
	const want = "gaAaaaaAaAAaaaAAgaaaAaaAgAAaaaaaAaAa"
	if err != nil || text != want || custom["A"] != 594 {
		t.Errorf("genome %s, %v, %v; want %s", text, custom, err, want)
	}
	again, err := OfGenome(text, custom)
	if err != nil {
		t.Fatal(err)
	}
	if got := allFrames(t, Config{Sizes: again, Schedule: Schedule{AtOnce: true}, Count: 36}); !slices.Equal(got, frames) {
		t.Errorf("a genome's sequence is %v, want %v", got, frames)
	}
	many := make([]Frame, 27)
	for i := range many {
		many[i].Bytes = uint16(200 + i)
	}
	if _, _, err := Genome(many); err == nil {
		t.Error("27 sizes without a letter have a genome")
	}
}
