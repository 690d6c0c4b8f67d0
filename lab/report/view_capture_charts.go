package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/capture"
	"github.com/gateweigh/gateweigh/lab/report/chart"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// captureGroups draws each setting over the rate. If there is only one rate, it draws all settings as rows.
func (d *drawing) captureGroups(cells []analysis.Cell) (out []figureGroup) {
	if len(cells) == 0 { // nothing was measured
		return nil
	}
	settings := captureSettings(cells)
	if !severalRates(cells) {
		return []figureGroup{d.captureRows(cells)}
	}
	for i, s := range settings {
		g := figureGroup{Heading: words.Capitalised(settingText(s, cells)), Stacked: true}
		for _, p := range []struct{ metric, title, label string }{
			{capture.CapturedPct, "Captured", "Frames captured, % of those that passed"},
			{capture.LossPct, "Lost end to end", "Frames lost end to end, % of those offered"},
			{capture.BusyPct, "CPU in use", "CPU" + otherClause(cellsOfSetting(cells, s)) + ", % of what the host has"},
		} {
			shown := cellsOfSetting(cells, s)
			if p.metric == capture.BusyPct && s.Int(capture.CPUs) > 1 { // a host without a program has one CPU
				shown = slices.DeleteFunc(shown, func(c analysis.Cell) bool { return !c.HasDimension(capture.CPUs) })
			}
			if f, ok := d.over(shown, overRate(p.metric, p.title, p.label)); ok {
				g.Figures = append(g.Figures, f)
			}
		}
		if i >= panelsDrawn {
			break
		}
		out = append(out, g)
	}
	return out
}

// overDimension describes a chart of a metric over a dimension, for all devices.
type overDimension struct {
	metric, title, label string // label names the axis of the metric, with its unit
	along                result.Dimension
	name, unit           string // of the dimension: "Offered load", "Mbit/s"
	value                format // format of the dimension's values, with unit
	full, bare           format // formats of the figures, with and without unit
}

// overRate describes a chart of a share of frames over the rate.
func overRate(metric, title, label string) overDimension {
	return overDimension{
		metric, title, label, result.OfferedMbps, "Offered load", "Mbit/s", rate, frameShare, frameShareBare}
}

// over draws a metric of all devices over a dimension. ok is false where no cell has the metric.
func (d *drawing) over(cells []analysis.Cell, o overDimension) (f figure, ok bool) {
	against := " against the " +
		map[bool]string{true: "rate", false: strings.ToLower(o.name)}[o.along == result.OfferedMbps]
	ch := chart.XY{Title: o.title + against, XLabel: o.name + ", " + o.unit, YLabel: o.label, Reference: math.NaN(),
		Height: stackedHeight}
	data := newGrid("", "<DUT", strings.TrimSuffix(o.name, " load")+"|"+o.unit, o.label)
	var tips []string
	for _, dut := range distinct(textsOf(cells, analysis.Cell.DUT)) {
		line := chart.Series{Name: dut, Style: d.style(dut)}
		for _, c := range cells {
			e, x := c.Device(o.metric), analysis.Number(c.Number(o.along))
			if c.DUT() != dut || !e.Mean.Known() {
				continue
			}
			tip := fmt.Sprintf("%s at %s: %s", dut, o.value(x), words.Joined(" ", o.full(e.Mean), bounds(e, o.bare)))
			line.Points = append(line.Points, meanPoint(c.Cell.String(), float64(x), e, tip))
			data.add(c.Cell.String(), nameCell(dut, dut), numberCell(x, digits4), estimateCell(e, o.bare))
			tips = append(tips, tip)
		}
		if line.Points != nil {
			ch.Series = append(ch.Series, line)
		}
	}
	if ch.Series == nil {
		return figure{}, false
	}
	ch.Desc = sentences(tips)
	return d.finish(o.title, "", ch.Draw, data), true
}

// rowsDrawn is the largest number of rows in a chart. The table has all.
const rowsDrawn = 40

