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

// Limits of what is drawn; the records keep everything.
const (
	rawPerCell  = 200  // single trials drawn a cell
	rawInAll    = 6000 // single trials drawn a chart of all cells, before fewer a cell are drawn
	chartsOpen  = 4    // charts shown at once, the others fold away
	panelsDrawn = 12   // sweeps drawn of one profile and direction, three charts each
)

// figure is a drawn chart with its caption and the figures it shows.
type figure struct {
	Heading string
	SVG     template.HTML
	Caption string
	Data    grid
}

// figureGroup is the charts of one profile and direction.
type figureGroup struct {
	Heading string
	Figures []figure
	Folds   []figureFold
	Note    string
}

// figureFold is charts that are folded away under a heading.
type figureFold struct {
	Heading string
	Figures []figure
}

// drawing holds what the charts of a report share.
type drawing struct {
	summary analysis.Summary
	dir     string                         // the run's folder
	trials  map[result.Cell][]result.Trial // accepted ones
	aa      []result.Trial                 // accepted A/A pairs
	styles  map[string]int                 // by DUT
	perCell int                            // single trials drawn a cell
	thinned bool                           // some were left out
	count   int                            // charts drawn, for ids
}

func newDrawing(run result.Run, s analysis.Summary) *drawing {
	d := &drawing{summary: s, dir: run.Dir, trials: map[result.Cell][]result.Trial{}, styles: map[string]int{analysis.Clean: chart.Clean}}
	for _, c := range s.Cells {
		d.style(c.DUT())
	}
	for _, t := range run.Trials {
		switch {
		case !t.Accepted:
		case t.AA:
			d.aa = append(d.aa, t)
		default:
			d.trials[t.Cell] = append(d.trials[t.Cell], t)
		}
	}
	d.perCell = min(rawPerCell, max(10, rawInAll/max(len(s.Cells), 1)))
	return d
}

// style is the look of a device, the same in every chart of the page.
func (d *drawing) style(dut string) chart.Style {
	number, seen := d.styles[dut]
	if !seen {
		number = len(d.styles) - 1 // the clean router is in the map and not counted
		d.styles[dut] = number
	}
	return chart.Style{Number: number}
}

// groups draws the charts of the sweeps: one group a profile and direction.
func (d *drawing) groups() []figureGroup {
	var out []figureGroup
	cells := d.summary.Cells
	for len(cells) > 0 {
		n := 1
		for n < len(cells) && cells[n].Text(result.Profile) == cells[0].Text(result.Profile) && cells[n].Text(result.Direction) == cells[0].Text(result.Direction) {
			n++
		}
		out = append(out, d.group(cells[:n]))
		cells = cells[n:]
	}
	return out
}

