package chart

import (
	"math"
	"slices"
	"strconv"
)

// Kind is the kind of an axis.
type Kind int

const (
	FromZero    Kind = iota // linear from zero, so that lengths are in proportion to values
	Signed                  // linear, around zero
	Logarithmic             // for ratios: half and double are equally far from 1
)

// scale converts values to pixels.
type scale struct {
	lo, hi   float64 // values
	from, to float64 // pixels
	kind     Kind
	ticks    []float64
}

// emptyScale returns a scale without values.
func emptyScale(from, to float64, k Kind) scale {
	return scale{lo: math.Inf(1), hi: math.Inf(-1), from: from, to: to, kind: k}
}

func (s scale) pixel(v float64) float64 {
	lo, hi := s.lo, s.hi
	if s.kind == Logarithmic {
		v, lo, hi = math.Log(v), math.Log(lo), math.Log(hi)
	}
	if hi == lo {
		return (s.from + s.to) / 2
	}
	return s.from + (v-lo)/(hi-lo)*(s.to-s.from)
}

// within converts a value that is first moved into the scale's range.
func (s scale) within(v float64) float64 { return s.pixel(math.Min(math.Max(v, s.lo), s.hi)) }

// linearTicks returns about n round values that cover lo to hi.
func linearTicks(lo, hi float64, n int) []float64 {
	if !(hi > lo) {
		return []float64{lo}
	}
	raw := (hi - lo) / float64(n)
	unit := math.Pow(10, math.Floor(math.Log10(raw)))
	step := 10 * unit
	for _, m := range []float64{1, 2, 2.5, 5} {
		if raw <= m*unit*1.0001 {
			step = m * unit
			break
		}
	}
	var ticks []float64
	for first := math.Floor(lo/step + 1e-9); len(ticks) < 100; {
		v := (first + float64(len(ticks))) * step
		ticks = append(ticks, v)
		if v >= hi-step*1e-9 {
			break
		}
	}
	return ticks
}

// logTicks returns round values from lo or below to hi or above, both above zero. Over a short range they are evenly
// spaced. Over a longer one they are 1, 2 and 5 times powers of ten, and over a very long one only some of the powers.
func logTicks(lo, hi float64) []float64 {
	if hi/lo < 4 {
		// A short range looks like a linear one, but must not begin at zero.
		return slices.DeleteFunc(linearTicks(lo, hi, 6), func(v float64) bool { return v <= 0 })
	}
	steps, stride := []float64{1, 2, 5}, 1
	first, last := int(math.Floor(math.Log10(lo))), int(math.Ceil(math.Log10(hi)))
	if last-first > 3 {
		steps, stride = []float64{1}, 1+(last-first)/8
	}
	var ticks []float64
	for decade := first; decade <= last+stride; decade += stride {
		for _, m := range steps {
			v := m * math.Pow(10, float64(decade))
			if v <= lo {
				ticks = ticks[:0] // a later tick is nearer
			}
			ticks = append(ticks, v)
			if v >= hi {
				return ticks
			}
		}
	}
	return ticks
}

// include widens the range to the finite values. On a logarithmic scale they must be above zero.
func (s *scale) include(values ...float64) {
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) || s.kind == Logarithmic && v <= 0 {
			continue
		}
		s.lo, s.hi = math.Min(s.lo, v), math.Max(s.hi, v)
	}
}

// includePoint widens the range to a mean and its interval. It cuts the interval at four times and a quarter of the
// mean, because one very wide interval must not flatten the chart. On a scale around zero, it cuts the interval at four
// times the larger of the mean and the range so far.
func (s *scale) includePoint(p Point) {
	if s.kind == Signed {
		limit := 4 * math.Max(math.Abs(p.Y), math.Max(s.hi, -s.lo))
		s.include(p.Y, math.Max(p.Lo, -limit), math.Min(p.Hi, limit))
		return
	}
	s.include(p.Y, math.Max(p.Lo, p.Y/4), math.Min(p.Hi, p.Y*4))
}

// setTicks chooses about n ticks for the values of the scale.
func (s *scale) setTicks(n int) {
	if s.lo > s.hi {
		s.lo, s.hi = 0.5, 2
	}
	switch s.kind {
	case Logarithmic:
		s.ticks = logTicks(s.lo, s.hi)
	case Signed:
		s.ticks = linearTicks(math.Min(s.lo, 0), math.Max(s.hi, 1e-3), n)
	default:
		s.lo, s.ticks = 0, linearTicks(0, math.Max(s.hi, 1e-3), n)
	}
	s.lo, s.hi = math.Min(s.lo, s.ticks[0]), math.Max(s.hi, s.ticks[len(s.ticks)-1])
}

// tickText formats a tick without rounding errors of binary fractions.
func tickText(v float64) string {
	return strconv.FormatFloat(v, 'g', 6, 64)
}

// Ruler is a logarithmic axis for marks that a page places itself, in per cent of the axis's length. Such a picture
// fits any width and keeps the size of its type, whereas an SVG scales both.
type Ruler struct {
	scale scale
}

// RulerTick is a labelled place on a ruler.
type RulerTick struct {
	Place float64 // per cent from the left
	Text  string
}

// rulerMargin is the free part at either end of a ruler, per cent, so that marks are inside the page.
const rulerMargin = 3

// NewRuler makes an axis for all points with their intervals, and for the other values that are known. It cuts the
// interval of a single point at four times and a quarter of its mean.
func NewRuler(points []Point, others ...float64) Ruler {
	s := emptyScale(rulerMargin, 100-rulerMargin, Logarithmic)
	s.include(others...)
	for _, p := range points {
		s.includePoint(p)
	}
	if s.lo > s.hi {
		s.lo, s.hi = 1, 1
	}
	if s.hi < 1.5*s.lo { // otherwise the ticks' digits would be the same
		s.lo, s.hi = s.lo/1.25, s.hi*1.25
	}
	return Ruler{s}
}

// Position returns the place of a value, in per cent from the left. Values beyond an end are placed at that end.
func (r Ruler) Position(v float64) float64 { return hundredths(r.scale.within(v)) }

// Holds reports whether a value is within the ruler's range.
func (r Ruler) Holds(v float64) bool { return v >= r.scale.lo && v <= r.scale.hi }

// Ticks returns round values on the ruler.
func (r Ruler) Ticks() []RulerTick {
	var out []RulerTick
	margin := math.Pow(r.scale.hi/r.scale.lo, rulerMargin/(100.0-2*rulerMargin))
	lo, hi := r.scale.lo/margin, r.scale.hi*margin
	add := func(values []float64) {
		for _, v := range values {
			if v >= lo && v <= hi {
				out = append(out, RulerTick{hundredths(r.scale.pixel(v)), tickText(v)})
			}
		}
	}
	if add(slices.Compact(logTicks(lo, hi))); len(out) < 2 { // one tick alone shows no scale
		out = nil
		add(linearTicks(lo, hi, 6))
	}
	return out
}

func hundredths(v float64) float64 { return math.Round(v*100) / 100 }
