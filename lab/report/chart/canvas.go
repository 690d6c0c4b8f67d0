// Package chart draws a report's figures as SVG: means with intervals over a
// sweep, one row a device, bars. It knows nothing of what the figures mean.
// Colours are CSS classes of the page, so that a chart follows the reader's
// light or dark scheme; series differ by shape and dash as well.
package chart

import (
	"fmt"
	"html"
	"math"
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

// Colours is how many classes s0, s1... the page gives a colour.
const Colours = 6

// Style is how a series looks. The zero value is the first device.
type Style struct {
	// Number chooses colour and marker; Clean is the clean router.
	Number int
	// Hollow marks and dashed lines set a second kind of values apart from the
	// first, such as published from measured ones.
	Hollow bool
}

// Clean is the Number of the clean router: a grey circle.
const Clean = -1

// Class is the CSS class that gives the colour.
func (s Style) Class() string {
	if s.Number == Clean {
		return "clean"
	}
	return "s" + strconv.Itoa(s.Number%Colours)
}

// classes is Class with what a hollow series adds.
func (s Style) classes() string {
	if s.Hollow {
		return s.Class() + " hollow"
	}
	return s.Class()
}

// Point is a mean with its interval; Lo and Hi are NaN without one.
type Point struct {
	X, Y, Lo, Hi float64
	Tip          string // shown when pointed at
	// Key and Value name what is shown and its exact figure, for programs that
	// read the page.
	Key, Value string
	// Hollow sets this mark apart from the others of its series.
	Hollow bool
}

// hasInterval reports whether both bounds are known.
func (p Point) hasInterval() bool { return !math.IsNaN(p.Lo) && !math.IsNaN(p.Hi) }

// canvas collects SVG elements.
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
func (c *canvas) dots(style Style, points [][2]float64) {
	if len(points) == 0 {
		return
	}
	var d strings.Builder
	for _, p := range points {
		d.WriteString("M" + px(p[0]) + " " + px(p[1]) + "h0")
	}
	c.add(`<path class="raw %s" d="%s"/>`, style.Class(), d.String())
}

// open begins the group of a point, with what it shows in words and as a figure.
func (c *canvas) open(p Point) {
	c.add(`<g class="point" data-cell="%s" data-value="%s"><title>%s</title>`,
		html.EscapeString(p.Key), html.EscapeString(p.Value), html.EscapeString(p.Tip))
}

// close ends the group of a point with a larger area to point at.
func (c *canvas) close(x, y float64) {
	c.add(`<circle class="hit" cx="%s" cy="%s" r="11"/></g>`, px(x), px(y))
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
	switch n % Colours {
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

// marker draws a mean.
func (c *canvas) marker(style Style, x, y float64) {
	if style.Number == Clean {
		c.add(`<circle class="mark %s" cx="%s" cy="%s" r="%s"/>`, style.classes(), px(x), px(y), px(markerRadius-0.3))
		return
	}
	c.add(`<path class="mark %s" d="%s"/>`, style.classes(), markerPath(style.Number, x, y))
}

// legend writes entries from the top left, each with a piece of its line, and
// returns the height it took.
func (c *canvas) legend(entries []LegendEntry) float64 {
	x, y := 14.0, 14.0
	for _, e := range entries {
		width := 42 + characterPx*float64(len([]rune(e.Name)))
		if x > 14 && x+width > canvasWidth-6 {
			x, y = 14, y+legendLine
		}
		switch {
		case e.Guide:
			c.add(`<path class="guide" d="M%s %sh22"/>`, px(x-8), px(y-4))
		case e.MarkOnly:
			c.marker(e.Style, x+3, y-4)
		default:
			c.add(`<path class="join %s" d="M%s %sh22"/>`, e.Style.classes(), px(x-8), px(y-4))
			c.marker(e.Style, x+3, y-4)
		}
		c.text("label", "start", x+20, y, e.Name)
		x += width
	}
	return y + 10
}

// LegendEntry is one entry of a legend.
type LegendEntry struct {
	Style    Style
	Name     string
	MarkOnly bool // without a piece of line
	Guide    bool // a thin line without a mark
}

// document wraps the elements drawn; title and description are for those who
// do not see the chart.
func (c *canvas) document(id, title, desc string, height float64) string {
	return fmt.Sprintf(`<svg viewBox="0 0 %d %s" role="img" aria-labelledby="%s-t" aria-describedby="%s-d">
<title id="%s-t">%s</title>
<desc id="%s-d">%s</desc>
%s</svg>`, canvasWidth, px(height), id, id, id, html.EscapeString(title), id, html.EscapeString(desc), c.String())
}

// band shades the range of the noise floor; the rectangle is at least a pixel wide.
func (c *canvas) band(x, y, width, height float64, values [2]float64, name string) {
	c.add(`<rect class="band" x="%s" y="%s" width="%s" height="%s"><title>%s: %.3f to %.3f</title></rect>`,
		px(x), px(y), px(math.Max(width, 1)), px(math.Max(height, 1)), html.EscapeString(name), values[0], values[1])
}