// otherClause says what the CPU of the cells includes besides capturing.
func otherClause(cells []analysis.Cell) string {
	if anyOtherWork(cells) {
		return " " + withOther
	}
	return ""
}

// captureRows draws the cost of a frame, one row for each cell. A label names the parameters in which the cell differs
// from the first setting.
func (d *drawing) captureRows(cells []analysis.Cell) figureGroup {
	ch := chart.Forest{Title: "CPU for each frame", XLabel: "CPU of the capturing host for each frame, ns",
		Reference: math.NaN(), X: chart.Logarithmic,
		Desc: chartInWords(cells, func(c analysis.Cell) string {
			return c.DUT() + ": " + withBounds(c.Device(capture.NsPerFrame), digits3) + " ns"
		})}
	first := captureSettings(cells)[0]
	for _, c := range cells {
		e := c.Device(capture.NsPerFrame)
		if !e.Mean.Known() || len(ch.Rows) == rowsDrawn {
			continue
		}
		text := digits3(e.Mean) + " ns"
		if taken := c.Device(capture.CapturedPct).Mean; taken.Known() && !allCaptured(c) {
			text += ", captured " + frameShare(taken)
		}
		ownCell := settingOf(c)
		for _, v := range first.Values() {
			if value, ok := ownCell.Value(v.Dimension); ok && value == v {
				ownCell = ownCell.Without(v.Dimension)
			}
		}
		label := words.Joined(", ", c.DUT(), parametersOf(ownCell, analysis.Dimension.SayBriefly))
		if c.Flagged(capture.FlagShared) {
			label = strings.Replace(label, " CPUs", " CPUs, shared", 1)
		}
		ch.Rows = append(ch.Rows, chart.ForestRow{Label: label, Text: text,
			Marks: []chart.ForestMark{
				{Style: d.style(c.DUT()), Point: meanPoint(c.Cell.String(), 0, e, label+": "+withBounds(e, digits3)+" ns")}}})
	}
	heading := words.Capitalised(
		words.Joined(", ", settingText(first.Only(result.FrameSize), nil), rate(offeredMbps(cells[0].Cell))))
	if len(ch.Rows) == 0 {
		return figureGroup{Heading: heading}
	}
	caption := ""
	if slices.ContainsFunc(cells, func(c analysis.Cell) bool { return c.Flagged(capture.FlagShared) }) {
		caption = "Shared CPUs: " + generators + ". "
	}
	caption += "Time is logarithmic. Where frames were lost, the share that was captured of those that passed stands " +
		"beside the figure."
	if common := settingWords(first.Without(result.FrameSize)); common != "" {
		caption = "A row without a setting has " + common + ". " + caption
	}
	return figureGroup{Heading: heading, Stacked: true, Figures: []figure{
		d.finish(ch.Title, caption, ch.Draw, build("", d.summary, withFigure(cells, deviceOf(capture.NsPerFrame)), device(
			capture.NsPerFrame, "A frame", "*"), shareOf(capture.CapturedPct, "Captured", "* of those that passed"))),
	}}
}

