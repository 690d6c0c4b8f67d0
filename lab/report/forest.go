package report

import (
	"html"
	"math"
)

func escape(s string) string { return html.EscapeString(s) }

// forestRow is one line of a forest chart: a label, values and what to print at its right.
type forestRow struct {
	Label, Text string
	Marks       []forestMark
}

// forestMark is one mean on a row.
type forestMark struct {
	Style int
	Point point // Y, Lo, Hi and Tip; X is not used
	Raw   []float64
}

// forest is a chart with one row a device, for runs that sweep over nothing.
type forest struct {
	Title, Desc, XLabel string
	Legend              []legendEntry
	Rows                []forestRow
	LogX                bool
	Band                [2]float64
	Reference           float64 // NaN is none
}

const rowHeight = 46

func (f forest) draw(id string) string {
	var c canvas
	top := 10.0
	if len(f.Legend) > 0 {
		top = c.legend(f.Legend) + 4
	}
	bottom := top + rowHeight*float64(len(f.Rows)) + 6
	xs := f.scale()
	if b := f.Band; b[1] > b[0] {
		c.add(`<rect class="band" x="%s" y="%s" width="%s" height="%s"><title>Noise floor: two clean routers, %.3f to %.3f</title></rect>`,
			px(xs.at(b[0])), px(top), px(math.Max(xs.at(b[1])-xs.at(b[0]), 1)), px(bottom-top), b[0], b[1])
	}
	for _, v := range xs.ticks {
		c.line("grid", xs.at(v), top, xs.at(v), bottom)
		c.text("tick", "middle", xs.at(v), bottom+18, xs.formatTick(v))
	}
	c.line("axis", xs.from, bottom, xs.to, bottom)
	if !math.IsNaN(f.Reference) {
		c.line("reference", xs.at(f.Reference), top, xs.at(f.Reference), bottom)
	}
	for i, row := range f.Rows {
		drawRow(&c, row, top+rowHeight*float64(i), xs)
	}
	c.text("label", "middle", canvasWidth/2, bottom+38, f.XLabel)
	return c.document(id, f.Title, f.Desc, bottom+46)
}

// drawRow writes label and text above the marks, so that both have the chart's
// whole width also on a phone.
func drawRow(c *canvas, row forestRow, top float64, xs scale) {
	c.text("label halo", "start", 14, top+14, row.Label)
	c.text("tick halo", "end", canvasWidth-14, top+14, row.Text)
	y := top + 31
	for _, m := range row.Marks {
		points := make([][2]float64, 0, len(m.Raw))
		for i, v := range m.Raw {
			points = append(points, [2]float64{xs.at(v), y + (float64(i*7%11)-5)*0.8})
		}
		c.dots(styleClass(m.Style), points)
	}
	for _, m := range row.Marks {
		p := m.Point
		if math.IsNaN(p.Y) {
			continue
		}
		c.add(`<g><title>%s</title>`, escape(p.Tip))
		if !math.IsNaN(p.Lo) && !math.IsNaN(p.Hi) {
			lo, hi := xs.at(math.Max(p.Lo, xs.lo)), xs.at(math.Min(p.Hi, xs.hi))
			c.add(`<path class="bar %s" d="M%s %sH%sm0 -4v8M%s %sv8"/>`, styleClass(m.Style), px(lo), px(y), px(hi), px(lo), px(y-4))
		}
		c.marker(m.Style, xs.at(p.Y), y)
		c.add(`<circle class="hit" cx="%s" cy="%s" r="11"/></g>`, px(xs.at(p.Y)), px(y))
	}
}

func (f forest) scale() scale {
	s := emptyScale(20, canvasWidth-20, f.LogX)
	for _, row := range f.Rows {
		for _, m := range row.Marks {
			s.includePoint(m.Point)
			s.include(m.Raw...)
		}
	}
	s.include(f.Reference, f.Band[0], f.Band[1])
	s.settle(6)
	return s
}
