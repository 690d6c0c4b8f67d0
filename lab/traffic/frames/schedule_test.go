package frames

import (
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/gonum/stat/distuv"
	"pgregory.net/rapid"
)

// TestConstantGapsDoNotDrift: at a constant rate, frame k is due at exactly ⌊k·gap⌋ ns, by exact arithmetic (big.Rat).
func TestConstantGapsDoNotDrift(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rate := float64(rapid.Int64Range(1, 1e15).Draw(rt, "rate")) / 1e6
		s, sizes := Schedule{PacketsPerSecond: rate},
			named(t, rapid.SampledFrom([]string{"60", "imix", "caida"}).Draw(rt, "sizes"))
		gap := new(big.Rat).SetFrac64(1e9, 1)
		per, _ := exactDecimal(rate) // 12 digits
		if rapid.Bool().Draw(rt, "Mbit/s") {
			s = Schedule{Mbps: rate}
			gap.SetFrac64(sizes.periodBytes()*8000, int64(sizes.Period()))
		}
		gap.Quo(gap, per)
		p, err := NewPlan(Config{Sizes: sizes, Schedule: s})
		if err != nil {
			if f, _ := gap.Float64(); f >= minGapNs && f <= maxGapNs {
				rt.Fatalf("%+v: %v", s, err)
			}
			return
		}
		batch := make([]Frame, 1000)
		p.Fill(batch)
		p.Fill(batch)
		for i, f := range batch {
			due := new(big.Rat).Mul(gap, new(big.Rat).SetInt64(int64(1000+i)))
			if want := new(big.Int).Div(due.Num(), due.Denom()); want.Int64() != f.Due {
				rt.Fatalf("%+v: frame %d is due at %d ns, want %v", s, 1000+i, f.Due, want)
			}
		}
	})
}

// TestRateOfBitsAndFrames: frames of a mix at a rate in Mbit/s have that rate over whole periods of the mix.
func TestRateOfBitsAndFrames(t *testing.T) {
	for _, name := range append(MixNames(), "60", "9014") {
		sizes := named(t, name)
		n := 100 * int64(sizes.Period())
		cfg := Config{Sizes: sizes, Schedule: Schedule{Mbps: 123.456}, Count: n + 1}
		frames := allFrames(t, cfg)
		bits := 0.0
		for _, f := range frames[:n] {
			bits += 8 * float64(f.Bytes)
		}
		if took := float64(frames[n].Due); math.Abs(bits*1e3/took/123.456-1) > 1e-5 {
			t.Errorf("%s: %g Mbit/s", name, bits*1e3/took)
		}
	}
	// RFC 2544: 1,488,095 frames of 64 bytes with FCS fill a link of 1 Gbit/s.
	if r := (Config{Sizes: named(t, "60"), Schedule: Schedule{PacketsPerSecond: 1e9 / 672}}).rate(); math.Abs(
		r.WireMbps-1000) > 1e-6 || math.Abs(r.Mbps-1000*480/672.) > 1e-6 {
		t.Errorf("rates %+v", r)
	}
}

// TestExponential: exponential is -ln of its random number, within 2·10⁻⁷.
func TestExponential(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		random := rapid.Uint64().Draw(t, "random")
		got := float64(exponential(random)) / (1 << 32)
		if want := -math.Log(float64(random|1) / (1 << 64)); math.Abs(got-want) > 2e-7 {
			t.Errorf("-ln(%d·2⁻⁶⁴) = %v, want %v", random|1, got, want)
		}
	})
}

// TestPoissonGaps: gaps of a Poisson schedule are exponential and independent of each other (chi-square tests), with
// the right mean, and the same on any architecture.
func TestPoissonGaps(t *testing.T) {
	const n, bins = 200_000, 50
	frames := allFrames(t,
		Config{Sizes: named(t, "60"), Schedule: Schedule{PacketsPerSecond: 250_000, Poisson: true}, Count: n, GapSeed: 11})
	first := []int64{frames[0].Due, frames[1].Due, frames[2].Due}
	if want := []int64{1552, 7784, 8808}; first[0] != want[0] || first[1] != want[1] || first[2] != want[2] {
		// on any architecture
		t.Errorf("the seed's first frames are due at %v ns, want %v", first, want)
	}
	got, want, pairs, wantPairs := map[int]float64{}, map[int]float64{}, map[int]float64{}, map[int]float64{}
	before, last := int64(0), 0
	for i, f := range frames {
		u := 1 - math.Exp(-float64(f.Due-before)/4000) // even between 0 and 1
		bin := min(int(u*bins), bins-1)
		got[bin]++
		want[bin] = n / bins
		if i > 0 { // a gap says nothing of the next
			pairs[last/5*100+bin/5]++
			wantPairs[last/5*100+bin/5] = (n - 1) / 100.
		}
		before, last = f.Due, bin
	}
	if p := pValue(got, want); p < 0.001 {
		t.Errorf("gaps as far from exponential have a probability of %g", p)
	}
	if p := pValue(pairs, wantPairs); p < 0.001 {
		t.Errorf("successive gaps as far from independent have a probability of %g", p)
	}
	if z := (float64(before)/n/4000 - 1) * math.Sqrt(n); math.Abs(z) > distuv.UnitNormal.Quantile(0.9995) {
		t.Errorf("the mean gap is %g ns, %.1f standard deviations from 4000", float64(before)/n, z)
	}
}

