package report

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Limits of what is drawn; the records keep everything.
const (
	rawPerCell = 200  // single trials drawn a cell
	rawInAll   = 6000 // single trials drawn a report, before fewer a cell are drawn
	chartsOpen = 4    // charts shown at once, the others fold away
)

// figure is a drawn chart with its caption.
type figure struct {
	Heading string
	SVG     template.HTML
	Caption string
}

// figureGroup is the charts of one profile and direction.
type figureGroup struct {
	Heading string
	Figures []figure
	Folded  []figure
	Note    string
}

// drawing holds what the charts of a report share.
type drawing struct {
	summary analysis.Summary
	trials  map[result.Cell][]result.Trial // accepted ones
	styles  map[string]int                 // by DUT
	perCell int                            // single trials drawn a cell
	thinned bool                           // some were left out
	count   int                            // charts drawn, for ids
}

func newDrawing(run result.Run, s analysis.Summary) *drawing {
	d := &drawing{summary: s, trials: map[result.Cell][]result.Trial{}, styles: map[string]int{}}
	for _, c := range s.Cells {
		if _, seen := d.styles[c.DUT]; !seen {
			d.styles[c.DUT] = len(d.styles)
		}
	}
	for _, t := range run.Trials {
		if t.Accepted && !t.AA {
			d.trials[t.Cell] = append(d.trials[t.Cell], t)
		}
	}
	d.perCell = min(rawPerCell, max(10, rawInAll/max(len(s.Cells), 1)))
	return d
}

// groups draws all charts: one group a profile and direction.
func (d *drawing) groups() []figureGroup {
	var out []figureGroup
	cells := d.summary.Cells
	for len(cells) > 0 {
		n := 1
		for n < len(cells) && cells[n].Profile == cells[0].Profile && cells[n].Direction == cells[0].Direction {
			n++
		}
		out = append(out, d.group(cells[:n]))
		cells = cells[n:]
	}
	return out
}

func (d *drawing) group(cells []analysis.Cell) figureGroup {
	d.thinned = false
	figures := d.sweeps(cells)
	g := figureGroup{Heading: fmt.Sprintf("%s, %s", capitalised(directionWord(cells[0].Direction)), cells[0].Profile)}
	g.Figures = figures[:min(len(figures), chartsOpen)]
	g.Folded = figures[len(g.Figures):]
	if d.thinned {
		g.Note = fmt.Sprintf("At most %d trials a cell are drawn as dots; means and intervals are of all.", d.perCell)
	}
	return g
}

// sweeps draws CPU and overhead over whatever varies: offered load for each
// number of clients and clients for each load, the heaviest first and by turns,
// or one row a device when nothing varies.
func (d *drawing) sweeps(cells []analysis.Cell) []figure {
	load := func(c analysis.Cell) float64 { return float64(c.OfferedMbps) }
	clients := func(c analysis.Cell) float64 { return float64(c.Clients) }
	overLoad := d.panels(cells, clients, func(fixed float64) sweep {
		return sweep{of: load, label: "Offered load, Mbit/s of payload", name: "offered load", fixed: counted(int(fixed), "client")}
	})
	overClients := d.panels(cells, load, func(fixed float64) sweep {
		return sweep{of: clients, label: "Clients", name: "clients", fixed: rate(analysis.Number(fixed))}
	})
	var out []figure
	for i := range max(len(overLoad), len(overClients)) {
		if i < len(overLoad) {
			out = append(out, overLoad[i]...)
		}
		if i < len(overClients) {
			out = append(out, overClients[i]...)
		}
	}
	if len(out) == 0 {
		return d.rows(cells)
	}
	return out
}

// panels draws one pair of charts for each value of what is held fixed, largest first.
func (d *drawing) panels(cells []analysis.Cell, fixed func(analysis.Cell) float64, along func(float64) sweep) [][]figure {
	var out [][]figure
	for _, value := range slices.Backward(distinct(cells, fixed)) {
		x, part := along(value), only(cells, fixed, value)
		if len(distinct(part, x.of)) < 2 {
			continue
		}
		if figures := d.pair(part, x); figures != nil {
			out = append(out, figures)
		}
	}
	return out
}

// sweep is the quantity along the horizontal axis.
type sweep struct {
	of                 func(analysis.Cell) float64
	label, name, fixed string
}

