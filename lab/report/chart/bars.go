package chart

import (
	"math"
)

// BarRow is one bar: what was seen, solid, and what is said beyond it, open.
type BarRow struct {
	Label, Text string
	Style       Style
	Seen        float64
	// End is where the bar ends, with its interval, in Y, Lo and Hi.
	End Point
}

// Bars is a chart of amounts from zero, one bar a row.
type Bars struct {
	Title, Desc, XLabel string
	Rows                []BarRow
}

const barHeight = 13

// Draw makes the chart an SVG; id must be its own on the page.
func (b Bars) Draw(id string) string {
	var c canvas
	top := 10.0
	bottom := top + rowHeight*float64(len(b.Rows)) + 6
	xs := emptyScale(20, canvasWidth-20, fromZero)
	for _, row := range b.Rows {
		xs.includePoint(row.End)
		xs.include(row.Seen)
	}
	xs.settle(5)
	c.bottomAxis(xs, top, bottom, b.XLabel)
	for i, row := range b.Rows {
		row.draw(&c, top+rowHeight*float64(i), xs)
	}
	return c.document(id, b.Title, b.Desc, bottom+46)
}

func (row BarRow) draw(c *canvas, top float64, xs scale) {
	c.text("label halo", "start", 20, top+14, row.Label)
	c.text("tick halo", "end", canvasWidth-20, top+14, row.Text)
	y := top + 21
	amount := func(class string, from, to float64) {
		c.add(`<rect class="%s %s" x="%s" y="%s" width="%s" height="%d"/>`,
			class, row.Style.Class(), px(xs.at(from)), px(y), px(math.Max(xs.at(to)-xs.at(from), 1)), barHeight)
	}
	end := row.End.Y
	switch {
	case math.IsNaN(end) && math.IsNaN(row.Seen):
		return
	case math.IsNaN(end):
		amount("amount", 0, row.Seen)
		return
	case row.Seen < end:
		amount("amount", 0, row.Seen)
		amount("beyond", row.Seen, end)
	default:
		amount("amount", 0, end)
	}
	drawAlong(c, row.Style, row.End, y+barHeight/2.0, xs)
}
