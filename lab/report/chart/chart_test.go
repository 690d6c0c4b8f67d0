package chart_test

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/report/chart"
)

// These tests read charts as SVG. nan stands for a value that is not there: a point without an interval, a chart
// without a reference line, a bar without an end.
var nan = math.NaN()

// wellFormed requires an SVG to be well-formed XML, with a title and a description, and without NaN, infinities and
// errors of formatting.
func wellFormed(t *testing.T, svg string) {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("not well-formed: %v\n%s", err, svg)
		}
	}
	for _, want := range []string{`role="img"`, "<title id=", "<desc id="} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %s in %.200s", want, svg)
		}
	}
	for _, bad := range []string{"NaN", "Inf", "%!"} {
		if strings.Contains(svg, bad) {
			t.Errorf("%s in the chart", bad)
		}
	}
}

// at returns a point without an interval.
func at(x, y float64) chart.Point { return chart.Point{X: x, Y: y, Lo: nan, Hi: nan} }

// barRow returns the row of a bar that ends at end and is drawn solid up to seen, its measured part.
func barRow(label string, seen, end float64) chart.ForestRow {
	return chart.ForestRow{Label: label, Seen: seen, Marks: []chart.ForestMark{{Point: at(0, end)}}}
}

// TestChartsOfExtremeValues: charts without values, with one value, with very wide intervals and with names that
// contain markup are well-formed.
func TestChartsOfExtremeValues(t *testing.T) {
	wild := chart.Point{X: 1, Y: 2, Lo: -1e9, Hi: 1e9, Tip: `<b>&"`, Key: `"><script>`, Value: "2"}
	for name, svg := range map[string]string{
		"nothing":   chart.XY{Reference: nan}.Draw("a"),
		"one point": chart.XY{Reference: nan, Series: []chart.Series{{Points: []chart.Point{at(5, 5)}}}}.Draw("a"),
		"all zero": chart.XY{
			Reference: 0, Y: chart.Signed, Series: []chart.Series{{Points: []chart.Point{at(0, 0)}, Apart: true}}}.Draw("a"),
		"wild": chart.XY{Title: "<>", Reference: 1, Band: chart.Band{Lo: 0.9, Hi: 1.1}, Y: chart.Logarithmic,
			Series: []chart.Series{{Name: "&", Points: []chart.Point{wild}}}}.Draw("a"),
		"log of zero": chart.XY{Reference: 1, Y: chart.Logarithmic, Series: []chart.Series{{Points: []chart.Point{at(1,
			3)}, Raw: [][2]float64{{1, 0}, {1, -2}}}}}.Draw("a"),
		"empty curve": chart.XY{Reference: nan, Curve: true, Series: []chart.Series{{Name: "x"}}}.Draw("a"),
		"curve from zero": chart.XY{
			Reference: nan, Curve: true, Series: []chart.Series{{Points: []chart.Point{at(0, 1), at(0.5, 50)}}}}.Draw("a"),
		"empty forest": chart.Forest{Reference: nan}.Draw("a"),
		"wild forest": chart.Forest{Reference: 0, Band: chart.Band{Lo: -5, Hi: 5}, X: chart.Signed,
			Rows: []chart.ForestRow{{Label: "<", Marks: []chart.ForestMark{{Point: wild}, {Point: at(0, nan)}}}}}.Draw("a"),
		"no bars": chart.Forest{Bars: true}.Draw("a"),
		"bars of nothing": chart.Forest{Bars: true, Rows: []chart.ForestRow{barRow("x", nan, nan), barRow("y", 3, nan)}}.Draw(
			"a"),
	} {
		t.Run(name, func(t *testing.T) { wellFormed(t, svg) })
	}
}

// marker matches the area around a mark that reacts to the mouse pointer.
var marker = regexp.MustCompile(`<circle class="hit" cx="([0-9.-]+)" cy="([0-9.-]+)"`)

// hits returns the places of the marks in pixels, in the order of drawing.
func hits(t *testing.T, svg string) [][2]float64 {
	t.Helper()
	var out [][2]float64
	for _, m := range marker.FindAllStringSubmatch(svg, -1) {
		x, errX := strconv.ParseFloat(m[1], 64)
		y, errY := strconv.ParseFloat(m[2], 64)
		if err := errors.Join(errX, errY); err != nil {
			t.Fatal(err)
		}
		out = append(out, [2]float64{x, y})
	}
	return out
}