func distinct(cells []analysis.Cell, of func(analysis.Cell) float64) []float64 {
	var out []float64
	for _, c := range cells {
		out = append(out, of(c))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func only(cells []analysis.Cell, of func(analysis.Cell) float64, value float64) []analysis.Cell {
	return slices.DeleteFunc(slices.Clone(cells), func(c analysis.Cell) bool { return of(c) != value })
}

// pair draws the CPU chart and the overhead chart of one sweep.
func (d *drawing) pair(cells []analysis.Cell, x sweep) []figure {
	cpu := chart{
		Title:  fmt.Sprintf("Router CPU over %s, %s", x.name, x.fixed),
		XLabel: x.label, YLabel: "Router CPU, % of one core", XTick: tickText, Reference: math.NaN(),
	}
	overhead := chart{
		Title:  fmt.Sprintf("Overhead ratio over %s, %s", x.name, x.fixed),
		XLabel: x.label, YLabel: "CPU per bit, × clean router", XTick: tickText,
		LogY: true, Reference: 1, Band: d.band(),
	}
	clean := series{Name: "clean router", Style: cleanStyle}
	var devices, ratios []series
	for _, name := range devicesOf(cells) {
		dut, quotient := series{Name: name, Style: d.styles[name]}, series{Name: name, Style: d.styles[name]}
		for _, c := range cells {
			if c.DUT != name || c.Pairs == 0 {
				continue
			}
			at := x.of(c)
			dut.Points = append(dut.Points, estimatePoint(at, c.CPUCorePct, cpuTip(c, name, c.CPUCorePct)))
			clean.Points = append(clean.Points, estimatePoint(at, c.CleanCPUCorePct, cpuTip(c, "clean router beside "+name, c.CleanCPUCorePct)))
			if c.OverheadRatio.Mean.Known() {
				quotient.Points = append(quotient.Points, estimatePoint(at, c.OverheadRatio, ratioTip(c)))
			}
			for _, t := range d.sample(c) {
				dut.Raw = append(dut.Raw, [2]float64{at, t.DUT.CPUCorePct()})
				clean.Raw = append(clean.Raw, [2]float64{at, t.Clean.CPUCorePct()})
				if r := analysis.TrialRatio(t); r.Known() {
					quotient.Raw = append(quotient.Raw, [2]float64{at, float64(r)})
				}
			}
		}
		devices, ratios = append(devices, dut), append(ratios, quotient)
	}
	if len(clean.Points) == 0 {
		return nil
	}
	slices.SortStableFunc(clean.Points, func(a, b point) int { return cmp.Compare(a.X, b.X) })
	cpu.Series, overhead.Series = append([]series{clean}, devices...), ratios
	cpu.Desc = describe(cells, func(c analysis.Cell) string { return cpuTip(c, c.DUT, c.CPUCorePct) })
	overhead.Desc = describe(cells, ratioTip)
	return []figure{
		{cpu.Title, d.svg(cpu.draw), "Marks are means over blocks with their intervals, dots are single trials."},
		{overhead.Title, d.svg(overhead.draw), "Dots are single pairs. " + d.bandCaption()},
	}
}

// rows draws one row a cell, for runs that sweep over nothing.
func (d *drawing) rows(cells []analysis.Cell) []figure {
	where := place(cells[0])
	label := func(c analysis.Cell) string { return c.DUT }
	if slices.ContainsFunc(cells, func(c analysis.Cell) bool { return place(c) != where }) {
		label, where = func(c analysis.Cell) string { return c.DUT + " at " + place(c) }, "each point of the sweep"
	}
	cpu := forest{Title: "Router CPU at " + where, XLabel: "Router CPU, % of one core", Reference: math.NaN(),
		Legend: []legendEntry{{cleanStyle, "clean router beside the device"}}}
	overhead := forest{Title: "Overhead ratio at " + where, XLabel: "CPU per bit, × clean router", LogX: true, Reference: 1, Band: d.band()}
	for _, c := range cells {
		if c.Pairs == 0 {
			continue
		}
		dut := forestMark{Style: d.styles[c.DUT], Point: estimatePoint(0, c.CPUCorePct, cpuTip(c, c.DUT, c.CPUCorePct))}
		clean := forestMark{Style: cleanStyle, Point: estimatePoint(0, c.CleanCPUCorePct, cpuTip(c, "clean router beside "+c.DUT, c.CleanCPUCorePct))}
		quotient := forestMark{Style: d.styles[c.DUT], Point: estimatePoint(0, c.OverheadRatio, ratioTip(c))}
		for _, t := range d.sample(c) {
			dut.Raw = append(dut.Raw, t.DUT.CPUCorePct())
			clean.Raw = append(clean.Raw, t.Clean.CPUCorePct())
			if r := analysis.TrialRatio(t); r.Known() {
				quotient.Raw = append(quotient.Raw, float64(r))
			}
		}
		cpu.Rows = append(cpu.Rows, forestRow{label(c), percent(c.CPUCorePct.Mean) + ", clean " + percent(c.CleanCPUCorePct.Mean), []forestMark{clean, dut}})
		overhead.Rows = append(overhead.Rows, forestRow{label(c), ratio(c.OverheadRatio.Mean) + " × " + bounds(c.OverheadRatio, ratio), []forestMark{quotient}})
	}
	if len(cpu.Rows) == 0 {
		return nil
	}
	cpu.Desc = describe(cells, func(c analysis.Cell) string { return cpuTip(c, c.DUT, c.CPUCorePct) })
	overhead.Desc = describe(cells, ratioTip)
	return []figure{
		{cpu.Title, d.svg(cpu.draw), "Marks are means over blocks with their intervals, dots are single trials."},
		{overhead.Title, d.svg(overhead.draw), "Dots are single pairs. " + d.bandCaption()},
	}
}

func place(c analysis.Cell) string {
	return rate(c.OfferedMbps) + ", " + counted(c.Clients, "client")
}

func (d *drawing) svg(draw func(id string) string) template.HTML {
	d.count++
	return template.HTML(draw(fmt.Sprintf("chart%d", d.count)))
}

// sample is the accepted trials of a cell, evenly thinned out when they are many.
func (d *drawing) sample(c analysis.Cell) []result.Trial {
	all := d.trials[result.Cell{
		DUT: c.DUT, Clients: c.Clients, OfferedMbps: float64(c.OfferedMbps), Direction: c.Direction, Profile: c.Profile,
	}]
	if len(all) <= d.perCell {
		return all
	}
	d.thinned = true
	out := make([]result.Trial, 0, d.perCell)
	for i := range d.perCell {
		out = append(out, all[i*len(all)/d.perCell])
	}
	return out
}

// band is the interval of the A/A pairs; NaN when there is none.
func (d *drawing) band() [2]float64 {
	r := d.summary.AA.Ratio
	if !r.HasInterval() {
		return [2]float64{math.NaN(), math.NaN()}
	}
	return [2]float64{float64(r.Lo), float64(r.Hi)}
}

func (d *drawing) bandCaption() string {
	if !d.summary.AA.Ratio.HasInterval() {
		return "The noise floor is not known."
	}
	return "The shaded band is the noise floor: what two clean routers differ by."
}

func devicesOf(cells []analysis.Cell) []string {
	var out []string
	for _, c := range cells {
		out = append(out, c.DUT)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func estimatePoint(x float64, e analysis.Estimate, tip string) point {
	p := point{X: x, Y: float64(e.Mean), Lo: math.NaN(), Hi: math.NaN(), Tip: tip}
	if e.HasInterval() {
		p.Lo, p.Hi = float64(e.Lo), float64(e.Hi)
	}
	return p
}

func cpuTip(c analysis.Cell, name string, e analysis.Estimate) string {
	return fmt.Sprintf("%s: %s of a core %s at %s, %s; delivered %s", name, percent(e.Mean), bounds(e, percent),
		rate(c.OfferedMbps), counted(c.Clients, "client"), rate(c.DeliveredMbps))
}

func ratioTip(c analysis.Cell) string {
	return fmt.Sprintf("%s: × %s %s at %s, %s (%s, %s)", c.DUT, ratio(c.OverheadRatio.Mean), bounds(c.OverheadRatio, ratio),
		rate(c.OfferedMbps), counted(c.Clients, "client"), counted(c.Blocks, "block"), c.Verdict)
}

// describe is the chart in words, for at most a dozen cells; the table has all.
func describe(cells []analysis.Cell, words func(analysis.Cell) string) string {
	out := ""
	for i, c := range cells {
		if i == 12 {
			return out + "More in the table of results."
		}
		out += words(c) + ". "
	}
	return out
}
