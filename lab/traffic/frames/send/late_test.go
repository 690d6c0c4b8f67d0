package send

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestLateQuantiles compares quantiles of the steps with those of the sorted values.
func TestLateQuantiles(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var l Late
	var all []uint64
	for range 10_000 {
		v := r.Uint64() >> (20 + r.IntN(44))
		all = append(all, v)
		l.add(v)
	}
	slices.Sort(all)
	for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.999, 1} {
		want := all[min(int(q*10_000), 10_000-1)]
		got := uint64(l.Quantile(q))
		if got < want || got > want+want/8 {
			t.Errorf("quantile %g is %d ns, want %d to an eighth more", q, got, want)
		}
	}
	if n := lateScale.Size(64); n != len(l.steps) {
		t.Errorf("%d steps, want %d", len(l.steps), n)
	}
	if l.Quantile(1) != l.Max || l.Mean() != l.Sum/time.Duration(l.Frames) {
		t.Errorf("quantile 1 is %s, the maximum %s; mean %s of %s", l.Quantile(1), l.Max, l.Mean(), l.Sum)
	}
	if (&Late{}).Quantile(0.5) != 0 || (&Late{}).Mean() != 0 {
		t.Error("without frames there is a lateness")
	}
}
