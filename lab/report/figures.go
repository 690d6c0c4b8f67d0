package report

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/report/chart"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Limits of what is drawn. The records have everything.
const (
	rawPerCell  = 200  // largest number of single trials drawn for a cell
	rawInAll    = 6000 // largest number of single trials in a chart of all cells; with more, fewer for each cell
	chartsOpen  = 4    // number of visible charts; further ones are folded away
	panelsDrawn = 12   // largest number of sweeps drawn of one profile and direction, three charts each
)

// figure is a drawn chart with its caption and the figures it shows.
type figure struct {
	Heading string
	SVG     template.HTML
	Caption string
	Data    grid
}

// figureGroup has the charts of one profile and direction. A group in a group is folded away under its heading.
type figureGroup struct {
	Heading string
	Figures []figure
	Folds   []figureGroup
	Note    string
	Stacked bool // one figure below the other
}

// drawing holds what the charts of a report share.
type drawing struct {
	summary   analysis.Summary
	dir       string                         // the run's folder
	trials    map[result.Cell][]result.Trial // accepted trials
	aa        []result.Trial                 // accepted A/A pairs
	styles    map[string]int                 // by DUT
	inWindows []analysis.CellCourse          // courses of windows; empty if the run did not record them
	perCell   int                            // number of single trials drawn for a cell
	thinned   bool                           // some single trials are not drawn
	count     int                            // number of charts drawn so far, for their ids
}

func newDrawing(run result.Run, s analysis.Summary) *drawing {
	d := &drawing{summary: s, dir: run.Dir, trials: map[result.Cell][]result.Trial{},
		styles: map[string]int{analysis.Clean: chart.Clean}}
	for _, c := range s.Cells {
		d.style(c.DUT())
	}
	counts := analysis.Counting(cost.TrialsOf(run.Trials))
	for i, t := range run.Trials {
		switch {
		case !t.Accepted, !counts[i]:
		case t.AA:
			d.aa = append(d.aa, t)
		default:
			d.trials[t.Cell] = append(d.trials[t.Cell], t)
		}
	}
	d.inWindows, _ = coursesOf(run) // what cannot be read is not shown
	d.perCell = min(rawPerCell, max(10, rawInAll/max(len(s.Cells), 1)))
	return d
}

// style returns the look of a device. It is the same in every chart of the page.
func (d *drawing) style(dut string) chart.Style {
	number, seen := d.styles[dut]
	if !seen {
		number = len(d.styles) - 1 // the clean router is in the map and not counted
		d.styles[dut] = number
	}
	return chart.Style{Number: number}
}

// grouped draws a group of charts for each run of cells that have some dimensions in common.
func grouped(cells []analysis.Cell, draw func([]analysis.Cell) figureGroup, by ...result.Dimension) (
	out []figureGroup) {
	for len(cells) > 0 {
		n := slices.IndexFunc(cells, func(c analysis.Cell) bool { return !sameDimensions(c.Cell, cells[0].Cell, by...) })
		if n < 0 {
			n = len(cells)
		}
		out = append(out, draw(cells[:n]))
		cells = cells[n:]
	}
	return out
}

// group draws the charts of cells with the same kind of packets and the same direction. The first few charts are
// visible. The others, and those of CPU as sampled, are folded away.
func (d *drawing) group(cells []analysis.Cell) figureGroup {
	d.thinned = false
	g := figureGroup{Heading: words.Capitalised(packetsInWords(cells[0].Cell))}
	var shown, sampled []figure
	panels, more := bounded(panelsOf(d.summary, cells), panelsDrawn)
	for _, p := range panels {
		shown = append(shown, d.panelCPU(p, normalised), d.panelRatio(p))
		sampled = append(sampled, d.panelCPU(p, asSampled))
	}
	if len(panels) == 0 {
		shown = d.rows(cells)
	}
	var folded int
	if g.Figures, folded = bounded(shown, chartsOpen); folded > 0 {
		g.Folds = append(g.Folds, figureGroup{Heading: words.Counted(folded, "more chart"), Figures: shown[chartsOpen:]})
	}
	if len(sampled) > 0 {
		g.Folds = append(g.Folds, figureGroup{Heading: "CPU as sampled, before it is normalised", Figures: sampled})
	}
	if more > 0 {
		g.Note = fmt.Sprintf(
			"%s of lighter loads are not drawn; their figures are in the tables. ", words.Counted(more, "more sweep"))
	}
	if d.thinned {
		g.Note += fmt.Sprintf("At most %d trials a cell are drawn as dots; means and intervals are of all.", d.perCell)
	}
	return g
}

// finish makes a figure of a drawn chart and the figures it shows.
func (d *drawing) finish(heading, caption string, draw func(id string) string, data grid) figure {
	d.count++
	data.Caption = heading
	return figure{heading, template.HTML(draw(fmt.Sprintf("chart%d", d.count))), caption, data}
}

// sample returns the accepted trials of a cell. Of many it returns every n-th only.
func (d *drawing) sample(c analysis.Cell) []result.Trial { return d.thin(d.trials[c.Cell], d.perCell) }

// ratios returns the overhead ratio of each trial that has one.
func ratios(trials []result.Trial) (out []float64) {
	for _, t := range trials {
		if r := cost.Ratio(t); r.Known() {
			out = append(out, float64(r))
		}
	}
	return out
}

func (d *drawing) thin(all []result.Trial, most int) []result.Trial {
	if len(all) <= most {
		return all
	}
	d.thinned = true
	out := make([]result.Trial, 0, most)
	for i := range most {
		out = append(out, all[i*len(all)/most])
	}
	return out
}

