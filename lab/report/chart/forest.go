package chart

import (
	"math"
)

// ForestRow is one row of a forest chart: a label, marks and a text at its right.
type ForestRow struct {
	Label, Text string
	Marks       []ForestMark
	Seen        float64 // end of a bar's measured part, which is solid; the bar itself ends at its mark
}

// ForestMark is one mean on a row.
type ForestMark struct {
	Style Style
	Point Point // Y, Lo and Hi are along the row; X is not used
	Raw   []float64
}

// Forest is a chart with one row for each device or effect.
type Forest struct {
	Title, Desc, XLabel string
	Legend              []Series
	Rows                []ForestRow
	X                   Kind
	Band                Band
	Reference           float64 // NaN: no line
	Bars                bool    // rows are amounts from zero with one mark each
}

const (
	rowHeight = 46
	barHeight = 13
)

// Draw returns the chart as SVG. id must be unique on the page.
func (f Forest) Draw(id string) string {
	var c canvas
	top, pad := 10.0, 14.0
	if len(f.Legend) > 0 {
		top = c.legend(f.Legend) + 4
	}
	if f.Bars {
		pad = 20
	}
	bottom := top + rowHeight*float64(len(f.Rows)) + 6
	xs := f.scale()
	if b := f.Band; b.Hi > b.Lo {
		c.band(xs.pixel(b.Lo), top, xs.pixel(b.Hi)-xs.pixel(b.Lo), bottom-top, b)
	}
	for _, v := range xs.ticks {
		c.line("grid", xs.pixel(v), top, xs.pixel(v), bottom)
		c.text("tick", "middle", xs.pixel(v), bottom+18, tickText(v))
	}
	c.line("axis", xs.from, bottom, xs.to, bottom)
	c.text("label", "middle", canvasWidth/2, bottom+38, f.XLabel)
	if !math.IsNaN(f.Reference) && !f.Bars {
		c.line("reference", xs.pixel(f.Reference), top, xs.pixel(f.Reference), bottom)
	}
	for i, row := range f.Rows {
		y := top + rowHeight*float64(i)
		// Label and text are above the marks, so that on a phone too each has the chart's whole width.
		c.text("label halo", "start", pad, y+14, row.Label)
		c.text("tick halo", "end", canvasWidth-pad, y+14, row.Text)
		if f.Bars {
			row.bar(&c, y+21, xs)
		} else {
			row.marks(&c, y+31, xs)
		}
	}
	return c.document(id, f.Title, f.Desc, bottom+46)
}

func (row ForestRow) marks(c *canvas, y float64, xs scale) {
	for _, m := range row.Marks {
		points := make([][2]float64, 0, len(m.Raw))
		for i, v := range m.Raw {
			points = append(points, [2]float64{xs.pixel(v), y + (float64(i*7%11)-5)*0.8})
		}
		c.dots(m.Style, points)
	}
	for _, m := range row.Marks {
		if !math.IsNaN(m.Point.Y) {
			c.point(m.Style, m.Point, xs.pixel(m.Point.Y), y, xs, false)
		}
	}
}

// bar draws the measured part solid and the rest of the bar open.
func (row ForestRow) bar(c *canvas, y float64, xs scale) {
	m := row.Marks[0]
	amount := func(class string, from, to float64) {
		if !math.IsNaN(to) {
			c.add(`<rect class="%s %s" x="%s" y="%s" width="%s" height="%d"/>`,
				class, m.Style.Class(), px(xs.pixel(from)), px(y), px(math.Max(xs.pixel(to)-xs.pixel(from), 1)), barHeight)
		}
	}
	end := m.Point.Y
	if row.Seen < end || math.IsNaN(end) {
		amount("amount", 0, row.Seen)
		amount("beyond", row.Seen, end)
	} else {
		amount("amount", 0, end)
	}
	row.marks(c, y+barHeight/2.0, xs)
}

func (f Forest) scale() scale {
	s, ticks := emptyScale(20, canvasWidth-20, f.X), 6
	s.include(f.Reference, f.Band.Lo, f.Band.Hi)
	for _, row := range f.Rows {
		if f.Bars {
			ticks = 5
			s.include(row.Seen)
		}
		for _, m := range row.Marks {
			s.includePoint(m.Point)
			s.include(m.Raw...)
		}
	}
	s.setTicks(ticks)
	return s
}
