package report

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Charts are drawn on a small canvas with large type: a phone shows them at
// three quarters of their size, and the type must survive that.
const (
	canvasWidth  = 480
	plotLeft     = 58
	plotRight    = 466
	plotHeight   = 220
	legendLine   = 20
	characterPx  = 8   // mean advance of the type at its largest, on phones
	tickPx       = 7.5 // mean advance of a digit at its largest
	markerRadius = 4.5
)

// canvas collects SVG elements. All colours are CSS classes of report.css, so
// that a chart follows the reader's light or dark scheme.
type canvas struct {
	strings.Builder
}

// px prints a coordinate with a tenth of a pixel.
func px(v float64) string {
	return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
}

func (c *canvas) add(format string, args ...any) {
	fmt.Fprintf(c, format+"\n", args...)
}

func (c *canvas) line(class string, x1, y1, x2, y2 float64) {
	c.add(`<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`, class, px(x1), px(y1), px(x2), px(y2))
}

// text writes a label; anchor is start, middle or end.
func (c *canvas) text(class, anchor string, x, y float64, s string) {
	c.add(`<text class="%s" text-anchor="%s" x="%s" y="%s">%s</text>`, class, anchor, px(x), px(y), html.EscapeString(s))
}

// dots draws many small points as one path: a stroke of no length with round
// ends is a dot, at a tenth of the size of a circle element each.
func (c *canvas) dots(class string, points [][2]float64) {
	if len(points) == 0 {
		return
	}
	var d strings.Builder
	for _, p := range points {
		d.WriteString("M" + px(p[0]) + " " + px(p[1]) + "h0")
	}
	c.add(`<path class="raw %s" d="%s"/>`, class, d.String())
}

// markerPath is the outline of marker number n around a point. Series differ
// by shape as well as by colour.
func markerPath(n int, x, y float64) string {
	r := markerRadius
	at := func(points ...float64) string {
		var d strings.Builder
		for i := 0; i < len(points); i += 2 {
			d.WriteString(string("ML"[min(i, 1)]) + px(x+points[i]*r) + " " + px(y+points[i+1]*r))
		}
		return d.String() + "Z"
	}
	switch n % 6 {
	case 0: // square
		return at(-0.9, -0.9, 0.9, -0.9, 0.9, 0.9, -0.9, 0.9)
	case 1: // triangle
		return at(0, -1.2, 1.1, 0.9, -1.1, 0.9)
	case 2: // diamond
		return at(0, -1.3, 1.1, 0, 0, 1.3, -1.1, 0)
	case 3: // triangle on its tip
		return at(0, 1.2, 1.1, -0.9, -1.1, -0.9)
	case 4: // hexagon
		return at(-0.6, -1.1, 0.6, -1.1, 1.2, 0, 0.6, 1.1, -0.6, 1.1, -1.2, 0)
	}
	return at(-0.4, -1.2, 0.4, -1.2, 0.4, -0.4, 1.2, -0.4, 1.2, 0.4, 0.4, 0.4, 0.4, 1.2, -0.4, 1.2, -0.4, 0.4, -1.2, 0.4, -1.2, -0.4, -0.4, -0.4)
}

// marker draws a mean. The clean router is a circle, drawn hollow.
func (c *canvas) marker(style int, x, y float64) {
	if style == cleanStyle {
		c.add(`<circle class="mark clean" cx="%s" cy="%s" r="%s"/>`, px(x), px(y), px(markerRadius-0.5))
		return
	}
	c.add(`<path class="mark %s" d="%s"/>`, styleClass(style), markerPath(style, x, y))
}

// cleanStyle is the style of the clean router; devices count from 0.
const cleanStyle = -1

// colours in report.css
const colours = 6

func styleClass(style int) string {
	if style == cleanStyle {
		return "clean"
	}
	return "s" + strconv.Itoa(style%colours)
}

// legendEntry is one line of a legend.
type legendEntry struct {
	style int
	name  string
}

