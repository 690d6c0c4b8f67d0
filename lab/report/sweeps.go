package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/report/chart"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// panel is the sweeps of all devices along one quantity with the other held
// fixed, and the cells they are made of.
type panel struct {
	along  result.Dimension // analysis.AlongLoad or AlongClients
	fixed  float64
	sweeps []analysis.Sweep
	cells  []analysis.Cell
}

// at is the place of a cell on the panel's horizontal axis.
func (p panel) at(c result.Cell) float64 {
	if p.along == result.OfferedMbps {
		return c.Number(result.OfferedMbps)
	}
	return float64(c.Int(result.Clients))
}

// holds reports whether a cell is on the panel.
func (p panel) holds(c result.Cell) bool {
	if p.along == result.OfferedMbps {
		return float64(c.Int(result.Clients)) == p.fixed
	}
	return c.Number(result.OfferedMbps) == p.fixed
}

// name, axis and place are the panel's words: "bandwidth", its axis and what is held fixed.
func (p panel) name() string {
	if p.along == result.OfferedMbps {
		return "bandwidth"
	}
	return "clients"
}

func (p panel) axis() string {
	if p.along == result.OfferedMbps {
		return "Offered load, Mbit/s of payload"
	}
	return "Clients"
}

func (p panel) place() string {
	if p.along == result.OfferedMbps {
		return words.Counted(int(p.fixed), "client")
	}
	return rate(analysis.Number(p.fixed))
}

// panelsOf groups the sweeps of the profile and direction that cells are of:
// the heaviest load and the most clients first, by turns.
func panelsOf(s analysis.Summary, cells []analysis.Cell) []panel {
	byAlong := map[result.Dimension][]panel{}
	for _, sweep := range s.Sweeps {
		if sweep.Cell.Text(result.Profile) != cells[0].Text(result.Profile) || sweep.Cell.Text(result.Direction) != cells[0].Text(result.Direction) || len(sweep.Levels) < 2 {
			continue
		}
		fixed := float64(offered(sweep.Cell))
		if sweep.Along == result.OfferedMbps {
			fixed = float64(sweep.Cell.Int(result.Clients))
		}
		list := byAlong[sweep.Along]
		i := slices.IndexFunc(list, func(p panel) bool { return p.fixed == fixed })
		if i < 0 {
			i, list = len(list), append(list, panel{along: sweep.Along, fixed: fixed})
		}
		list[i].sweeps = append(list[i].sweeps, sweep)
		byAlong[sweep.Along] = list
	}
	var out []panel
	for along, list := range byAlong {
		slices.SortFunc(list, func(a, b panel) int { return -cmp.Compare(a.fixed, b.fixed) })
		for i := range list {
			for _, c := range cells {
				if c.Pairs > 0 && list[i].holds(c.Cell) {
					list[i].cells = append(list[i].cells, c)
				}
			}
		}
		byAlong[along] = list
	}
	load, clients := byAlong[result.OfferedMbps], byAlong[result.Clients]
	for i := range max(len(load), len(clients)) {
		out = append(out, load[min(i, len(load)):min(i+1, len(load))]...)
		out = append(out, clients[min(i, len(clients)):min(i+1, len(clients))]...)
	}
	return out
}

// cpuKind is one way to state CPU: normalised to the offered load or as sampled.
type cpuKind struct {
	title, axis, column, caption string
	level                        func(analysis.Level) analysis.Estimate
	trial                        func(result.Trial, result.Measurement) analysis.Number
	extrapolates                 bool // where a device fell short of the load
}

var (
	normalised = cpuKind{
		title: "Router CPU, normalised", axis: "Router CPU, normalised, % of one core", column: "Normalised CPU",
		caption: "CPU × offered load / sampled bandwidth, so that levels compare although not every window carried the same.",
		level:   func(l analysis.Level) analysis.Estimate { return l.CPUNormalised },
		trial:   cost.NormalisedPct, extrapolates: true,
	}
	asSampled = cpuKind{
		title: "Router CPU, sampled", axis: "Router CPU, % of one core", column: "Sampled CPU",
		caption: "CPU as it was metered, at the bandwidth that was really carried.",
		level:   func(l analysis.Level) analysis.Estimate { return l.CPUSampled },
		trial: func(_ result.Trial, m result.Measurement) analysis.Number {
			return analysis.Number(m.CPUCorePct())
		},
	}
)