// group draws the charts of one profile and direction: the first few in sight,
// the others and CPU as sampled folded away.
func (d *drawing) group(cells []analysis.Cell) figureGroup {
	d.thinned = false
	g := figureGroup{Heading: fmt.Sprintf("%s, %s", words.Capitalised(words.Direction(cells[0].Text(result.Direction))), cells[0].Text(result.Profile))}
	var shown, sampled []figure
	panels := panelsOf(d.summary, cells)
	more := max(0, len(panels)-panelsDrawn)
	for _, p := range panels[:len(panels)-more] {
		shown = append(shown, d.panelCPU(p, normalised), d.panelRatio(p))
		sampled = append(sampled, d.panelCPU(p, asSampled))
	}
	if len(panels) == 0 {
		shown = d.rows(cells)
	}
	open := min(len(shown), chartsOpen)
	g.Figures = shown[:open]
	if open < len(shown) {
		g.Folds = append(g.Folds, figureFold{words.Counted(len(shown)-open, "more chart"), shown[open:]})
	}
	if len(sampled) > 0 {
		g.Folds = append(g.Folds, figureFold{"CPU as sampled, before it is normalised", sampled})
	}
	if more > 0 {
		g.Note = fmt.Sprintf("%s of lighter loads are not drawn; their figures are in the tables. ", words.Counted(more, "more sweep"))
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

// sample is the accepted trials of a cell, evenly thinned out when they are many.
func (d *drawing) sample(c analysis.Cell) []result.Trial {
	return d.thin(d.trials[c.Cell], d.perCell)
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

// markKey names a cell in the page's data attributes: "dut=opennds clients=100".
func markKey(c result.Cell) string { return c.String() }

// band is the interval of the A/A pairs; NaN when there is none.
func (d *drawing) band() [2]float64 {
	r := d.summary.AA.Ratio
	if !r.HasInterval() {
		return [2]float64{math.NaN(), math.NaN()}
	}
	return [2]float64{float64(r.Lo), float64(r.Hi)}
}

// noBand is for charts without one.
func noBand() [2]float64 { return [2]float64{math.NaN(), math.NaN()} }

const bandName = "Noise floor, two clean routers"

func (d *drawing) bandCaption() string {
	if !d.summary.AA.Ratio.HasInterval() {
		return "The noise floor is not known."
	}
	return "The shaded band is the noise floor: what two clean routers differ by."
}

// rows draws one row a cell, for runs that sweep over nothing.
func (d *drawing) rows(cells []analysis.Cell) []figure {
	cells = slices.DeleteFunc(slices.Clone(cells), func(c analysis.Cell) bool { return c.Pairs == 0 })
	if len(cells) == 0 {
		return nil
	}
	where := place(cells[0])
	label := func(c analysis.Cell) string { return c.DUT() }
	if slices.ContainsFunc(cells, func(c analysis.Cell) bool { return place(c) != where }) {
		label, where = func(c analysis.Cell) string { return c.DUT() + " at " + place(c) }, "each point of the sweep"
	}
	plain := chart.Style{Number: chart.Clean}
	cpu := chart.Forest{Title: "Router CPU at " + where, XLabel: "Router CPU, % of one core", Reference: math.NaN(), Band: noBand(),
		Legend: []chart.LegendEntry{{Style: plain, Name: "clean router beside the device", MarkOnly: true}}}
	overhead := chart.Forest{Title: ratioName(d.summary) + " at " + where, XLabel: "CPU per bit, × clean router", LogX: true,
		Reference: 1, Band: d.band(), BandName: bandName}
	for _, c := range cells {
		dut := chart.ForestMark{Style: d.style(c.DUT()), Point: mark(c, 0, c.Device(cost.CPU), cpuTip(c, c.DUT(), c.Device(cost.CPU)))}
		beside := chart.ForestMark{Style: plain, Point: mark(c, 0, c.Clean(cost.CPU), cpuTip(c, "clean router beside "+c.DUT(), c.Clean(cost.CPU)))}
		quotient := chart.ForestMark{Style: d.style(c.DUT()), Point: mark(c, 0, c.Change(cost.PerBit), ratioTip(c))}
		for _, t := range d.sample(c) {
			dut.Raw = append(dut.Raw, t.DUT.CPUCorePct())
			beside.Raw = append(beside.Raw, t.Clean.CPUCorePct())
			if r := cost.Ratio(t); r.Known() {
				quotient.Raw = append(quotient.Raw, float64(r))
			}
		}
		cpu.Rows = append(cpu.Rows, chart.ForestRow{Label: label(c), Text: percent(c.Device(cost.CPU).Mean) + ", clean " + percent(c.Clean(cost.CPU).Mean),
			Marks: []chart.ForestMark{beside, dut}})
		overhead.Rows = append(overhead.Rows, chart.ForestRow{Label: label(c), Text: ratio(c.Change(cost.PerBit).Mean) + " × " + bounds(c.Change(cost.PerBit), ratio),
			Marks: []chart.ForestMark{quotient}})
	}
	cpu.Desc = describe(cells, func(c analysis.Cell) string { return cpuTip(c, c.DUT(), c.Device(cost.CPU)) })
	overhead.Desc = describe(cells, ratioTip)
	return []figure{
		d.finish(cpu.Title, "Marks are means over blocks with their intervals, dots are single trials.", cpu.Draw, cellData(cells,
			device(cost.CPU, "DUT CPU", "% of a core", bare), clean(cost.CPU, "Clean CPU", "% of a core", bare))),
		d.finish(overhead.Title, pairDots+d.bandCaption(), overhead.Draw, cellData(cells, overheadColumn(d.summary))),
	}
}

func place(c analysis.Cell) string {
	return rate(offered(c.Cell)) + ", " + words.Counted(c.Int(result.Clients), "client")
}

// mark is a mean of a cell at X.
func mark(c analysis.Cell, x float64, e analysis.Estimate, tip string) chart.Point {
	p := estimatePoint(x, e, tip)
	p.Key = markKey(c.Cell)
	return p
}

func estimatePoint(x float64, e analysis.Estimate, tip string) chart.Point {
	p := chart.Point{X: x, Y: float64(e.Mean), Lo: math.NaN(), Hi: math.NaN(), Tip: tip, Value: e.Mean.String()}
	if e.HasInterval() && !leftOpen(e) {
		p.Lo, p.Hi = float64(e.Lo), float64(e.Hi)
	}
	return p
}

func cpuTip(c analysis.Cell, name string, e analysis.Estimate) string {
	return fmt.Sprintf("%s: %s of a core %s at %s, %s; delivered %s", name, percent(e.Mean), bounds(e, percent),
		rate(offered(c.Cell)), words.Counted(c.Int(result.Clients), "client"), rate(c.Device(cost.Delivered).Mean))
}

func ratioTip(c analysis.Cell) string {
	return fmt.Sprintf("%s: × %s %s at %s, %s (%s, %s)", c.DUT(), ratio(c.Change(cost.PerBit).Mean), bounds(c.Change(cost.PerBit), ratio),
		rate(offered(c.Cell)), words.Counted(c.Int(result.Clients), "client"), words.Counted(c.Blocks, "block"), c.Verdict)
}

// describe is the chart in words.
func describe(cells []analysis.Cell, words func(analysis.Cell) string) string {
	var tips []string
	for _, c := range cells {
		tips = append(tips, words(c))
	}
	return sentences(tips)
}

// sentences are what a chart's marks say, of at most a dozen; its table has all.
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

// pairDots begins the captions of figures whose marks have more than their dots.
const pairDots = "Dots are single pairs, without what a daemon does now and then; marks have their share of that. "