// legend writes entries from the top left and returns the height it took.
func (c *canvas) legend(entries []legendEntry) float64 {
	x, y := 12.0, 14.0
	for _, e := range entries {
		width := 26 + characterPx*float64(len([]rune(e.name)))
		if x > 12 && x+width > canvasWidth-6 {
			x, y = 12, y+legendLine
		}
		c.marker(e.style, x, y-4)
		c.text("label", "start", x+11, y, e.name)
		x += width
	}
	return y + 10
}

// document wraps the elements drawn; title and description are for those who
// do not see the chart.
func (c *canvas) document(id, title, desc string, height float64) string {
	return fmt.Sprintf(`<svg viewBox="0 0 %d %s" role="img" aria-labelledby="%s-t %s-d">
<title id="%s-t">%s</title>
<desc id="%s-d">%s</desc>
%s</svg>`, canvasWidth, px(height), id, id, id, html.EscapeString(title), id, html.EscapeString(desc), c.String())
}

// scale maps values to pixels.
type scale struct {
	lo, hi     float64 // values
	from, to   float64 // pixels
	log        bool
	ticks      []float64
	formatTick func(float64) string
}

func (s scale) at(v float64) float64 {
	lo, hi := s.lo, s.hi
	if s.log {
		v, lo, hi = math.Log(v), math.Log(lo), math.Log(hi)
	}
	if hi == lo {
		return (s.from + s.to) / 2
	}
	return s.from + (v-lo)/(hi-lo)*(s.to-s.from)
}

// linearTicks are about n round values that cover lo to hi.
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
	first := math.Floor(lo/step + 1e-9)
	for i := 0.0; i < 100; i++ {
		v := (first + i) * step
		ticks = append(ticks, v)
		if v >= hi-step*1e-9 {
			break
		}
	}
	return ticks
}

// logTicks are round values from at or below lo to at or above hi, both above
// zero: evenly spaced ones over a short range, else 1, 2 and 5 times powers of
// ten, and only every so many powers over a very long one.
func logTicks(lo, hi float64) []float64 {
	if hi/lo < 4 {
		// A short range is as good as linear, but must not begin at zero.
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
				ticks = ticks[:0] // a later one is nearer
			}
			ticks = append(ticks, v)
			if v >= hi {
				return ticks
			}
		}
	}
	return ticks
}

// include widens a range of values by those that are finite, and above zero
// when the scale is logarithmic.
func (s *scale) include(values ...float64) {
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) || s.log && v <= 0 {
			continue
		}
		s.lo, s.hi = math.Min(s.lo, v), math.Max(s.hi, v)
	}
}

// includePoint takes in a mean and its interval, which is cut at four times and
// a quarter of the mean: one hopeless interval must not flatten the chart.
func (s *scale) includePoint(p point) {
	s.include(p.Y, math.Max(p.Lo, p.Y/4), math.Min(p.Hi, p.Y*4))
}

// settle picks ticks for the values included, about n of them. A linear scale
// begins at zero: bar lengths and heights are then honest.
func (s *scale) settle(n int) {
	if s.lo > s.hi {
		s.lo, s.hi = 0.5, 2
	}
	if s.log {
		s.ticks = logTicks(s.lo, s.hi)
		s.lo, s.hi = math.Min(s.lo, s.ticks[0]), math.Max(s.hi, s.ticks[len(s.ticks)-1])
		return
	}
	s.ticks = linearTicks(0, math.Max(s.hi, 1e-3), n)
	s.lo, s.hi = 0, s.ticks[len(s.ticks)-1]
}

// emptyScale has no values yet.
func emptyScale(from, to float64, log bool) scale {
	return scale{lo: math.Inf(1), hi: math.Inf(-1), from: from, to: to, log: log, formatTick: tickText}
}

// tickText prints a tick without noise from binary fractions.
func tickText(v float64) string {
	return strconv.FormatFloat(v, 'g', 6, 64)
}
