package report

import (
	"fmt"
	"math"
	"slices"
)

// point is a mean with its interval; Lo and Hi are NaN without one.
type point struct {
	X, Y, Lo, Hi float64
	Tip          string // shown by the browser when pointed at
}

// series is one line of a chart.
type series struct {
	Name   string
	Style  int // cleanStyle, or the device's number
	Points []point
	Raw    [][2]float64 // single trials
}

// chart is a figure over a sweep.
type chart struct {
	Title, Desc    string
	XLabel, YLabel string
	XTick          func(float64) string
	Series         []series
	// LogY draws ratios, where half and double are equally far from 1.
	LogY bool
	// Band is a range of Y shaded across the chart: the noise floor. NaN is none.
	Band [2]float64
	// Reference is a level of Y drawn as a line; NaN is none.
	Reference float64
}

// draw makes the chart an SVG. It never fails: what has no points is left out.
func (ch chart) draw(id string) string {
	var c canvas
	var entries []legendEntry
	for _, s := range ch.Series {
		entries = append(entries, legendEntry{s.Style, s.Name})
	}
	top := c.legend(entries) + 8
	xs, ys := ch.xScale(), ch.yScale(top)
	ch.frame(&c, xs, ys)
	for i, s := range ch.Series {
		ch.drawRaw(&c, s, ch.dodge(i), xs, ys)
	}
	for i, s := range ch.Series {
		ch.drawLine(&c, s, ch.dodge(i), xs, ys)
	}
	for i, s := range ch.Series {
		for _, p := range s.Points {
			drawPoint(&c, s.Style, xs.at(p.X)+ch.dodge(i), p, ys)
		}
	}
	return c.document(id, ch.Title, ch.Desc, ys.from+46)
}

// dodge sets series apart that have points at the same X.
func (ch chart) dodge(i int) float64 {
	return (float64(i) - float64(len(ch.Series)-1)/2) * math.Min(6, 24/float64(len(ch.Series)))
}

func (ch chart) xScale() scale {
	var xs []float64
	for _, s := range ch.Series {
		for _, p := range s.Points {
			xs = append(xs, p.X)
		}
	}
	slices.Sort(xs)
	xs = slices.Compact(xs)
	s := scale{from: plotLeft + 14, to: plotRight - 18, formatTick: ch.XTick}
	if len(xs) == 0 {
		xs = []float64{0, 1}
	}
	s.lo, s.hi = xs[0], xs[len(xs)-1]
	s.log = s.lo > 0 && s.hi/s.lo >= 20
	if !s.log {
		s.lo = math.Min(s.lo, 0)
	}
	// The sweep's own values are the best ticks, as long as they do not collide.
	at := math.Inf(-1)
	for _, x := range xs {
		if s.at(x)-at >= 10+tickPx*float64(len(ch.XTick(x))) {
			s.ticks = append(s.ticks, x)
			at = s.at(x)
		}
	}
	return s
}

func (ch chart) yScale(top float64) scale {
	s := emptyScale(top+plotHeight, top, ch.LogY)
	for _, line := range ch.Series {
		for _, p := range line.Points {
			s.includePoint(p)
		}
		for _, r := range line.Raw {
			s.include(r[1])
		}
	}
	s.include(ch.Reference, ch.Band[0], ch.Band[1])
	s.settle(5)
	return s
}

// frame draws grid, axes, band and reference line.
func (ch chart) frame(c *canvas, xs, ys scale) {
	if b := ch.Band; b[1] > b[0] {
		c.add(`<rect class="band" x="%d" y="%s" width="%d" height="%s"><title>Noise floor: two clean routers, %.3f to %.3f</title></rect>`,
			plotLeft, px(ys.at(b[1])), plotRight-plotLeft, px(math.Max(ys.at(b[0])-ys.at(b[1]), 1)), b[0], b[1])
	}
	for _, v := range ys.ticks {
		c.line("grid", plotLeft, ys.at(v), plotRight, ys.at(v))
		c.text("tick", "end", plotLeft-8, ys.at(v)+4, ys.formatTick(v))
	}
	c.line("axis", plotLeft, ys.from, plotRight, ys.from)
	if !math.IsNaN(ch.Reference) {
		c.line("reference", plotLeft, ys.at(ch.Reference), plotRight, ys.at(ch.Reference))
	}
	for _, v := range xs.ticks {
		c.line("axis", xs.at(v), ys.from, xs.at(v), ys.from+4)
		c.text("tick", "middle", xs.at(v), ys.from+18, xs.formatTick(v))
	}
	c.text("label", "middle", (plotLeft+plotRight)/2, ys.from+38, ch.XLabel)
	middle := (ys.from + ys.to) / 2
	c.add(`<g transform="translate(14 %s) rotate(-90)">`, px(middle))
	c.text("label", "middle", 0, 0, ch.YLabel)
	c.add("</g>")
}

// drawRaw scatters single trials a little so that equal values stay visible.
func (ch chart) drawRaw(c *canvas, s series, dodge float64, xs, ys scale) {
	points := make([][2]float64, 0, len(s.Raw))
	for i, r := range s.Raw {
		if ch.LogY && r[1] <= 0 {
			continue
		}
		jitter := (float64(i*7%11) - 5) * 0.5
		points = append(points, [2]float64{xs.at(r[0]) + dodge + jitter, ys.at(r[1])})
	}
	c.dots(styleClass(s.Style), points)
}

// drawLine joins the points; where a series has several at one X, their mean.
func (ch chart) drawLine(c *canvas, s series, dodge float64, xs, ys scale) {
	var d string
	for i := 0; i < len(s.Points); {
		x, sum, n := s.Points[i].X, 0.0, 0
		for ; i < len(s.Points) && s.Points[i].X == x; i++ {
			sum, n = sum+s.Points[i].Y, n+1
		}
		d += fmt.Sprintf("%c%s %s", "ML"[min(len(d), 1)], px(xs.at(x)+dodge), px(ys.at(sum/float64(n))))
	}
	if d != "" {
		c.add(`<path class="join %s" d="%s"/>`, styleClass(s.Style), d)
	}
}

// drawPoint draws a mean, its interval and a larger area to point at.
func drawPoint(c *canvas, style int, x float64, p point, ys scale) {
	y := ys.at(p.Y)
	c.add(`<g><title>%s</title>`, escape(p.Tip))
	if !math.IsNaN(p.Lo) && !math.IsNaN(p.Hi) {
		lo, hi := ys.at(math.Max(p.Lo, ys.lo)), ys.at(math.Min(p.Hi, ys.hi))
		c.add(`<path class="bar %s" d="M%s %sV%sm-4 0h8M%s %sh8"/>`, styleClass(style), px(x), px(lo), px(hi), px(x-4), px(lo))
	}
	c.marker(style, x, y)
	c.add(`<circle class="hit" cx="%s" cy="%s" r="11"/></g>`, px(x), px(y))
}
