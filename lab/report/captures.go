package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/report/chart"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// whole is the share of frames that counts as all of them, per cent.
const whole = 99.9

// parameterWords say the parameters of a capture, in the order of headings.
var parameterWords = []struct {
	dimension result.Dimension
	zero      string              // of 0 or "none"
	say       func(string) string // of other values
}{
	{result.FrameSize, "", words.Frames},
	{result.CPUs, "", func(n string) string { return map[bool]string{true: "one CPU", false: n + " CPUs"}[n == "1"] }},
	{result.BufferKiB, "buffers as they are", func(n string) string { return "buffers of " + n + " KiB" }},
	{result.SnapLength, "whole frames", func(n string) string { return "first " + n + " bytes" }},
	{result.Filter, "no filter", func(name string) string { return name + " filter" }},
	{result.Work, "no work", func(name string) string { return name + " for each frame" }},
	{result.Programs, "", func(n string) string { return map[bool]string{true: "one program", false: n + " programs"}[n == "1"] }},
	{result.BackgroundPct, "no other work", func(n string) string { return "other work for " + n + " % of the CPU" }},
}

// settingOf is a cell without what a chart has on its axis and in its legend.
func settingOf(c analysis.Cell) result.Cell { return c.Without(result.DUT, result.OfferedMbps) }

// settingWords says parameters: "1514-byte frames, one CPU, buffers of 10240 KiB".
func settingWords(c result.Cell) string {
	var parts []string
	for _, p := range parameterWords {
		switch text := c.Text(p.dimension); {
		case !c.Has(p.dimension):
		case p.zero != "" && (text == "0" || text == "none"):
			parts = append(parts, p.zero)
		default:
			parts = append(parts, p.say(text))
		}
	}
	return strings.Join(parts, ", ")
}

// capturedWhole reports whether all frames were captured and forwarded, as far as the cell says; a cell without
// an accepted trial says nothing.
func capturedWhole(c analysis.Cell) bool {
	taken, lost, link := c.Device("captured_pct").Mean, c.Device("loss_pct").Mean, c.Device("link_loss_pct").Mean
	return c.Pairs > 0 && !(taken < whole) && !(lost > 100-whole) && !(link > 100-whole)
}

// reach is the highest rate up to which a device took every frame in a setting, and whether it was measured at
// none above it.
func reach(cells []analysis.Cell, dut string) (mbps analysis.Number, all bool) {
	mbps, all = analysis.Absent(), true
	for _, c := range cells {
		switch {
		case c.DUT() != dut || c.Pairs == 0 || !all:
		case capturedWhole(c):
			mbps = offered(c.Cell)
		default:
			all = false
		}
	}
	return mbps, all
}

func reachText(cells []analysis.Cell, dut string) string {
	mbps, all := reach(cells, dut)
	switch {
	case !mbps.Known():
		return "at none of the rates"
	case all:
		return "up to " + rate(mbps) + ", the highest rate"
	}
	return "up to " + rate(mbps)
}

// inSetting lists the cells of a setting, with those of devices that lack some of its parameters.
func inSetting(cells []analysis.Cell, setting result.Cell) (out []analysis.Cell) {
	for _, c := range cells {
		own := settingOf(c)
		var dimensions []result.Dimension
		for _, v := range own.Values() {
			dimensions = append(dimensions, v.Dimension)
		}
		if own == setting.Only(dimensions...) {
			out = append(out, c)
		}
	}
	return out
}

// captureSettings lists settings in the order of the cells, without those that are part of another.
func captureSettings(cells []analysis.Cell) (out []result.Cell) {
	var all []result.Cell
	for _, c := range cells {
		all = append(all, settingOf(c))
	}
	all = distinct(all)
	for _, s := range all {
		if !slices.ContainsFunc(all, func(other result.Cell) bool { return other != s && partOf(s, other) }) {
			out = append(out, s)
		}
	}
	return out
}

// partOf reports whether a cell has all dimensions of another and more.
func partOf(s, other result.Cell) bool {
	for _, v := range s.Values() {
		if own, ok := other.Value(v.Dimension); !ok || own != v {
			return false
		}
	}
	return true
}