// captureScreen ranks the devices by the CPU for each frame. It uses the first setting and the highest rate at which no
// device loses frames in it. Where there is no such rate, it uses the lowest one.
func captureScreen(d *drawing) (lead string, r ranking) {
	settings := captureSettings(d.summary.Cells)
	if len(settings) == 0 {
		return "", ranking{}
	}
	cells := cellsOfSetting(d.summary.Cells, settings[0])
	chosen, setting := settledRate(cells), settingText(settings[0], cells)
	r = ranking{Title: "CPU of the capturing host for each frame, ns", Order: "the least first",
		ReachText: intervalText(d.summary), Load: words.Joined(", ", rate(chosen), setting), LoadAlone: true}
	if n := len(settings); n > 1 {
		r.Notes = []string{fmt.Sprintf("This is the first of %d settings; the others are under Charts and Results.", n)}
	}
	var ranked []analysis.Cell
	for _, dut := range distinct(textsOf(cells, analysis.Cell.DUT)) {
		i := slices.IndexFunc(cells, func(c analysis.Cell) bool { return c.DUT() == dut && offeredMbps(c.Cell) == chosen })
		if i >= 0 {
			ranked = append(ranked, cells[i])
		}
	}
	rankBy(ranked, func(c analysis.Cell) analysis.Number { return c.Device(capture.NsPerFrame).Mean })
	var parts []string
	for _, c := range ranked {
		row, e := d.ranked(c), c.Device(capture.NsPerFrame)
		row.Figure, row.Value, row.Interval, row.Facts = e, digits3(e.Mean)+" ns", bounds(e, digits3), captureFacts(c, cells)
		if c.Pairs == 0 {
			row.Note = notAccepted(c, "trial")
		} else if c.Device(capture.CapturedPct).Mean.Known() {
			row.Note = "captures " + frameShare(c.Device(capture.CapturedPct).Mean)
			if severalRates(cells) {
				to := reachOf(cells, c.DUT()).String()
				row.Note = "captures all " + to
				parts = append(parts, c.DUT()+" "+to)
			}
		}
		r.Rows = append(r.Rows, row)
	}
	known := withFigure(ranked, deviceOf(capture.NsPerFrame))
	switch {
	case len(parts) > 0:
		lead = fmt.Sprintf("With %s, every frame is captured, and none is lost: by %s.", setting, strings.Join(parts, "; "))
	case len(known) > 1:
		cost := func(c analysis.Cell) string {
			return digits3(c.Device(capture.NsPerFrame).Mean) + " ns with " + c.DUT()
		}
		lead = fmt.Sprintf("At %s a frame costs from %s to %s", rate(chosen), cost(known[0]), cost(known[len(known)-1]))
		lead = words.Joined("; ", lead, orderClause(known, deviceOf(capture.NsPerFrame))) + "."
	}
	return keepTogether(lead), r
}

func ratesOf(cells []analysis.Cell) []string {
	return distinct(textsOf(cells, func(c analysis.Cell) string { return c.Text(result.OfferedMbps) }))
}

func severalRates(cells []analysis.Cell) bool { return len(ratesOf(cells)) > 1 }

// settledRate returns the highest rate at which no device loses frames, or else the lowest rate.
func settledRate(cells []analysis.Cell) analysis.Number {
	highest, found := offeredMbps(cells[0].Cell), false
	for _, text := range ratesOf(cells) {
		same := slices.DeleteFunc(
			slices.Clone(cells), func(c analysis.Cell) bool { return c.Text(result.OfferedMbps) != text })
		all := !slices.ContainsFunc(same, func(c analysis.Cell) bool { return !allCaptured(c) })
		if mbps := offeredMbps(same[0].Cell); all && (!found || mbps > highest) || !found && mbps < highest {
			highest, found = mbps, found || all
		}
	}
	return highest
}

// captureFacts lists further facts about a device.
func captureFacts(c analysis.Cell, cells []analysis.Cell) (facts factList) {
	if c.Pairs == 0 {
		return nil
	}
	busy := c.Device(capture.BusyPct).Mean
	facts.add(busy.Known(), "CPU in use", "%s of what the host has%s, at %s", percent(busy),
		otherClause([]analysis.Cell{c}), rate(offeredMbps(c.Cell)))
	for _, other := range slices.Backward(cells) {
		if other.DUT() == c.DUT() && other.Pairs > 0 {
			taken, lost := other.Device(capture.CapturedPct).Mean, other.Device(capture.LossPct).Mean
			top := ""
			if severalRates(cells) {
				top = " at the highest rate"
			}
			facts.add(taken.Known(), "Captured"+top, "%s of the frames that passed, at %s", frameShare(taken),
				rate(offeredMbps(other.Cell)))
			facts.add(lost.Known(), "Lost end to end"+top, "%s of the frames offered, at %s", frameShare(lost),
				rate(offeredMbps(other.Cell)))
			break
		}
	}
	return facts
}
