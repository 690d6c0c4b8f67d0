// Package chart draws a report's figures as SVG: lines over a sweep, forest charts with one row for each device, and
// bars. It does not know what the figures mean. Colours are CSS classes of the page, so that a chart follows the
// reader's light or dark scheme. Series differ by marker and dash as well.
package chart

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Charts are drawn on a small canvas with large type, because a phone shows them at three quarters of their size.
const (
	canvasWidth  = 480
	plotLeft     = 58
	plotRight    = 466
	plotHeight   = 220
	legendLine   = 20
	characterPx  = 8   // mean width of a character of the type at its largest, on phones
	tickPx       = 7.5 // mean width of a digit at its largest
	markerRadius = 4.5
)

// Colours is the number of colour classes s0, s1, … of the page. There are as many markers.
const Colours = len(markers)

// Style is the look of a series. The zero value is that of the first device.
type Style struct {
	// Number selects colour and marker. Clean is the clean router's.
	Number int
	// Hollow draws hollow marks and dashed lines, for a second kind of values such as published ones beside measured ones.
	Hollow bool
}

// Clean is the Number of the clean router, a grey circle.
const Clean = -1

// Class returns the CSS class of the colour.
func (s Style) Class() string {
	if s.Number == Clean {
		return "clean"
	}
	return "s" + strconv.Itoa(s.Number%Colours)
}

// look returns Class, and the class of hollow marks and lines where they apply.
func (s Style) look() string {
	if s.Hollow {
		return s.Class() + " hollow"
	}
	return s.Class()
}

// Point is a mean with its interval. Lo and Hi are NaN without one.
type Point struct {
	X, Y, Lo, Hi float64
	Tip          string // shown under the mouse pointer
	// Key names what the point shows, and Value is its exact figure, for programs that read the page.
	Key, Value string
	// Hollow draws this mark hollow, unlike the others of its series.
	Hollow bool
}

// Band is a shaded range of values across a chart. The zero Band is not drawn.
type Band struct {
	Lo, Hi float64
	Name   string
}

// canvas collects SVG elements.
type canvas struct {
	strings.Builder
}

// px formats a coordinate with one decimal.
func px(v float64) string {
	return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
}

func (c *canvas) add(format string, args ...any) {
	fmt.Fprintf(c, format+"\n", args...)
}

func (c *canvas) line(class string, x1, y1, x2, y2 float64) {
	c.add(`<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`, class, px(x1), px(y1), px(x2), px(y2))
}

// text writes a label. anchor is start, middle or end.
func (c *canvas) text(class, anchor string, x, y float64, s string) {
	c.add(`<text class="%s" text-anchor="%s" x="%s" y="%s">%s</text>`, class, anchor, px(x), px(y), html.EscapeString(s))
}

// dots draws many small points as one path. A stroke of no length with round ends is a dot, and takes a tenth of the
// bytes of a circle element.
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

// point draws a mean with its text and figure, and a larger area for the mouse pointer. Its interval lies along x or,
// if upright, along y.
func (c *canvas) point(style Style, p Point, x, y float64, values scale, upright bool) {
	c.add(`<g class="point" data-cell="%s" data-value="%s"><title>%s</title>`,
		html.EscapeString(p.Key), html.EscapeString(p.Value), html.EscapeString(p.Tip))
	if !math.IsNaN(p.Lo) && !math.IsNaN(p.Hi) {
		lo, hi := px(values.within(p.Lo)), px(values.within(p.Hi))
		path := fmt.Sprintf("M%s %sH%sm0 -4v8M%s %sv8", lo, px(y), hi, lo, px(y-4))
		if upright {
			path = fmt.Sprintf("M%s %sV%sm-4 0h8M%s %sh8", px(x), lo, hi, px(x-4), lo)
		}
		c.add(`<path class="bar %s" d="%s"/>`, style.Class(), path)
	}
	style.Hollow = style.Hollow || p.Hollow
	c.marker(style, x, y)
	c.add(`<circle class="hit" cx="%s" cy="%s" r="11"/></g>`, px(x), px(y))
}