// captureView shows what capturing costs, and what it misses.
var captureView = view{
	how:     func(s analysis.Summary) string { return s.Measure },
	columns: captureColumns,
	remarks: captureRemarks,
	reading: func(analysis.Summary) string { return captureReading },
	first:   captureScreen,
	fill: func(data *pageData, d *drawing, s analysis.Summary) {
		data.Question = "What capturing costs, and what it misses"
		data.Empty = "No trial was recorded, so there is nothing to show. The sections below say what was skipped, rejected or went wrong."
		data.ModeNote = "Each block builds a new lab for each device and parameter; no clean router stands beside it: no-capture is the host without a program."
		data.Groups = d.captureGroups(s.Cells)
		data.Results, data.Further = build("Capture: means over blocks, their intervals in brackets", s, s.Cells, captureResults...), tables(s, captureTables)
	},
}

const captureReading = "captured is what the program took of the frames that passed its interface, dropped what it says it lost of them; " +
	"loss is what did not arrive behind the router of the frames offered; CPU is exact, of the polling threads and the programs of the host that captures, " +
	"of what that host has; ns/frame is the same for each frame that passed, until all were worked off."

// captureColumns are the terminal's table.
func captureColumns(s analysis.Summary) []cellColumn {
	cols := []cellColumn{textColumn("DUT", analysis.Cell.DUT)}
	for _, p := range parameterWords {
		col := textColumn(strings.ReplaceAll(string(p.dimension), "_", " "), func(c analysis.Cell) string { return settingWords(c.Only(p.dimension)) }).ifDiffers()
		cols = append(cols, col)
	}
	share := func(metric, name string, drop int) cellColumn {
		return numberColumn(name, "", "", percent, func(c analysis.Cell) analysis.Number { return c.Device(metric).Mean }).dropped(drop)
	}
	return append(cols, offeredColumn, meanColumn(s.Metrics, "kframes_per_second", "kframes/s", analysis.Cell.Device).dropped(3), share("captured_pct", "captured", 0),
		share("dropped_pct", "dropped", 4), share("link_loss_pct", "link loss", 5), share("loss_pct", "loss", 0), share("busy_pct", "CPU", 0),
		estimateColumn("ns/frame", "", digits3, func(c analysis.Cell) analysis.Estimate { return c.Device("ns_per_frame") }).left().dropped(2))
}

// captureRemarks say up to which rate each device took every frame, in runs with several rates.
func captureRemarks(s analysis.Summary) (out []string) {
	if !severalRates(s.Cells) {
		return nil
	}
	for _, setting := range captureSettings(s.Cells) {
		cells := inSetting(s.Cells, setting)
		var parts []string
		for _, dut := range distinct(named(cells, analysis.Cell.DUT)) {
			parts = append(parts, dut+" "+reachText(cells, dut))
		}
		out = append(out, fmt.Sprintf("Nothing lost with %s: %s.", settingWords(setting), words.Listed(parts)))
	}
	return out
}

// captureResults are what most readers want; captureTables all other figures.
var (
	captureResults = []cellColumn{
		device("captured_offered_pct", "Captured", "* of the offered"), device("captured_pct", "Captured", "* of those that passed"), device("dropped_pct", "Dropped", "*"), device("loss_pct", "Lost end to end", "*"),
		device("busy_pct", "CPU", "*"), device("core_pct", "CPU", "*"), device("ns_per_frame", "Frame", "*"),
		pairsColumn("Trials"), rejectedColumn("Rejected"),
	}
	captureTables = []cellTable{
		{"Where frames were lost", "", []cellColumn{
			device("kframes_per_second", "Passed", "*"), device("offered_pct", "Offered", "* of those due"), device("link_loss_pct", "Before the interface", "*"),
			device("dropped_pct", "By the program's word", "*"), device("unexplained_pct", "Neither taken nor said to be lost", "*"), device("loss_pct", "End to end", "*"),
			textColumn("Flags", func(c analysis.Cell) string { return tallied(c.Flags) }),
		}},
		{"What the CPU did", "", []cellColumn{
			device("napi_core_pct", "Polling threads", "*"), device("process_core_pct", "Capture programs", "*"), device("background_core_pct", "Other work", "*"),
			device("router_share_pct", "Share", "*"),
		}},
	}
)

