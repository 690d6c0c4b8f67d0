package bench

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gateweigh/gateweigh/lab/meter"
)

// TestCourseBySteps: a step has the rate between the readings around its middle, and the mean of a longer time where a
// reading was left out. A reading just after the window's end adds no step.
func TestCourseBySteps(t *testing.T) {
	ms := func(at int64) int64 { return 5e9 + at*1e6 }
	mbps, pct := bySteps([]meter.Moment{
		{Ns: ms(0), CPUNs: 7e6, TxBytes: 1000}, {Ns: ms(102), CPUNs: 7e6 + 1.02e6, TxBytes: 1000 + 1.275e6},
		{Ns: ms(301), CPUNs: 7e6 + 5e6, TxBytes: 1000 + 1.275e6}, {Ns: ms(399), CPUNs: 7e6 + 5e6 + 0.98e6, TxBytes: 2e8},
		{Ns: ms(400), CPUNs: 9e9, TxBytes: 9e9},
	}, 4)
	for i := range mbps {
		mbps[i], pct[i] = threeDigits(mbps[i]), threeDigits(pct[i])
	}
	if diff := cmp.Diff([]float64{100, 0, 0, 16200}, mbps); diff != "" {
		t.Errorf("rate (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]float64{1, 2, 2, 1}, pct); diff != "" {
		t.Errorf("CPU (-want +got):\n%s", diff)
	}
	if a, b := bySteps(nil, 4); len(a)+len(b) != 0 {
		t.Errorf("steps without readings: %v, %v", a, b)
	}
	if got := sumOf(sumOf(nil, []float64{1, 2, 3}), []float64{10, 20}); !cmp.Equal(got, []float64{11, 22}) {
		t.Errorf("two routers together: %v", got)
	}
}

func TestThreeDigits(t *testing.T) {
	for v, want := range map[float64]float64{0: 0, 0.0012345: 0.00123, 98.76: 98.8, 12345: 12300, -1.999: -2, 0.3: 0.3} {
		if got := threeDigits(v); got != want {
			t.Errorf("%g is %g, want %g", v, got, want)
		}
	}
	if CourseStep != 100*time.Millisecond {
		t.Errorf("steps of %s", CourseStep)
	}
}
