package bench

import (
	"math"
	"testing"

	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/burn"
	"github.com/gateweigh/gateweigh/lab/meter"
)

// TestWaitedForOthers: threads that wait for each other, or for what slows their CPU, do not wait for others.
func TestWaitedForOthers(t *testing.T) {
	const second = int64(1e9)
	for name, c := range map[string]struct {
		idle   int64 // ticks of a second on CPU 1
		used   float64
		burned float64
		wait   float64
		want   float64
	}{
		"alone":                     {60, 0.4, 0, 0.3, 0},
		"many threads of its own":   {30, 0.65, 0, 19, 0},
		"a full CPU of its own":     {0, 0.97, 0, 9, 0},
		"another program":           {0, 0.2, 0, 0.75, 0.6},
		"many threads, and another": {20, 0.4, 0, 2, 1},
		"slowed":                    {0, 0.25, 0.7, 3, 0},
		"slowed, and another":       {0, 0.1, 0.5, 1, 0.4},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Bench{Router: &backend.Host{CPUs: []int{1}}}
			sample := func(at, unused int64) meter.Sample {
				return meter.Sample{MonotonicNs: at, Unused: map[int]int64{0: 0, 1: unused}}
			}
			a, b := Snapshot{Router: sample(second, 500)}, Snapshot{Router: sample(2*second, 500+c.idle)}
			if c.burned > 0 {
				a.Slow = []burn.CPUTime{{CPU: 1, AtNs: second}}
				b.Slow = []burn.CPUTime{{CPU: 1, AtNs: 2 * second, BurnedNs: int64(c.burned * 1e9)}}
			}
			if got := s.WaitedForOthers(a, b, int64(c.wait*1e9), int64(c.used*1e9)); math.Abs(got-c.want) > 1e-9 {
				t.Errorf("%g, want %g", got, c.want)
			}
		})
	}
}