// TestBadPlans: the error about a bad plan names every setting that is wrong.
func TestBadPlans(t *testing.T) {
	trace := &Trace{Name: "x.pcap", sizes: []uint16{60, 60}, times: []int64{0, 0}}
	single := &Trace{Name: "z.pcap", sizes: []uint16{60}, times: []int64{0}}
	backwards := &Trace{Name: "y.pcap", sizes: []uint16{60, 60}, times: []int64{0, 0}, outOfOrder: 2}
	rate := Schedule{PacketsPerSecond: 1000}
	for _, tt := range []struct {
		cfg  Config
		want []string
	}{
		{Config{Schedule: rate}, []string{"sizes"}},
		{Config{Schedule: rate, Streams: -1}, []string{"-1 streams"}},
		{Config{Schedule: rate, Streams: MaxStreams + 1}, []string{"65537 streams"}},
		{Config{Schedule: rate, Count: -1}, []string{"-1 frames"}},
		{Config{Schedule: rate, For: -time.Second}, []string{"-1s"}},
		{Config{Schedule: Schedule{AtOnce: true}}, []string{"count"}},
		{Config{Sizes: named(t, "60")}, []string{"exactly one"}},
		{Config{Sizes: named(t, "60"), Schedule: Schedule{PacketsPerSecond: 1, Mbps: 1}}, []string{"exactly one"}},
		{Config{Sizes: named(t, "60"), Schedule: Schedule{PacketsPerSecond: -1}}, []string{"-1 packets/s"}},
		{Config{Sizes: named(t, "60"), Schedule: Schedule{Mbps: math.NaN()}}, []string{"NaN Mbit/s"}},
		{Config{Sizes: named(t, "60"), Schedule: Schedule{PacketsPerSecond: 2e9}}, []string{"2e+09 packets/s", "1 ns"}},
		{Config{Sizes: named(t, "60"), Schedule: Schedule{Mbps: 1e-9}}, []string{"hour"}},
		{Config{Sizes: named(t, "60"), Schedule: Schedule{PacketsPerSecond: 1, Speed: 2}}, []string{"capture"}},
		{Config{Sizes: named(t, "60"), Schedule: Schedule{AtOnce: true, Poisson: true}, Count: 1}, []string{"Poisson"}},
		{Config{Sizes: named(t, "60"), Schedule: Schedule{PacketsPerSecond: 1.5e6}, LinkMbps: 1000},
			[]string{"666.667 ns", "672 ns", "1.4881e+06 packets/s"}},
		{Config{Sizes: named(t, "imix"), Schedule: Schedule{Mbps: 1000}, LinkMbps: 1000}, []string{"1000 Mbit/s", "at most"}},
		{Config{Sizes: named(t, "60"), Schedule: rate, LinkMbps: -1}, []string{"link"}},
		{Config{Sizes: trace.Sizes(), Schedule: Schedule{Gaps: trace}}, []string{"x.pcap", "no time"}},
		{Config{Sizes: trace.Sizes(), Schedule: Schedule{Gaps: single}, LinkMbps: 100}, []string{"z.pcap", "no time"}},
		{Config{Sizes: trace.Sizes(), Schedule: Schedule{Gaps: backwards}}, []string{"y.pcap", "packet 2"}},
		{Config{Sizes: trace.Sizes(), Schedule: Schedule{Gaps: trace, Speed: 1e6}}, []string{"1e+06"}},
	} {
		_, err := NewPlan(tt.cfg)
		for _, w := range tt.want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%+v: %v, want an error that says %q", tt.cfg, err, w)
			}
		}
	}
	line := Config{Sizes: named(t, "60"), Schedule: Schedule{PacketsPerSecond: 1488095}, LinkMbps: 1000}
	if _, err := NewPlan(line); err != nil {
		t.Errorf("a full link: %v", err)
	}
}
