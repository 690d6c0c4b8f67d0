package chart

import (
	"fmt"
	"math"
	"slices"
)

// Series is one line of an XY chart.
type Series struct {
	Name   string
	Style  Style
	Points []Point
	Raw    [][2]float64 // single trials: X, Y
	// Area shades the area between Lo and Hi of the points.
	Area bool
	// Apart: no line joins the points. Guide: the series is a thin line without marks.
	Apart, Guide bool
}

// XY is a chart of values over a quantity.
type XY struct {
	Title, Desc    string
	XLabel, YLabel string
	Series         []Series
	Y              Kind
	Band           Band // of Y
	// Reference is a level of Y drawn as a line; NaN is none.
	Reference float64
	Height    int // of the plot, pixels; 0: the usual height
	// LogX: the axis of X is logarithmic. It is logarithmic without LogX too where X spans a factor of 20 or more.
	LogX bool
	// Curve draws distributions: X is Logarithmic, and only points with a Tip are marked.
	Curve bool
	// OverTime draws courses: X is linear, and only points with a Tip are marked.
	OverTime bool
	// Steps are the names of X = 0, 1, 2, … where X is a number in a list. Empty: X is a quantity.
	Steps []string
}

// Draw returns the chart as SVG. id must be unique on the page. Series without points are left out.
func (ch XY) Draw(id string) string {
	var c canvas
	top := c.legend(ch.Series)
	if ch.YLabel != "" {
		// The axis's name is horizontal and above the plot. Along the axis a long name would reach into the legend.
		c.text("label", "start", plotLeft-characterPx*5, top+10, ch.YLabel)
		top += legendLine
	}
	top += 8
	xs, ys := ch.xScale(), ch.yScale(top)
	ch.frame(&c, xs, ys)
	for i, s := range ch.Series {
		ch.drawRaw(&c, s, ch.dodge(i), xs, ys)
	}
	for _, s := range ch.Series {
		if s.Area {
			s.drawArea(&c, xs, ys)
		}
	}
	for i, s := range ch.Series {
		if !s.Apart {
			s.drawLine(&c, ch.dodge(i), xs, ys)
		}
	}
	for i, s := range ch.Series {
		for _, p := range s.Points {
			if !s.Guide && (!ch.Curve && !ch.OverTime || p.Tip != "") {
				c.point(s.Style, p, xs.pixel(p.X)+ch.dodge(i), ys.pixel(p.Y), ys, true)
			}
		}
	}
	return c.document(id, ch.Title, ch.Desc, ys.from+46)
}

// dodge returns by how much the i-th series is moved sideways, so that points at the same X do not hide each other.
func (ch XY) dodge(i int) float64 {
	if len(ch.Steps) > 0 || ch.Curve || ch.OverTime || ch.Series[i].Apart || ch.Series[i].Guide {
		return 0
	}
	return (float64(i) - float64(len(ch.Series)-1)/2) * math.Min(6, 24/float64(len(ch.Series)))
}

func (ch XY) xScale() scale {
	if len(ch.Steps) > 0 {
		return ch.stepScale()
	}
	var xs []float64
	apart := false
	for _, s := range ch.Series {
		apart = apart || s.Apart
		for _, p := range s.Points {
			xs = append(xs, p.X)
		}
	}
	s := emptyScale(plotLeft+14, plotRight-18, FromZero)
	switch {
	case ch.Curve:
		s.kind = Logarithmic
	case len(xs) == 0:
		xs = []float64{0, 1}
	}
	s.include(xs...)
	if ch.Curve || ch.OverTime || apart {
		s.setTicks(6)
		return s
	}
	slices.Sort(xs)
	xs = slices.Compact(xs)
	s.lo = math.Min(s.lo, 0)
	if xs[0] > 0 && s.hi > xs[0] && (ch.LogX || s.hi/xs[0] >= 20) {
		s.kind, s.lo = Logarithmic, xs[0]
	}
	// The values of X themselves are the best ticks if their labels do not collide. Those of filled marks come first.
	free := func(x float64) bool {
		return !slices.ContainsFunc(s.ticks, func(tick float64) bool {
			return math.Abs(s.pixel(x)-s.pixel(tick)) < 10+tickPx*float64(max(len(tickText(x)), len(tickText(tick))))
		})
	}
	for _, x := range append(ch.filled(), xs...) {
		if free(x) {
			s.ticks = append(s.ticks, x)
		}
	}
	slices.Sort(s.ticks)
	return s
}

// filled lists the values of X of all series with filled marks.
func (ch XY) filled() (xs []float64) {
	for _, s := range ch.Series {
		for _, p := range s.Points {
			if !s.Style.Hollow && !s.Guide {
				xs = append(xs, p.X)
			}
		}
	}
	slices.Sort(xs)
	return xs
}