// TestScales: on a linear axis equal steps have equal lengths, and it begins at zero. On a logarithmic axis half and
// double are equally far from 1.
func TestScales(t *testing.T) {
	// line draws points and returns their places. near requires two lengths in pixels to be equal.
	line := func(ch chart.XY, points ...chart.Point) [][2]float64 {
		ch.Reference = nan
		ch.Series = []chart.Series{{Points: points}}
		return hits(t, ch.Draw("a"))
	}
	near := func(what string, a, b float64) {
		if math.Abs(a-b) > 0.25 {
			t.Errorf("%s: %.1f and %.1f pixels", what, a, b)
		}
	}
	p := line(chart.XY{}, at(100, 10), at(200, 20), at(300, 30))
	near("steps along", p[1][0]-p[0][0], p[2][0]-p[1][0])
	near("steps up", p[0][1]-p[1][1], p[1][1]-p[2][1])
	p = line(chart.XY{Y: chart.Logarithmic}, at(1, 0.5), at(2, 1), at(3, 2))
	near("half and double", p[0][1]-p[1][1], p[1][1]-p[2][1])
	p = line(chart.XY{}, at(1, 1), at(10, 1), at(100, 1))
	near("decades", p[1][0]-p[0][0], p[2][0]-p[1][0])
	zero := regexp.MustCompile(`text-anchor="end"[^>]*>0</text>`)
	if svg := (chart.XY{Reference: nan, Series: []chart.Series{{Points: []chart.Point{at(1, 90), at(2, 100)}}}}).Draw(
		"a"); !zero.MatchString(svg) {
		t.Error("the axis does not begin at zero")
	}
}

// TestBarBeyondLargestValue: the part of a bar beyond its measured part is drawn as an open bar.
func TestBarBeyondLargestValue(t *testing.T) {
	bars := chart.Forest{
		Bars: true, Rows: []chart.ForestRow{barRow("beyond", 1, 4), barRow("measured", 3, 3), barRow("inside", 3, 2)}}
	svg := bars.Draw("a")
	if n := strings.Count(svg, `class="beyond `); n != 1 {
		t.Errorf("%d open bars, want 1", n)
	}
	if n := strings.Count(svg, `class="amount `); n != 3 {
		t.Errorf("%d solid bars, want 3", n)
	}
}

// TestSeriesDifferInMoreThanColour: no two of twelve devices and the clean router
// share a marker's outline, and hollow marks have dashed lines.
func TestSeriesDifferInMoreThanColour(t *testing.T) {
	outline := regexp.MustCompile(`<(?:path|circle) class="mark [^"]*" (?:d="([^"]*)"|cx="[^"]*" cy="[^"]*" (r)=)`)
	seen := map[string]int{}
	for number := chart.Clean; number < chart.Colours; number++ {
		ch := chart.XY{Reference: nan,
			Series: []chart.Series{{Style: chart.Style{Number: number}, Points: []chart.Point{at(1, 1)}}}}
		marks := outline.FindAllStringSubmatch(ch.Draw("a"), -1)
		if len(marks) != 2 { // one in the legend, one in the chart
			t.Fatalf("style %d has %d marks", number, len(marks))
		}
		shape := marks[1][1] + marks[1][2]
		if other, taken := seen[shape]; taken {
			t.Errorf("styles %d and %d have the same marker", number, other)
		}
		seen[shape] = number
	}
	ch := chart.XY{Reference: nan,
		Series: []chart.Series{{Style: chart.Style{Hollow: true}, Points: []chart.Point{at(1, 1), at(2, 2)}}}}
	if svg := ch.Draw("a"); !strings.Contains(svg, `class="join s0 hollow"`) ||
		!strings.Contains(svg, `class="mark s0 hollow"`) {
		t.Error("a hollow series looks like a filled one")
	}
}

// TestCurveMarksWhatHasATip: a distribution (Curve) is a line over a logarithmic axis, and only points with a text for
// the mouse pointer (Tip) have marks.
func TestCurveMarksWhatHasATip(t *testing.T) {
	tipped := at(10, 50)
	tipped.Tip = "half"
	svg := chart.XY{Reference: nan, Curve: true, Series: []chart.Series{
		{Name: "x", Points: []chart.Point{at(1, 1), tipped, at(100, 100)}},
		{Name: "y", Points: []chart.Point{at(1, 2)}},
	}}.Draw("a")
	wellFormed(t, svg)
	if n := strings.Count(svg, `<g class="point"`); n != 1 {
		t.Errorf("%d points are marked, want the one with a tip", n)
	}
	// In the middle between 1 and 100 on a logarithmic axis, and halfway up.
	line := regexp.MustCompile(`d="M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)"`).FindStringSubmatch(svg)
	if line == nil {
		t.Fatalf("no line of three points in %s", svg)
	}
	x := make([]float64, 3)
	for i := range x {
		x[i], _ = strconv.ParseFloat(line[1+2*i], 64)
	}
	if math.Abs(x[1]-(x[0]+x[2])/2) > 0.2 {
		t.Errorf("1, 10 and 100 are at %v", x)
	}
}