// panelCPU draws CPU over a sweep: the clean router, then every device.
func (d *drawing) panelCPU(p panel, kind cpuKind) figure {
	ch := chart.XY{
		Title:  fmt.Sprintf("%s, over %s, %s", kind.title, p.name(), p.place()),
		XLabel: p.axis(), YLabel: kind.axis, Reference: math.NaN(), Band: noBand(),
	}
	sweeps := slices.Clone(p.sweeps)
	slices.SortStableFunc(sweeps, func(a, b analysis.Sweep) int {
		return -cmp.Compare(boolRank(a.Cell.Text(result.DUT) == analysis.Clean), boolRank(b.Cell.Text(result.DUT) == analysis.Clean))
	})
	data := grid{Head: []gridHead{{Name: "Router", Text: true}, {Name: p.levelName()}, {Name: kind.column, Unit: "% of a core"}, {Name: "Sampled", Unit: "Mbit/s on the link"}}}
	var tips []string
	shortfall := false
	for _, s := range sweeps {
		line := chart.Series{Name: sweptName(d.summary, s.Cell.Text(result.DUT)), Style: d.style(s.Cell.Text(result.DUT))}
		for _, l := range s.Levels {
			e := kind.level(l)
			if !e.Mean.Known() {
				continue
			}
			tip := fmt.Sprintf("%s: %s of a core %s at %s, %s", sweptName(d.summary, s.Cell.Text(result.DUT)), percent(e.Mean), bounds(e, percent), p.levelText(l.Level), p.place())
			pt := estimatePoint(float64(l.Level), e, tip)
			pt.Key = markKey(p.cellOf(s, l))
			value := estimateCell(e, bare)
			if kind.extrapolates && l.Shortfall {
				pt.Hollow, shortfall = true, true
				pt.Tip += "; carried much less, so this is CPU that was never spent"
				value.Main += " *"
			}
			line.Points = append(line.Points, pt)
			tips = append(tips, tip)
			data.Rows = append(data.Rows, gridRow{Key: pt.Key, Cells: []gridCell{
				{Main: sweptName(d.summary, s.Cell.Text(result.DUT)), Text: true, Header: true}, {Main: digits4(l.Level), Sort: l.Level.String()},
				value, estimateCell(l.LinkMbps, digits4),
			}})
		}
		line.Raw = d.rawCPU(p, s, kind)
		ch.Series = append(ch.Series, line)
	}
	ch.Desc = sentences(tips)
	caption := kind.caption + " Marks are means over blocks with their intervals, dots are single trials."
	if shortfall {
		caption += " Hollow marks: the device carried more than 10 % less than the load, so the figure is CPU that was never spent."
		data.Note = "* more than 10 % short of the load"
	}
	return d.finish(ch.Title, caption, ch.Draw, data)
}

func boolRank(b bool) int {
	if b {
		return 1
	}
	return 0
}

// sweptName is the router of a sweep: the clean one's clients may be others than the
// axis says.
func sweptName(s analysis.Summary, dut string) string {
	if dut == analysis.Clean {
		return besideName(s)
	}
	return dut
}

func routerName(dut string) string {
	if dut == analysis.Clean {
		return "clean router"
	}
	return dut
}

// levelName and levelText are a level's heading and how it reads.
func (p panel) levelName() string {
	if p.along == result.OfferedMbps {
		return "Offered, Mbit/s"
	}
	return "Clients"
}

func (p panel) levelText(level analysis.Number) string {
	if p.along == result.OfferedMbps {
		return rate(level)
	}
	return words.Counted(int(level), "client")
}

// cellOf is the cell a level of a sweep is of.
func (p panel) cellOf(s analysis.Sweep, l analysis.Level) result.Cell {
	c := result.NewCell(result.DUT, s.Cell.Text(result.DUT), result.Direction, s.Cell.Text(result.Direction), result.Profile, s.Cell.Text(result.Profile), result.Clients, s.Cell.Int(result.Clients), result.OfferedMbps, float64(offered(s.Cell)))
	if p.along == result.OfferedMbps {
		c = c.With(result.OfferedMbps, float64(l.Level))
	} else {
		c = c.With(result.Clients, int(l.Level))
	}
	return c
}

// rawCPU is the single trials of a sweep, the clean router's from all devices.
func (d *drawing) rawCPU(p panel, s analysis.Sweep, kind cpuKind) [][2]float64 {
	var out [][2]float64
	for _, c := range p.cells {
		if s.Cell.Text(result.DUT) != analysis.Clean && s.Cell.Text(result.DUT) != c.DUT() {
			continue
		}
		for _, t := range d.sample(c) {
			m := t.DUT
			if s.Cell.Text(result.DUT) == analysis.Clean {
				m = t.Clean
			}
			if v := kind.trial(t, m); v.Known() {
				out = append(out, [2]float64{p.at(t.Cell), float64(v)})
			}
		}
	}
	return out
}

// panelRatio draws the overhead ratio over a sweep.
func (d *drawing) panelRatio(p panel) figure {
	ch := chart.XY{
		Title:  fmt.Sprintf("%s over %s, %s", ratioName(d.summary), p.name(), p.place()),
		XLabel: p.axis(), YLabel: "CPU per bit, × clean router", LogY: true, Reference: 1, Band: d.band(), BandName: bandName,
		Desc: describe(p.cells, ratioTip),
	}
	for _, name := range devicesOf(p.cells) {
		line := chart.Series{Name: name, Style: d.style(name)}
		for _, c := range p.cells {
			if c.DUT() != name {
				continue
			}
			at := p.at(c.Cell)
			if c.Change(cost.PerBit).Mean.Known() {
				line.Points = append(line.Points, mark(c, at, c.Change(cost.PerBit), ratioTip(c)))
			}
			for _, t := range d.sample(c) {
				if r := cost.Ratio(t); r.Known() {
					line.Raw = append(line.Raw, [2]float64{at, float64(r)})
				}
			}
		}
		ch.Series = append(ch.Series, line)
	}
	return d.finish(ch.Title, pairDots+d.bandCaption(), ch.Draw, cellData(p.cells, overheadColumn(d.summary)))
}

func devicesOf(cells []analysis.Cell) []string {
	var out []string
	for _, c := range cells {
		out = append(out, c.DUT())
	}
	slices.Sort(out)
	return slices.Compact(out)
}