func (ch XY) yScale(top float64) scale {
	height := float64(ch.Height)
	if height == 0 {
		height = plotHeight
	}
	s := emptyScale(top+height, top, ch.Y)
	s.include(ch.Reference, ch.Band.Lo, ch.Band.Hi)
	for _, line := range ch.Series {
		for _, p := range line.Points {
			s.includePoint(p)
		}
		for _, r := range line.Raw {
			s.include(r[1])
		}
	}
	s.setTicks(5)
	return s
}

// frame draws grid, axes, band and reference line.
func (ch XY) frame(c *canvas, xs, ys scale) {
	if b := ch.Band; b.Hi > b.Lo {
		c.band(plotLeft, ys.pixel(b.Hi), plotRight-plotLeft, ys.pixel(b.Lo)-ys.pixel(b.Hi), b)
	}
	for _, v := range ys.ticks {
		c.line("grid", plotLeft, ys.pixel(v), plotRight, ys.pixel(v))
		c.text("tick", "end", plotLeft-8, ys.pixel(v)+4, tickText(v))
	}
	c.line("axis", plotLeft, ys.from, plotRight, ys.from)
	if !math.IsNaN(ch.Reference) {
		c.line("reference", plotLeft, ys.pixel(ch.Reference), plotRight, ys.pixel(ch.Reference))
	}
	for _, v := range xs.ticks {
		c.line("axis", xs.pixel(v), ys.from, xs.pixel(v), ys.from+4)
		text := tickText(v)
		if len(ch.Steps) > 0 {
			text = ch.Steps[int(v)]
		}
		c.text("tick", "middle", xs.pixel(v), ys.from+18, text)
	}
	c.text("label", "middle", (plotLeft+plotRight)/2, ys.from+38, ch.XLabel)
}

// drawRaw draws single trials as dots. It scatters them a little sideways, so that equal values stay visible.
func (ch XY) drawRaw(c *canvas, s Series, dodge float64, xs, ys scale) {
	points := make([][2]float64, 0, len(s.Raw))
	for i, r := range s.Raw {
		if ch.Y == Logarithmic && r[1] <= 0 {
			continue
		}
		jitter := (float64(i*7%11) - 5) * 0.5
		points = append(points, [2]float64{xs.pixel(r[0]) + dodge + jitter, ys.pixel(r[1])})
	}
	c.dots(s.Style, points)
}

// drawLine joins the points by a line. Where a series has several points at one X, the line goes through their mean.
func (s Series) drawLine(c *canvas, dodge float64, xs, ys scale) {
	var d string
	for i := 0; i < len(s.Points); {
		x, sum, n := s.Points[i].X, 0.0, 0
		for ; i < len(s.Points) && s.Points[i].X == x; i++ {
			sum, n = sum+s.Points[i].Y, n+1
		}
		d += fmt.Sprintf("%c%s %s", "ML"[min(len(d), 1)], px(xs.pixel(x)+dodge), px(ys.pixel(sum/float64(n))))
	}
	class := "join " + s.Style.look()
	if s.Guide {
		class = "guide"
	}
	if d != "" {
		c.add(`<path class="%s" d="%s"/>`, class, d)
	}
}

// drawArea shades the intervals of the points as one area.
func (s Series) drawArea(c *canvas, xs, ys scale) {
	var upper, lower string
	for i, p := range s.Points {
		if math.IsNaN(p.Lo) || math.IsNaN(p.Hi) {
			continue
		}
		upper += fmt.Sprintf("%c%s %s", "ML"[min(len(upper), 1)], px(xs.pixel(p.X)), px(ys.within(p.Hi)))
		lower = fmt.Sprintf("L%s %s", px(xs.pixel(s.Points[i].X)), px(ys.within(p.Lo))) + lower
	}
	if upper != "" {
		c.add(`<path class="area %s" d="%sZ"/>`, s.Style.Class(), upper+lower)
	}
}

// stepScale has a place for each of Steps. It shows the names that have room: that of the last step, and of every n-th
// step before it.
func (ch XY) stepScale() scale {
	s := emptyScale(plotLeft+24, plotRight-28, FromZero)
	last := len(ch.Steps) - 1
	s.lo, s.hi = 0, float64(last)
	longest := 0
	for _, name := range ch.Steps {
		longest = max(longest, len([]rune(name)))
	}
	room := max(1, int((s.to-s.from)/(tickPx*float64(longest)+12)))
	every := max(1, (last+room)/room)
	for step := last; step >= 0; step -= every {
		s.ticks = append(s.ticks, float64(step))
	}
	slices.Sort(s.ticks)
	return s
}
