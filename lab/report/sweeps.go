package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/report/chart"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// axis has the words for a quantity that is swept.
type axis struct {
	name, label, level string
	fixed              result.Dimension // the other quantity, which is fixed
	text               func(analysis.Number) string
}

var axes = map[result.Dimension]axis{
	result.OfferedMbps: {"bandwidth", "Offered load, Mbit/s of payload", "Offered, Mbit/s", result.Clients, rate},
	result.Clients: {"clients", "Clients", "Clients", result.OfferedMbps, func(n analysis.Number) string {
		return words.Counted(int(n), "client")
	}},
}

// panel has the sweeps of all devices along one quantity with the other one fixed, and the cells that they come from.
type panel struct {
	axis
	sweptDimension result.Dimension
	fixedValue     float64 // value of the fixed quantity
	sweeps         []analysis.Sweep
	cells          []analysis.Cell
}

// place names the fixed value.
func (p panel) place() string { return axes[p.fixed].text(analysis.Number(p.fixedValue)) }

// panelsOf groups the sweeps of the cells. Panels with the heaviest load and with the most clients come first, in turn.
func panelsOf(s analysis.Summary, cells []analysis.Cell) (out []panel) {
	byAlong := map[result.Dimension][]panel{}
	for _, sweep := range s.Sweeps {
		if !samePackets(sweep.Cell, cells[0].Cell) || len(sweep.Levels) < 2 {
			continue
		}
		p := panel{axis: axes[sweep.Along], sweptDimension: sweep.Along}
		p.fixedValue = sweep.Cell.Number(p.fixed)
		list := byAlong[sweep.Along]
		i := slices.IndexFunc(list, func(other panel) bool { return other.fixedValue == p.fixedValue })
		if i < 0 {
			for _, c := range cells {
				if c.Pairs > 0 && c.Number(p.fixed) == p.fixedValue {
					p.cells = append(p.cells, c)
				}
			}
			i, list = len(list), append(list, p)
		}
		list[i].sweeps = append(list[i].sweeps, sweep)
		byAlong[sweep.Along] = list
	}
	for _, list := range byAlong {
		slices.SortFunc(list, func(a, b panel) int { return cmp.Compare(b.fixedValue, a.fixedValue) })
	}
	for i := range len(s.Sweeps) {
		for _, list := range [][]panel{byAlong[result.OfferedMbps], byAlong[result.Clients]} {
			if i < len(list) {
				out = append(out, list[i])
			}
		}
	}
	return out
}

// sameDimensions reports whether two cells have the same values in some dimensions.
func sameDimensions(a, b result.Cell, dimensions ...result.Dimension) bool {
	return a.Only(dimensions...) == b.Only(dimensions...)
}

// cpuKind is one way to express CPU: normalised to the offered load, or as sampled.
type cpuKind struct {
	title, axis, column, caption string
	level                        func(analysis.Level) analysis.Estimate
	trial                        func(result.Trial, cost.Measurement) analysis.Number
	extrapolates                 bool // true where a device fell short of the load
}

var (
	normalised = cpuKind{
		title: "Router CPU, normalised", axis: "Router CPU, normalised, % of one core", column: "Normalised CPU|% of a core",
		caption: "CPU × offered load / sampled bandwidth, so that levels compare although not every window carried the same.",
		level:   func(l analysis.Level) analysis.Estimate { return l.CPUNormalised },
		trial:   cost.NormalisedPct, extrapolates: true,
	}
	asSampled = cpuKind{
		title: "Router CPU, sampled", axis: "Router CPU, % of one core", column: "Sampled CPU|% of a core",
		caption: "CPU as it was metered, at the bandwidth that was really carried.",
		level:   func(l analysis.Level) analysis.Estimate { return l.CPUSampled },
		trial:   func(_ result.Trial, m cost.Measurement) analysis.Number { return analysis.Number(m.CPUCorePct()) },
	}
)

