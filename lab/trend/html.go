// A Trend as a page.

package trend

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/report/chart"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

//go:embed trend.html.tmpl
var formSource string

var form = template.Must(template.New("trend").Parse(formSource))

// chartsOpen is the number of charts that a page shows at once. The others are folded away.
const chartsOpen = 6

// laidOut is the trend in the form that the template needs.
type laidOut struct {
	Lead          string
	Open, Folded  []drawn
	More          string
	Runs          []told
	Apart, Left   []string
	SeveralGroups bool
	Caption       string
}

// drawn is a chart with the figures that it shows.
type drawn struct {
	Heading string
	SVG     template.HTML
	Heads   []string
	Rows    [][]string
}

// told is a run in the table of runs.
type told struct {
	Name, Link, Began, Version, Kernel, Group, Mark string
	Changed                                         []string
}

// HTML writes the trend as a page. link returns the address of a run's page by its name. Empty: there is no page. site
// is that of a server. nil: the page is self-contained.
func (t *Trend) HTML(w io.Writer, site *report.Site, link func(name string) string) error {
	var body bytes.Buffer
	if err := form.Execute(&body, t.layOut(link)); err != nil {
		return err
	}
	first, last := t.Runs[0], t.Runs[len(t.Runs)-1]
	return report.Sheet{
		Title: result.OneLine(t.Experiment) + ", its course", Site: site, Body: template.HTML(body.String()),
		Subtitle: fmt.Sprintf("%s from %s to %s", words.Counted(len(t.Runs), "run"), first.began(), last.began()),
		Contents: []report.Entry{{ID: "course", Name: "Course"}, {ID: "runs", Name: "Runs"}},
	}.HTML(w)
}

// layOut prepares the trend for the template. link is that of HTML.
func (t *Trend) layOut(link func(name string) string) laidOut {
	l := laidOut{Lead: t.lead(), SeveralGroups: len(t.Groups) > 1,
		Caption: fmt.Sprintf("Marks are means with their %g %% intervals over blocks. Runs stand in the order of their "+
			"begin, evenly spaced.", 100*t.Confidence)}
	if l.SeveralGroups {
		l.Caption += " Lines join runs whose figures stand in one row; open marks are of other groups than A."
	}
	charts := t.charts()
	l.Open, l.Folded = charts[:min(chartsOpen, len(charts))], charts[min(chartsOpen, len(charts)):]
	if n := len(l.Folded); n > 0 {
		l.More = words.Counted(n, "more chart")
	}
	for _, r := range slices.Backward(t.Runs) {
		l.Runs = append(l.Runs, told{r.Name, link(r.Name), r.began(), words.Or(r.Version, none), words.Or(r.Kernel, none),
			t.Groups[r.Group].Letter, r.mark(), r.Changed})
	}
	for _, g := range t.Groups[min(1, len(t.Groups)):] {
		l.Apart = append(l.Apart, fmt.Sprintf("%s: %s", g.Letter, strings.Join(g.Apart, "; ")))
	}
	for _, run := range t.LeftOut {
		l.Left = append(l.Left, run.Name+": "+run.Reason)
	}
	return l
}

// lead compares the last run with the run before it in its group, if one cell or device is shown.
func (t *Trend) lead() string {
	var parts []string
	for _, s := range t.Series {
		n := len(s.Points)
		if n < 2 || s.Points[n-1].Run != len(t.Runs)-1 {
			continue
		}
		last, before := s.Points[n-1].Estimate, s.Points[n-2].Estimate
		if !last.HasInterval() || !before.HasInterval() || last.Lo <= before.Hi && before.Lo <= last.Hi {
			continue
		}
		parts = append(parts, fmt.Sprintf("%s %s after %s", t.dimensions.Label(s.Cell), t.digits(last.Mean),
			t.digits(before.Mean)))
	}
	switch {
	case len(t.Runs) < 2:
		return "There is one run so far."
	case len(parts) == 0:
		return "In the latest run no interval is apart from that of the run before it."
	}
	shown := parts[:min(3, len(parts))]
	if more := len(parts) - len(shown); more > 0 {
		shown = append(slices.Clone(shown), words.Counted(more, "more cell"))
	}
	return "In the latest run intervals are apart from those of the run before it: " + words.Listed(shown) +
		". A comparison of the two judges them together."
}

