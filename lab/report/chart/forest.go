package chart

import (
	"math"
)

// ForestRow is one line of a forest chart: a label, values and what to print at its right.
type ForestRow struct {
	Label, Text string
	Marks       []ForestMark
}

// ForestMark is one mean on a row.
type ForestMark struct {
	Style Style
	Point Point // Y, Lo and Hi lie along the row; X is not used
	Raw   []float64
}

// Forest is a chart with one row a device or effect.
type Forest struct {
	Title, Desc, XLabel string
	Legend              []LegendEntry
	Rows                []ForestRow
	LogX, SignedX       bool // as in XY
	Band                [2]float64
	BandName            string
	Reference           float64 // NaN is none
}

const rowHeight = 46

// Draw makes the chart an SVG; id must be its own on the page.
func (f Forest) Draw(id string) string {
	var c canvas
	top := 10.0
	if len(f.Legend) > 0 {
		top = c.legend(f.Legend) + 4
	}
	bottom := top + rowHeight*float64(len(f.Rows)) + 6
	xs := f.scale()
	if b := f.Band; b[1] > b[0] {
		c.band(xs.at(b[0]), top, xs.at(b[1])-xs.at(b[0]), bottom-top, b, f.BandName)
	}
	c.bottomAxis(xs, top, bottom, f.XLabel)
	if !math.IsNaN(f.Reference) {
		c.line("reference", xs.at(f.Reference), top, xs.at(f.Reference), bottom)
	}
	for i, row := range f.Rows {
		drawRow(&c, row, top+rowHeight*float64(i), xs)
	}
	return c.document(id, f.Title, f.Desc, bottom+46)
}

// bottomAxis draws grid lines, ticks and the label of charts with rows.
func (c *canvas) bottomAxis(xs scale, top, bottom float64, label string) {
	for _, v := range xs.ticks {
		c.line("grid", xs.at(v), top, xs.at(v), bottom)
		c.text("tick", "middle", xs.at(v), bottom+18, tickText(v))
	}
	c.line("axis", xs.from, bottom, xs.to, bottom)
	c.text("label", "middle", canvasWidth/2, bottom+38, label)
}

// drawRow writes label and text above the marks, so that both have the chart's
// whole width also on a phone.
func drawRow(c *canvas, row ForestRow, top float64, xs scale) {
	c.text("label halo", "start", 14, top+14, row.Label)
	c.text("tick halo", "end", canvasWidth-14, top+14, row.Text)
	y := top + 31
	for _, m := range row.Marks {
		points := make([][2]float64, 0, len(m.Raw))
		for i, v := range m.Raw {
			points = append(points, [2]float64{xs.at(v), y + (float64(i*7%11)-5)*0.8})
		}
		c.dots(m.Style, points)
	}
	for _, m := range row.Marks {
		if !math.IsNaN(m.Point.Y) {
			drawAlong(c, m.Style, m.Point, y, xs)
		}
	}
}

// drawAlong draws a mean with its interval on a row.
func drawAlong(c *canvas, style Style, p Point, y float64, xs scale) {
	c.open(p)
	if p.hasInterval() {
		lo, hi := xs.within(p.Lo), xs.within(p.Hi)
		c.add(`<path class="bar %s" d="M%s %sH%sm0 -4v8M%s %sv8"/>`, style.Class(), px(lo), px(y), px(hi), px(lo), px(y-4))
	}
	c.marker(style, xs.at(p.Y), y)
	c.close(xs.at(p.Y), y)
}

func (f Forest) scale() scale {
	k := fromZero
	switch {
	case f.LogX:
		k = logarithmic
	case f.SignedX:
		k = signed
	}
	s := emptyScale(20, canvasWidth-20, k)
	s.include(f.Reference, f.Band[0], f.Band[1])
	for _, row := range f.Rows {
		for _, m := range row.Marks {
			s.includePoint(m.Point)
			s.include(m.Raw...)
		}
	}
	s.settle(6)
	return s
}