// panelCPU draws CPU over a sweep, for the clean router and every device.
func (d *drawing) panelCPU(p panel, kind cpuKind) figure {
	ch := chart.XY{
		Title:  fmt.Sprintf("%s, over %s, %s", kind.title, p.name, p.place()),
		XLabel: p.label, YLabel: kind.axis, Reference: math.NaN(),
	}
	data := newGrid("", "<Router", p.level, kind.column, "Sampled|Mbit/s on the link")
	var tips []string
	shortfall := false
	for _, s := range p.sweeps {
		dut := s.Cell.Text(result.DUT)
		line := chart.Series{Name: sweptName(d.summary, dut), Style: d.style(dut), Raw: d.rawCPU(p, dut, kind)}
		for _, l := range s.Levels {
			e := kind.level(l)
			if !e.Mean.Known() {
				continue
			}
			cell := s.Cell.With(p.sweptDimension, float64(l.Level)).With(p.fixed, p.fixedValue)
			tip := fmt.Sprintf(
				"%s: %s of a core %s at %s, %s", line.Name, percent(e.Mean), bounds(e, percent), p.text(l.Level), p.place())
			pt := meanPoint(cell.String(), float64(l.Level), e, tip)
			tips = append(tips, tip)
			value := estimateCell(e, percentBare)
			if kind.extrapolates && l.Shortfall {
				pt.Hollow, shortfall = true, true
				pt.Tip += "; carried much less, so this is CPU that was never spent"
				value.Main += " *"
			}
			line.Points = append(line.Points, pt)
			data.add(pt.Key, nameCell(line.Name, ""), gridCell{Main: digits4(l.Level), Sort: l.Level.String()}, value,
				estimateCell(l.LinkMbps, digits4))
		}
		ch.Series = append(ch.Series, line)
	}
	ch.Desc = sentences(tips)
	caption := kind.caption + " Marks are means over blocks with their intervals, dots are single trials."
	if shortfall {
		caption += " Hollow marks: the device carried more than 10 % less than the load, so the figure is CPU that was " +
			"never spent."
		data.Note = "* more than 10 % short of the load"
	}
	return d.finish(ch.Title, caption, ch.Draw, data)
}

// sweptName names the router of a sweep. The clean router may have other clients than the axis says.
func sweptName(s analysis.Summary, dut string) string {
	if dut == analysis.Clean && s.Sides != nil {
		return "clean router, " + s.Sides.Clean
	}
	return routerName(dut)
}

func routerName(dut string) string {
	if dut == analysis.Clean {
		return "clean router"
	}
	return dut
}

// rawCPU returns the single trials of a sweep. The clean router's come from the trials of all devices.
func (d *drawing) rawCPU(p panel, dut string, kind cpuKind) (out [][2]float64) {
	for _, c := range p.cells {
		if dut != analysis.Clean && dut != c.DUT() {
			continue
		}
		for _, t := range d.sample(c) {
			m := cost.SidesOf(t).DUT
			if dut == analysis.Clean {
				m = cost.SidesOf(t).Clean
			}
			if v := kind.trial(t, m); v.Known() {
				out = append(out, [2]float64{t.Cell.Number(p.sweptDimension), float64(v)})
			}
		}
	}
	return out
}

// panelRatio draws the overhead ratio over a sweep.
func (d *drawing) panelRatio(p panel) figure {
	ch := chart.XY{
		Title:  fmt.Sprintf("%s over %s, %s", ratioName(d.summary), p.name, p.place()),
		XLabel: p.label, YLabel: "CPU per bit, × clean router", Y: chart.Logarithmic, Reference: 1, Band: d.band(),
		Desc: chartInWords(p.cells, ratioTip),
	}
	byDevice := map[string]*chart.Series{}
	for _, c := range p.cells {
		line := byDevice[c.DUT()]
		if line == nil {
			line = &chart.Series{Name: c.DUT(), Style: d.style(c.DUT())}
			byDevice[c.DUT()] = line
		}
		level, change := c.Number(p.sweptDimension), c.Change(cost.PerBit)
		if change.Mean.Known() {
			line.Points = append(line.Points, meanPoint(c.Cell.String(), level, change, ratioTip(c)))
		}
		for _, r := range ratios(d.sample(c)) {
			line.Raw = append(line.Raw, [2]float64{level, r})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byDevice)) {
		ch.Series = append(ch.Series, *byDevice[name])
	}
	return d.finish(
		ch.Title, d.pairCaption(), ch.Draw, build("", d.summary, withFigure(p.cells, costRatio), overheadColumn(d.summary)))
}
