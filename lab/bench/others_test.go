package bench

import (
	"math"
	"testing"

	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/burn"
	"github.com/gateweigh/gateweigh/lab/meter"
)

// TestWaitedForOthers: the wait of a router's threads counts only as far as other programs use the router's CPU. It
// does not count when the threads wait for each other, or for the lab's program that slows the CPU down. Otherwise a
// trial of a device with many threads would be rejected although nothing disturbed it.
//
// Each case is one second of a router with one CPU.
func TestWaitedForOthers(t *testing.T) {
	const second = int64(1e9)
	for name, c := range map[string]struct {
		idle   int64   // idle time of the CPU, ticks of 10 ms
		used   float64 // CPU time of the router, seconds
		burned float64 // CPU time of the program that slows the CPU down, seconds
		wait   float64 // run-queue wait of the router's threads, all together, seconds
		want   float64 // the part of the wait that other programs caused
	}{
		"router alone":                     {60, 0.4, 0, 0.3, 0},
		"many threads of the router":       {30, 0.65, 0, 19, 0},
		"router fills the CPU":             {0, 0.97, 0, 9, 0},
		"another program":                  {0, 0.2, 0, 0.75, 0.6},
		"many threads and another program": {20, 0.4, 0, 2, 1},
		"slowed CPU":                       {0, 0.25, 0.7, 3, 0},
		"slowed CPU and another program":   {0, 0.1, 0.5, 1, 0.4},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Bench{Router: &backend.Host{CPUs: []int{1}}}
			snapshot := func(ns, unused int64) Snapshot {
				router := meter.Sample{MonotonicNs: ns, Unused: map[int]int64{0: 0, 1: unused}}
				return Snapshot{Router: router, Routers: []meter.Sample{router}}
			}
			a, b := snapshot(second, 500), snapshot(2*second, 500+c.idle)
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