// captureGroups draws each setting over the rate, or, where there is one rate, all settings as rows.
func (d *drawing) captureGroups(cells []analysis.Cell) (out []figureGroup) {
	if len(cells) == 0 { // nothing was measured
		return nil
	}
	settings := captureSettings(cells)
	if !severalRates(cells) {
		return []figureGroup{d.captureRows(cells)}
	}
	for i, s := range settings {
		g := figureGroup{Heading: words.Capitalised(settingWords(s)), Stacked: true}
		for _, p := range []struct{ metric, title, label string }{
			{"loss_pct", "Lost end to end", "Frames lost end to end, %"}, {"captured_offered_pct", "Captured", "Frames captured, % of those offered"}, {"busy_pct", "CPU", "CPU in use, % of what the host has"},
		} {
			if f, ok := d.overRate(inSetting(cells, s), p.metric, p.title, p.label); ok {
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

// overRate draws one metric of all devices against the rate; ok is false where no cell has it.
func (d *drawing) overRate(cells []analysis.Cell, metric, title, label string) (f figure, ok bool) {
	ch := chart.XY{Title: title + " against the rate", XLabel: "Offered load, Mbit/s", YLabel: label, Reference: math.NaN(), Height: stackedHeight}
	data := newGrid("", "<DUT", "Offered|Mbit/s", label)
	var tips []string
	for _, dut := range distinct(named(cells, analysis.Cell.DUT)) {
		line := chart.Series{Name: dut, Style: d.style(dut)}
		for _, c := range cells {
			e := c.Device(metric)
			if c.DUT() != dut || !e.Mean.Known() {
				continue
			}
			tip := fmt.Sprintf("%s at %s: %s", dut, rate(offered(c.Cell)), words.Joined(" ", percent(e.Mean), bounds(e, bare)))
			line.Points = append(line.Points, mark(c.Cell.String(), float64(offered(c.Cell)), e, tip))
			data.add(c.Cell.String(), nameCell(dut, dut), numberCell(offered(c.Cell), digits4), estimateCell(e, bare))
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
	return d.finish(title, "", ch.Draw, data), true
}

// rowsDrawn bounds the rows of a chart; the table has all.
const rowsDrawn = 40

// captureRows draws what a frame costs, one row a cell.
func (d *drawing) captureRows(cells []analysis.Cell) figureGroup {
	ch := chart.Forest{Title: "CPU for each frame", XLabel: "CPU of the capturing host for each frame, ns", Reference: math.NaN(), X: chart.Logarithmic,
		Desc: describe(cells, func(c analysis.Cell) string {
			return c.DUT() + ": " + withBounds(c.Device("ns_per_frame"), digits3) + " ns"
		})}
	shared := settingOf(cells[0])
	for _, c := range cells {
		for _, v := range shared.Values() {
			if own, ok := c.Value(v.Dimension); ok && own != v {
				shared = shared.Without(v.Dimension)
			}
		}
	}
	var common []result.Dimension
	for _, v := range shared.Values() {
		common = append(common, v.Dimension)
	}
	for _, c := range cells {
		e := c.Device("ns_per_frame")
		if !e.Mean.Known() || len(ch.Rows) == rowsDrawn {
			continue
		}
		text := digits3(e.Mean) + " ns"
		if taken := c.Device("captured_pct").Mean; taken.Known() && !capturedWhole(c) {
			text += ", captured " + percent(taken)
		}
		label := words.Joined(", ", c.DUT(), settingWords(settingOf(c).Without(common...)))
		ch.Rows = append(ch.Rows, chart.ForestRow{Label: label, Text: text,
			Marks: []chart.ForestMark{{Style: d.style(c.DUT()), Point: mark(c.Cell.String(), 0, e, label+": "+withBounds(e, digits3)+" ns")}}})
	}
	heading := words.Capitalised(words.Joined(", ", settingWords(shared), rate(offered(cells[0].Cell))))
	if len(ch.Rows) == 0 {
		return figureGroup{Heading: heading}
	}
	return figureGroup{Heading: heading, Stacked: true, Figures: []figure{
		d.finish(ch.Title, "Time is logarithmic. Where frames were lost, the share that was captured stands beside the figure.", ch.Draw, build("", d.summary, cells, device("ns_per_frame", "Frame", "*"), device("captured_pct", "Captured", "*"))),
	}}
}

// captureScreen ranks the devices by the CPU that a frame costs, at the highest rate at which none of them loses
// any in the first setting; where there is none, at the lowest rate.
func captureScreen(d *drawing) (lead string, r ranking) {
	settings := captureSettings(d.summary.Cells)
	if len(settings) == 0 {
		return "", ranking{}
	}
	cells := inSetting(d.summary.Cells, settings[0])
	at := settledRate(cells)
	r = ranking{Title: "CPU of the capturing host for each frame, ns", Order: "the least first", ReachText: intervalText(d.summary), Load: words.Joined(", ", rate(at), settingWords(settings[0]))}
	var ranked []analysis.Cell
	for _, dut := range distinct(named(cells, analysis.Cell.DUT)) {
		i := slices.IndexFunc(cells, func(c analysis.Cell) bool { return c.DUT() == dut && offered(c.Cell) == at })
		if i >= 0 {
			ranked = append(ranked, cells[i])
		}
	}
	rank(ranked, func(c analysis.Cell) analysis.Number { return c.Device("ns_per_frame").Mean })
	var parts []string
	for _, c := range ranked {
		row, e := d.ranked(c), c.Device("ns_per_frame")
		row.At, row.Value, row.Interval, row.Facts = e, digits3(e.Mean)+" ns", bounds(e, digits3), captureFacts(c, cells)
		if c.Pairs == 0 {
			row.Note = notAccepted(c, "trial")
		} else if c.Device("captured_pct").Mean.Known() {
			row.Note = "captures " + percent(c.Device("captured_pct").Mean)
			if severalRates(cells) {
				row.Note = "captures all " + reachText(cells, c.DUT())
				parts = append(parts, c.DUT()+" "+reachText(cells, c.DUT()))
			}
		}
		r.Rows = append(r.Rows, row)
	}
	first, last := ranked[0].Device("ns_per_frame").Mean, ranked[len(ranked)-1].Device("ns_per_frame").Mean
	switch {
	case len(parts) > 0:
		lead = "Every frame is captured, and none is lost: by " + words.Listed(parts) + "."
	case first.Known() && last.Known():
		lead = fmt.Sprintf("At %s a frame costs from %s ns with %s to %s ns with %s.", rate(at), digits3(first), ranked[0].DUT(), digits3(last), ranked[len(ranked)-1].DUT())
	}
	return unbroken(lead), r
}

func ratesOf(cells []analysis.Cell) []string {
	return distinct(named(cells, func(c analysis.Cell) string { return c.Text(result.OfferedMbps) }))
}

func severalRates(cells []analysis.Cell) bool { return len(ratesOf(cells)) > 1 }

// settledRate is the highest rate at which no device loses frames, or the lowest one.
func settledRate(cells []analysis.Cell) analysis.Number {
	at, found := offered(cells[0].Cell), false
	for _, text := range ratesOf(cells) {
		same := slices.DeleteFunc(slices.Clone(cells), func(c analysis.Cell) bool { return c.Text(result.OfferedMbps) != text })
		all := !slices.ContainsFunc(same, func(c analysis.Cell) bool { return !capturedWhole(c) })
		if mbps := offered(same[0].Cell); all && (!found || mbps > at) || !found && mbps < at {
			at, found = mbps, found || all
		}
	}
	return at
}

// captureFacts are what else a reader asks of a device.
func captureFacts(c analysis.Cell, cells []analysis.Cell) (facts factList) {
	if c.Pairs == 0 {
		return nil
	}
	facts.add(true, "CPU", "%s of what the host has", percent(c.Device("busy_pct").Mean))
	for _, other := range slices.Backward(cells) {
		if other.DUT() == c.DUT() && other.Pairs > 0 {
			taken, lost := other.Device("captured_offered_pct").Mean, other.Device("loss_pct").Mean
			facts.add(taken.Known(), "Captured at the highest rate", "%s of the frames at %s", percent(taken), rate(offered(other.Cell)))
			facts.add(lost.Known(), "Lost end to end at the highest rate", "%s of the frames at %s", percent(lost), rate(offered(other.Cell)))
			break
		}
	}
	return facts
}
