package report

import (
	"fmt"
	"math"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/report/chart"
	"github.com/gateweigh/gateweigh/lab/words"
)

// stabilityFigures draws whether the figures depend on the time, the lab or the order of measurement. Unknown effects
// are not drawn.
func (d *drawing) stabilityFigures() (out []figure) {
	st, delta := d.summary.Stability, 100*d.summary.Delta
	f := chart.Forest{
		Title: "What the ratio depends on that it should not", XLabel: "Effect, %; 0 is none", X: chart.Signed,
		Band: chart.Band{Lo: -delta, Hi: delta, Name: "Equivalent to none"},
	}
	data := newGrid("", "<Effect", "Size", "<Unit", "Blocks", "<Verdict", "<Note")
	for _, e := range []struct {
		name, unit string
		analysis.Effect
	}{
		{"Ratio, trend", "% an hour", st.DriftPctPerHour},
		{"Clean CPU per bit, trend", "% an hour", st.CleanDriftPctPerHour},
		{"Device in lab a over lab b", "%", st.SidePct},
		{"Later windows over the first", "%", st.OrderPct},
		{"Last load of a block over the first", "%", st.LoadOrderPct},
	} {
		if !e.Value.Mean.Known() {
			continue
		}
		text := signedText(e.Value.Mean) + " " + bounds(e.Value, signedText) + " " + e.unit
		p := meanPoint(e.name, 0, e.Value, e.name+": "+text+" ("+e.Verdict+")")
		f.Rows = append(f.Rows, chart.ForestRow{Label: e.name, Text: text, Marks: []chart.ForestMark{{Point: p}}})
		f.Desc += p.Tip + ". "
		data.add(e.name, nameCell(e.name, ""), estimateCell(e.Value, signedText), textCell(e.unit), countCell(e.Value.N),
			badgeCell(e.Verdict, ""), textCell(e.Note))
	}
	if len(f.Rows) > 0 {
		out = append(out,
			d.finish(f.Title, "Effects with their intervals over blocks. The shaded band is what counts as none.", f.Draw, data))
	}
	if len(st.Series) > 1 {
		out = append(out,
			d.overTime(ratioName(d.summary), "Ratio", func(p analysis.StabilityPoint) analysis.Number { return p.RatioPct }),
			d.overTime("Clean router's CPU per bit", "CPU per bit",
				func(p analysis.StabilityPoint) analysis.Number { return p.CleanPct }))
	}
	return out
}

// pointsOverTime is the largest number of blocks drawn over the run's time.
const pointsOverTime = 600

// timeUnit is the unit of an axis of time.
type timeUnit struct {
	name    string
	perHour float64
}

// unitOver returns the unit in which the length of a run is a number of a few digits.
func unitOver(series []analysis.StabilityPoint) timeUnit {
	last := 0.0
	for _, p := range series {
		last = max(last, float64(p.Hours)) // false if the time is not known
	}
	switch {
	case last < 3.0/60:
		return timeUnit{"Seconds", 3600}
	case last < 3:
		return timeUnit{"Minutes", 60}
	}
	return timeUnit{"Hours", 1}
}

// overTime draws a figure of the blocks over time. Filled and hollow marks show which lab had the device.
func (d *drawing) overTime(title, quantity string, figure func(analysis.StabilityPoint) analysis.Number) figure {
	unit := unitOver(d.summary.Stability.Series)
	ch := chart.XY{Title: title + " over the run, by lab", XLabel: unit.name + " since the run began",
		YLabel: quantity + " against its cell's mean, %", Y: chart.Signed,
		Desc: "One mark a block, as far from 0 as the block lies from the means of its cells."}
	labs := map[string]int{}
	series := d.summary.Stability.Series
	step := 1 + (len(series)-1)/pointsOverTime
	data := newGrid("", "<Device", "<Lab", unit.name, "Against the mean|%")
	for i := 0; i < len(series); i += step {
		p, y := series[i], figure(series[i])
		time := p.Hours * analysis.Number(unit.perHour)
		if !y.Known() || !time.Known() {
			continue
		}
		name := p.DUT
		if p.AA {
			name = "A/A"
		}
		lab, seen := labs[p.DUTLab]
		if !seen {
			lab = len(labs)
			labs[p.DUTLab] = lab
			ch.Series = append(
				ch.Series, chart.Series{Name: "device in lab " + p.DUTLab, Style: chart.Style{Hollow: lab > 0}, Apart: true})
		}
		ch.Series[lab].Points = append(
			ch.Series[lab].Points, chart.Point{X: float64(time), Y: float64(y), Lo: math.NaN(), Hi: math.NaN(),
				Tip: name + " in lab " + p.DUTLab + ": " + signedText(y) + " %", Key: name, Value: y.String()})
		data.add("", nameCell(name, ""), textCell(p.DUTLab), numberCell(time, digits3), numberCell(y, signedText))
	}
	return d.finish(ch.Title,
		"One mark a block; filled and hollow marks tell the labs apart. A trend, or one kind of mark above the other, "+
			"would be an effect.", ch.Draw, data)
}

// noiseFigure draws the difference of two clean routers. It returns nil when that is not known.
func (d *drawing) noiseFigure() []figure {
	aa, delta := d.summary.AA, d.summary.Delta
	if !aa.Ratio.Mean.Known() {
		return nil
	}
	p := meanPoint("aa", 0, aa.Ratio, words.Capitalised(noiseSentence(aa)))
	row := chart.ForestRow{
		Label: "clean over clean",
		Text:  fmt.Sprintf("× %s %s", digits3OfRatio(aa.Ratio.Mean), bounds(aa.Ratio, digits3OfRatio)),
		Marks: []chart.ForestMark{{Style: chart.Style{Number: chart.Clean}, Point: p, Raw: ratios(d.thin(d.aa, rawPerCell))}}}
	f := chart.Forest{
		Title: "Noise floor: two clean routers", XLabel: "CPU per bit, × each other", X: chart.Logarithmic, Reference: 1,
		Band: chart.Band{Lo: 1 / (1 + delta), Hi: 1 + delta, Name: "Equivalent"}, Desc: p.Tip, Rows: []chart.ForestRow{row},
	}
	data := newGrid("", "<Routers", "Ratio", "Pairs", "Blocks", "Spread|sd of block log ratios")
	data.Head[1].Field = "aa.ratio.mean"
	data.add("aa", nameCell(row.Label, ""), estimateCell(aa.Ratio, digits3OfRatio), countCell(aa.Pairs),
		countCell(aa.Blocks),
		numberCell(aa.SDLog, fraction4))
	return []figure{
		d.finish(f.Title, "Dots are single pairs. The shaded band is what counts as equivalent.", f.Draw, data)}
}