// markers are the outlines of the series' marks, as alternating x and y of points around the centre.
var markers = [...][]float64{
	{-0.9, -0.9, 0.9, -0.9, 0.9, 0.9, -0.9, 0.9},                  // square
	{0, -1.2, 1.1, 0.9, -1.1, 0.9},                                // triangle
	{0, -1.3, 1.1, 0, 0, 1.3, -1.1, 0},                            // diamond
	{0, 1.2, 1.1, -0.9, -1.1, -0.9},                               // triangle on its tip
	{-0.6, -1.1, 0.6, -1.1, 1.2, 0, 0.6, 1.1, -0.6, 1.1, -1.2, 0}, // hexagon
	{-0.4, -1.2, 0.4, -1.2, 0.4, -0.4, 1.2, -0.4, 1.2, 0.4, 0.4, 0.4, // cross
		0.4, 1.2, -0.4, 1.2, -0.4, 0.4, -1.2, 0.4, -1.2, -0.4, -0.4, -0.4},
	{-1.2, 0, 0.9, -1.1, 0.9, 1.1},                                                         // triangle to the left
	{1.2, 0, -0.9, 1.1, -0.9, -1.1},                                                        // triangle to the right
	{-1.1, -1.1, 1.1, -1.1, -1.1, 1.1, 1.1, 1.1},                                           // hourglass
	{-1.3, -0.5, 1.3, -0.5, 1.3, 0.5, -1.3, 0.5},                                           // lying bar
	{-0.5, -1.3, 0.5, -1.3, 0.5, 1.3, -0.5, 1.3},                                           // standing bar
	{0, -1.4, 0.35, -0.35, 1.4, 0, 0.35, 0.35, 0, 1.4, -0.35, 0.35, -1.4, 0, -0.35, -0.35}, // star
}

// marker draws the mark of a mean. The clean router's is a circle.
func (c *canvas) marker(style Style, x, y float64) {
	if style.Number == Clean {
		c.add(`<circle class="mark %s" cx="%s" cy="%s" r="%s"/>`, style.look(), px(x), px(y), px(markerRadius-0.3))
		return
	}
	var d strings.Builder
	for corner := range slices.Chunk(markers[style.Number%Colours], 2) {
		d.WriteString(string("ML"[min(d.Len(), 1)]) + px(x+corner[0]*markerRadius) + " " + px(y+corner[1]*markerRadius))
	}
	c.add(`<path class="mark %s" d="%sZ"/>`, style.look(), d.String())
}

// legend writes the names of series from the top left, each with a piece of its line. It returns the height of the
// legend.
func (c *canvas) legend(entries []Series) float64 {
	x, y := 14.0, 14.0
	for _, e := range entries {
		width := 42 + characterPx*float64(len([]rune(e.Name)))
		if x > 14 && x+width > canvasWidth-6 {
			x, y = 14, y+legendLine
		}
		line := "join " + e.Style.look()
		if e.Guide {
			line = "guide"
		}
		if !e.Apart {
			c.add(`<path class="%s" d="M%s %sh22"/>`, line, px(x-8), px(y-4))
		}
		if !e.Guide {
			c.marker(e.Style, x+3, y-4)
		}
		c.text("label", "start", x+20, y, e.Name)
		x += width
	}
	return y + 10
}

// document wraps the elements. Title and description are for readers who cannot see the chart.
func (c *canvas) document(id, title, desc string, height float64) string {
	return fmt.Sprintf(`<svg viewBox="0 0 %d %s" role="img" aria-labelledby="%s-t" aria-describedby="%s-d">
<title id="%s-t">%s</title>
<desc id="%s-d">%s</desc>
%s</svg>`, canvasWidth, px(height), id, id, id, html.EscapeString(title), id, html.EscapeString(desc), c.String())
}

// band shades a range of values. The rectangle is at least one pixel wide.
func (c *canvas) band(x, y, width, height float64, b Band) {
	c.add(`<rect class="band" x="%s" y="%s" width="%s" height="%s"><title>%s: %.3f to %.3f</title></rect>`,
		px(x), px(y), px(math.Max(width, 1)), px(math.Max(height, 1)), html.EscapeString(b.Name), b.Lo, b.Hi)
}