// band is the interval of the A/A pairs, if there is one.
func (d *drawing) band() chart.Band {
	r := d.summary.AA.Ratio
	if !r.HasInterval() {
		return chart.Band{}
	}
	return chart.Band{Lo: float64(r.Lo), Hi: float64(r.Hi), Name: "Noise floor, two clean routers"}
}

// rows draws one row for each cell, for runs that have one load and one number of clients.
func (d *drawing) rows(cells []analysis.Cell) []figure {
	cells = slices.DeleteFunc(slices.Clone(cells), func(c analysis.Cell) bool { return c.Pairs == 0 })
	if len(cells) == 0 {
		return nil
	}
	where, each := commonText(cells, loadAndClients)
	label := func(c analysis.Cell) string { return words.Joined(" at ", c.DUT(), each(c)) }
	if where == "" {
		where = "each point of the sweep"
	}
	plain := chart.Style{Number: chart.Clean}
	cpu := chart.Forest{Title: "Router CPU at " + where, XLabel: "Router CPU, % of one core", Reference: math.NaN(),
		Legend: []chart.Series{{Style: plain, Name: "clean router beside the device", Apart: true}},
		Desc:   chartInWords(cells, func(c analysis.Cell) string { return cpuTip(c, c.DUT(), c.Device(cost.CPU)) })}
	overhead := chart.Forest{
		Title: ratioName(d.summary) + " at " + where, XLabel: "CPU per bit, × clean router", X: chart.Logarithmic,
		Reference: 1, Band: d.band(), Desc: chartInWords(cells, ratioTip)}
	for _, c := range cells {
		own, others, change, key := c.Device(cost.CPU), c.Clean(cost.CPU), c.Change(cost.PerBit), c.Cell.String()
		dut := chart.ForestMark{Style: d.style(c.DUT()), Point: meanPoint(key, 0, own, cpuTip(c, c.DUT(), own))}
		beside := chart.ForestMark{
			Style: plain, Point: meanPoint(key, 0, others, cpuTip(c, "clean router beside "+c.DUT(), others))}
		quotient := chart.ForestMark{
			Style: dut.Style, Point: meanPoint(key, 0, change, ratioTip(c)), Raw: ratios(d.sample(c))}
		for _, t := range d.sample(c) {
			sides := cost.SidesOf(t)
			dut.Raw, beside.Raw = append(dut.Raw, sides.DUT.CPUCorePct()), append(beside.Raw, sides.Clean.CPUCorePct())
		}
		cpu.Rows = append(cpu.Rows, chart.ForestRow{Label: label(c), Text: percent(own.Mean) + ", clean " + percent(
			others.Mean), Marks: []chart.ForestMark{beside, dut}})
		overhead.Rows = append(overhead.Rows, chart.ForestRow{Label: label(c), Text: ratio(change.Mean) + " × " + bounds(
			change, ratio), Marks: []chart.ForestMark{quotient}})
	}
	return []figure{
		d.finish(cpu.Title, "Marks are means over blocks with their intervals, dots are single trials.", cpu.Draw,
			build("", d.summary, cells, device(cost.CPU, "DUT CPU", "*"), cleanColumn(cost.CPU, "Clean CPU", "*"))),
		d.finish(overhead.Title, d.pairCaption(), overhead.Draw,
			build("", d.summary, withFigure(cells, costRatio), overheadColumn(d.summary))),
	}
}

func loadAndClients(c analysis.Cell) string {
	return rate(offeredMbps(c.Cell)) + ", " + clientsOf(c.Cell)
}

// meanPoint returns the point of a chart at x for a mean with its interval. key names the cell in the page's data
// attributes.
func meanPoint(key string, x float64, e analysis.Estimate, tip string) chart.Point {
	p := chart.Point{X: x, Y: float64(e.Mean), Lo: math.NaN(), Hi: math.NaN(), Tip: tip, Key: key, Value: e.Mean.String()}
	if e.HasInterval() && !isOpenInterval(e) {
		p.Lo, p.Hi = float64(e.Lo), float64(e.Hi)
	}
	return p
}

func cpuTip(c analysis.Cell, name string, e analysis.Estimate) string {
	return fmt.Sprintf(
		"%s: %s of a core %s at %s; delivered %s", name, percent(e.Mean), bounds(e, percent), loadAndClients(c),
		rate(c.Device(cost.Delivered).Mean))
}

func ratioTip(c analysis.Cell) string {
	e := c.Change(cost.PerBit)
	return fmt.Sprintf(
		"%s: × %s %s at %s (%s, %s)", c.DUT(), ratio(e.Mean), bounds(e, ratio), loadAndClients(c), words.Counted(
			c.Blocks, "block"), c.Verdict)
}

// chartInWords describes a chart's marks in words: the tip of each cell.
func chartInWords(cells []analysis.Cell, tip func(analysis.Cell) string) string {
	return sentences(textsOf(cells, tip))
}

// sentences joins the tips of at most a dozen marks of a chart; its table has all.
func sentences(tips []string) string {
	tips, more := bounded(tips, 12)
	if more > 0 {
		tips = append(slices.Clone(tips), fmt.Sprintf("%d more in its table", more))
	}
	if len(tips) == 0 {
		return ""
	}
	return strings.Join(tips, ". ") + "."
}

// pairCaption returns the caption of figures of ratios. It explains the dots, the marks and the band of the noise
// floor.
func (d *drawing) pairCaption() string {
	const dots = "Dots are single pairs, without what a daemon does now and then; marks have their share of that. "
	if !d.summary.AA.Ratio.HasInterval() {
		return dots + "The noise floor is not known."
	}
	return dots + "The shaded band is the noise floor: what two clean routers differ by."
}
