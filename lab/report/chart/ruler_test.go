package chart_test

import (
	"math"
	"testing"

	"github.com/gateweigh/gateweigh/lab/report/chart"
)

// TestRuler: on a Ruler, a logarithmic axis, equal ratios have equal lengths. Every mark and tick has a place between 0
// and 100 per cent, and ticks are in ascending order. at(x, y) is a point without an interval, nan an absent value.
func TestRuler(t *testing.T) {
	r := chart.NewRuler([]chart.Point{at(0, 0.5), at(0, 8)}, 1, nan)
	if half, double := r.Position(1)-r.Position(0.5), r.Position(2)-r.Position(1); math.Abs(half-double) > 0.05 {
		t.Errorf("from 0.5 to 1 are %g per cent, from 1 to 2 %g", half, double)
	}
	if r.Position(0.001) != r.Position(0.5) || r.Holds(0.001) || !r.Holds(8) {
		t.Error("a value beyond the end is not at the end")
	}
	for name, points := range map[string][]chart.Point{
		"between two round values": {at(0, 2105), at(0, 8367)}, "none": nil, "one": {at(0, 3)}, "equal": {at(0, 3), at(0, 3)},
		"near": {at(0, 1.001), at(0, 1.002)}, "far": {at(0, 1e-6), at(0, 1e6)},
		"no place on a logarithm": {at(0, 0), at(0, -1)}, "wild": {{Y: 2, Lo: 1e-9, Hi: 1e9}},
		"open": {{Y: 2, Lo: nan, Hi: math.Inf(1)}},
	} {
		r := chart.NewRuler(points, nan)
		ticks := r.Ticks()
		if len(ticks) == 0 || len(ticks) > 15 || len(ticks) < 2 && name == "between two round values" {
			t.Errorf("%s: %d ticks", name, len(ticks))
		}
		for i, tick := range ticks {
			if !(tick.Place >= 0 && tick.Place <= 100) ||
				i > 0 && (tick.Place <= ticks[i-1].Place || tick.Text == ticks[i-1].Text) {
				t.Errorf("%s: tick %+v after %+v", name, tick, ticks[max(i-1, 0)])
			}
		}
		for _, p := range points {
			if place := r.Position(p.Y); p.Y > 0 && !(place > 0 && place < 100) {
				t.Errorf("%s: %g is at %g", name, p.Y, place)
			}
		}
	}
}