// charts draws one chart for all cells that differ only in the device.
func (t *Trend) charts() (list []drawn) {
	var places []result.Cell
	var devices []string
	for _, cell := range t.cells() {
		if place := cell.Without(result.DUT); !slices.Contains(places, place) {
			places = append(places, place)
		}
		if name := cell.Text(result.DUT); !slices.Contains(devices, name) {
			devices = append(devices, name)
		}
	}
	for i, place := range places {
		list = append(list, t.chart("course"+strconv.Itoa(i), place, devices))
	}
	return list
}

// chart draws the chart of one place: the cells that differ only in the device. id names the chart on the page, devices
// lists all devices of the page, whose order decides the colours.
func (t *Trend) chart(id string, place result.Cell, devices []string) drawn {
	d := drawn{Heading: words.Or(words.Capitalised(t.dimensions.Label(place)), "All runs"), Heads: []string{"Run"}}
	xy := chart.XY{
		Title: t.Figure() + ": " + d.Heading, XLabel: "Runs in the order of their begin", YLabel: t.Figure(),
		Reference: math.NaN()}
	if t.compared() {
		xy.Y, xy.Reference = chart.Logarithmic, 1
	}
	var cells []result.Cell
	for run := range t.Runs {
		xy.Steps = append(xy.Steps, t.Label(run))
	}
	elsewhere := func(s Series) bool { return s.Cell.Without(result.DUT) != place }
	ofDevice := slices.DeleteFunc(slices.Clone(t.Series), elsewhere)
	several := slices.ContainsFunc(ofDevice, func(s Series) bool { return s.Group != ofDevice[0].Group })
	for _, s := range ofDevice {
		if !slices.Contains(cells, s.Cell) {
			cells = append(cells, s.Cell)
		}
		xy.Series = append(xy.Series, t.line(s, slices.Index(devices, s.Cell.Text(result.DUT)), several))
	}
	for _, cell := range cells {
		d.Heads = append(d.Heads, words.Or(cell.Text(result.DUT), "Figure"))
	}
	for run, r := range slices.Backward(t.Runs) {
		row := []string{words.Joined(", ", r.began(), r.Version)}
		for _, cell := range cells {
			text := none
			if e, ok := t.point(cell, run); ok {
				text = t.text(e)
			}
			row = append(row, text)
		}
		d.Rows = append(d.Rows, row)
	}
	xy.Desc = fmt.Sprintf("The course over %s; the figures are in the table below.", words.Counted(len(t.Runs), "run"))
	d.SVG = template.HTML(xy.Draw(id))
	return d
}

// line makes one series of a chart. device is the index of its device, which decides the colour. several says that the
// chart has series of several groups, so that the name needs the group's letter.
func (t *Trend) line(s Series, device int, several bool) chart.Series {
	name := words.Or(s.Cell.Text(result.DUT), "figure")
	if several {
		name += ", " + t.Groups[s.Group].Letter
	}
	line := chart.Series{Name: name, Style: chart.Style{Number: device, Hollow: s.Group > 0}}
	for _, p := range s.Points {
		r := t.Runs[p.Run]
		point := chart.Point{X: float64(p.Run), Y: float64(p.Mean), Lo: math.NaN(), Hi: math.NaN(), Key: r.Name,
			Value: p.Mean.String(),
			Tip:   words.Joined(", ", fmt.Sprintf("%s: %s", name, t.text(p.Estimate)), r.began(), r.Version, r.mark())}
		if p.HasInterval() {
			point.Lo, point.Hi = float64(p.Lo), float64(p.Hi)
		}
		line.Points = append(line.Points, point)
	}
	return line
}
