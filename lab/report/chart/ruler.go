package chart

import (
	"math"
	"slices"
)

// Ruler is a logarithmic axis for marks that a page lays out itself, in per cent of
// the axis's length. Such a picture fits any width while its type keeps its size;
// an SVG shrinks both.
type Ruler struct {
	scale scale
}

// RulerTick is a labelled place on a ruler.
type RulerTick struct {
	At   float64 // per cent from the left
	Text string
}

// rulerMargin is the part of a ruler, in per cent, that stays free at either end, so
// that marks lie inside the page.
const rulerMargin = 3

// NewRuler makes an axis that holds all points with their intervals, and those of the
// other values that are known. One point's interval is cut at four times and a quarter
// of its mean.
func NewRuler(points []Point, others ...float64) Ruler {
	s := emptyScale(rulerMargin, 100-rulerMargin, logarithmic)
	s.include(others...)
	for _, p := range points {
		s.includePoint(p)
	}
	if s.lo > s.hi {
		s.lo, s.hi = 1, 1
	}
	if s.hi < 1.5*s.lo { // else the ticks' digits do not tell them apart
		s.lo, s.hi = s.lo/1.25, s.hi*1.25
	}
	return Ruler{s}
}

// At is the place of a value in per cent from the left. Values beyond an end are at it.
func (r Ruler) At(v float64) float64 { return hundredths(r.scale.within(v)) }

// Holds reports whether a value lies on the ruler.
func (r Ruler) Holds(v float64) bool { return v >= r.scale.lo && v <= r.scale.hi }

// Ticks are round values on the ruler.
func (r Ruler) Ticks() []RulerTick {
	var out []RulerTick
	margin := math.Pow(r.scale.hi/r.scale.lo, rulerMargin/(100.0-2*rulerMargin))
	lo, hi := r.scale.lo/margin, r.scale.hi*margin
	for _, v := range slices.Compact(logTicks(lo, hi)) {
		if v >= lo && v <= hi {
			out = append(out, RulerTick{hundredths(r.scale.at(v)), tickText(v)})
		}
	}
	return out
}

func hundredths(v float64) float64 { return math.Round(v*100) / 100 }
