package report

import (
	"math"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/report/chart"

	"github.com/gateweigh/gateweigh/lab/words"
)

// effect is one row of the stability section.
type effect struct {
	name, unit string
	analysis.Effect
}

func effectsOf(s analysis.Stability) []effect {
	return []effect{
		{"Ratio, trend", "% an hour", s.DriftPctPerHour},
		{"Clean router's CPU per bit, trend", "% an hour", s.CleanDriftPctPerHour},
		{"Device in lab a over lab b", "%", s.SidePct},
		{"Later windows over the first", "%", s.OrderPct},
		{"Last load of a block over the first", "%", s.LoadOrderPct},
	}
}

// stabilityFigures draws whether the figures depend on when, where and in which
// order they were taken. Nothing is drawn of what is not known.
func (d *drawing) stabilityFigures() []figure {
	var out []figure
	st := d.summary.Stability
	delta := 100 * d.summary.Delta
	band := [2]float64{-delta, delta}
	f := chart.Forest{
		Title: "What the ratio depends on that it should not", XLabel: "Effect, %; 0 is none", SignedX: true,
		Reference: 0, Band: band, BandName: "Equivalent to none",
	}
	var data grid
	data.Head = []gridHead{{Name: "Effect", Text: true}, {Name: "Size"}, {Name: "Unit", Text: true}, {Name: "Blocks"}, {Name: "Verdict", Text: true}, {Name: "Note", Text: true}}
	for _, e := range effectsOf(st) {
		if !e.Value.Mean.Known() {
			continue
		}
		text := signedText(e.Value.Mean) + " " + bounds(e.Value, signedText) + " " + e.unit
		p := estimatePoint(0, e.Value, e.name+": "+text+" ("+e.Verdict+")")
		p.Key = e.name
		f.Rows = append(f.Rows, chart.ForestRow{Label: e.name, Text: text, Marks: []chart.ForestMark{{Style: chart.Style{}, Point: p}}})
		f.Desc += p.Tip + ". "
		data.Rows = append(data.Rows, gridRow{Key: e.name, Cells: []gridCell{
			{Main: e.name, Text: true, Header: true}, estimateCell(e.Value, signedText), textCell(e.unit), countCell(e.Value.N), badgeCell(e.Verdict, ""), textCell(e.Note),
		}})
	}
	if len(f.Rows) > 0 {
		out = append(out, d.finish(f.Title, "Effects with their intervals over blocks. The shaded band is what counts as none.", f.Draw, data))
	}
	if len(st.Series) > 1 {
		out = append(out,
			d.overTime(ratioName(d.summary)+" over the run, by lab", "Ratio against its cell's mean, %", "device", func(p analysis.StabilityPoint) analysis.Number { return p.RatioPct }),
			d.overTime("Clean router's CPU per bit over the run, by lab", "CPU per bit against its cell's mean, %", "device", func(p analysis.StabilityPoint) analysis.Number { return p.CleanPct }))
	}
	return out
}

// pointsOverTime bounds the blocks drawn over the run's time.
const pointsOverTime = 600

// overTime draws the blocks in the order they were measured; which lab carried
// the device shows as filled or hollow marks.
func (d *drawing) overTime(title, axis, what string, of func(analysis.StabilityPoint) analysis.Number) figure {
	ch := chart.XY{Title: title, XLabel: "Hours since the run began", YLabel: axis, SignedY: true, Reference: 0, Band: noBand()}
	labs := map[string]*chart.Series{}
	var order []string
	series := d.summary.Stability.Series
	step := 1 + (len(series)-1)/pointsOverTime
	data := grid{Head: []gridHead{{Name: "Device", Text: true}, {Name: "Lab", Text: true}, {Name: "Hours"}, {Name: "Against the mean", Unit: "%"}}}
	for i := 0; i < len(series); i += step {
		p := series[i]
		y := of(p)
		if !y.Known() || !p.Hours.Known() {
			continue
		}
		name := p.DUT
		if p.AA {
			name = "A/A"
		}
		s := labs[p.DUTLab]
		if s == nil {
			s = &chart.Series{Name: what + " in lab " + p.DUTLab, Style: chart.Style{Number: 0, Hollow: len(labs) > 0}, Apart: true}
			labs[p.DUTLab], order = s, append(order, p.DUTLab)
		}
		s.Points = append(s.Points, chart.Point{X: float64(p.Hours), Y: float64(y), Lo: math.NaN(), Hi: math.NaN(),
			Tip: name + " in lab " + p.DUTLab + ": " + signedText(y) + " %", Key: name, Value: y.String()})
		data.Rows = append(data.Rows, gridRow{Cells: []gridCell{{Main: name, Text: true, Header: true}, textCell(p.DUTLab), numberCell(p.Hours, digits3), numberCell(y, signedText)}})
	}
	for _, lab := range order {
		ch.Series = append(ch.Series, *labs[lab])
	}
	ch.Desc = "One mark a block, as far from 0 as the block lies from the means of its cells."
	return d.finish(title, "One mark a block; filled and hollow marks tell the labs apart. A trend, or one kind of mark above the other, would be an effect.", ch.Draw, data)
}

// noiseFigure draws what two clean routers differ by; nil when that is not known.
func (d *drawing) noiseFigure() []figure {
	aa := d.summary.AA
	if !aa.Ratio.Mean.Known() {
		return nil
	}
	p := estimatePoint(0, aa.Ratio, words.Capitalised(noiseSentence(aa)))
	p.Key = "aa"
	m := chart.ForestMark{Style: chart.Style{Number: chart.Clean}, Point: p}
	for _, t := range d.thin(d.aa, rawPerCell) {
		if r := cost.Ratio(t); r.Known() {
			m.Raw = append(m.Raw, float64(r))
		}
	}
	delta := d.summary.Delta
	f := chart.Forest{
		Title: "Noise floor: two clean routers", XLabel: "CPU per bit, × each other", LogX: true, Reference: 1,
		Band: [2]float64{1 / (1 + delta), 1 + delta}, BandName: "Equivalent", Desc: p.Tip,
		Rows: []chart.ForestRow{{Label: "clean over clean", Text: "× " + three(aa.Ratio.Mean) + " " + bounds(aa.Ratio, three), Marks: []chart.ForestMark{m}}},
	}
	data := grid{Head: []gridHead{{Name: "Routers", Text: true}, {Name: "Ratio", Field: "aa.ratio.mean"}, {Name: "Pairs"}, {Name: "Blocks"}, {Name: "Spread", Unit: "sd of block log ratios"}},
		Rows: []gridRow{{Key: "aa", Cells: []gridCell{{Main: "clean over clean", Text: true, Header: true}, estimateCell(aa.Ratio, three), countCell(aa.Pairs), countCell(aa.Blocks), numberCell(aa.SDLog, fraction4)}}}}
	return []figure{d.finish(f.Title, "Dots are single pairs. The shaded band is what counts as equivalent.", f.Draw, data)}
}
