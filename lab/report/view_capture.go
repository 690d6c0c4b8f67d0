package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/capture"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// wholePct is the smallest share of frames that counts as all frames, per cent.
const wholePct = 99.9

// settingOf returns a cell without device and rate, which a chart has in its legend and on its axis.
func settingOf(c analysis.Cell) result.Cell { return c.Without(result.DUT, result.OfferedMbps) }

// settingWords names the parameters of a setting: "1514-byte frames, one CPU, buffers of 10 240 KiB".
func settingWords(c result.Cell) string { return parametersOf(c, analysis.Dimension.Say) }

// parametersOf names the parameters that a cell has, in the order of the columns. say writes one of them.
func parametersOf(c result.Cell, say func(analysis.Dimension, result.Value) string) string {
	var parts []string
	for _, d := range parameters() {
		if v, ok := c.Value(d.Name); ok {
			parts = append(parts, say(d, v))
		}
	}
	return strings.Join(parts, ", ")
}

// parameters returns the dimensions in which settings of captures differ.
func parameters() analysis.Dimensions {
	return capture.Dimensions.Without(result.DUT, result.OfferedMbps)
}

const generators = "one of them the generator's"

// settingText names the setting of cells. Where the cells lack some of its parameters, they get those that they have.
func settingText(setting result.Cell, cells []analysis.Cell) string {
	text := settingWords(setting)
	shared := slices.ContainsFunc(cells, func(c analysis.Cell) bool {
		return c.Flagged(capture.FlagShared) && c.Text(capture.CPUs) == setting.Text(capture.CPUs)
	})
	if shared {
		text = strings.Replace(text, " CPUs", " CPUs ("+generators+")", 1)
	}
	return text
}

// parameterColumns returns the terminal's columns of parameters. Where all cells have the same value, it is in the
// heading, in words.
func parameterColumns() (cols []cellColumn) {
	for _, d := range parameters() {
		col := textColumn(d.TerminalHead(), func(c analysis.Cell) string {
			if d.Name == capture.CPUs && c.Flagged(capture.FlagShared) {
				return c.Text(d.Name) + ", shared"
			}
			return shortText(d, c.Cell)
		}).ifDiffers()
		col.valueText = func(c analysis.Cell) string { return settingText(c.Only(d.Name), []analysis.Cell{c}) }
		cols = append(cols, col)
	}
	return cols
}

// allCaptured reports whether all frames were captured and forwarded. It is false for a cell without an accepted trial.
func allCaptured(c analysis.Cell) bool {
	taken, lost, link := c.Device(capture.CapturedPct).Mean, c.Device(capture.LossPct).Mean,
		c.Device(capture.LinkLossPct).Mean
	return c.Pairs > 0 && !(taken < wholePct) && !(lost > 100-wholePct) && !(link > 100-wholePct)
}

// reached says up to which rate a device captured every frame in a setting.
type reached struct {
	Mbps    analysis.Number // absent: at no rate
	First   analysis.Cell   // the first cell that lost frames
	All     bool            // no cell lost frames
	Unknown bool            // trials above the rate were rejected, so nothing is known there
	None    bool            // no trial was accepted at any rate
}

func reachOf(cells []analysis.Cell, dut string) reached {
	r := reached{Mbps: analysis.Absent(), All: true, None: true}
	for _, c := range cells {
		switch {
		case c.DUT() != dut || !r.All:
		case c.Pairs == 0:
			r.Unknown = true
		case allCaptured(c):
			r.Mbps, r.None, r.Unknown = offeredMbps(c.Cell), false, false
		default:
			r.First, r.All, r.None, r.Unknown = c, false, false, false
		}
	}
	return r
}

func (r reached) String() string {
	switch {
	case r.None:
		return "not known, as no trial was accepted"
	case !r.Mbps.Known():
		return "at none of the rates"
	case r.Unknown:
		return "up to " + rate(r.Mbps) + ", above which no trial was accepted"
	case r.All:
		return "up to " + rate(r.Mbps) + ", the highest rate"
	}
	return "up to " + rate(r.Mbps)
}

// cellsOfSetting lists the cells of a setting. Cells of devices that lack some of its parameters are among them.
func cellsOfSetting(cells []analysis.Cell, setting result.Cell) (out []analysis.Cell) {
	for _, c := range cells {
		ownCell := settingOf(c)
		var dimensions []result.Dimension
		for _, v := range ownCell.Values() {
			dimensions = append(dimensions, v.Dimension)
		}
		if ownCell == setting.Only(dimensions...) {
			out = append(out, c)
		}
	}
	return out
}

// captureSettings lists the settings in the order of the cells. A setting that is part of another one is left out.
func captureSettings(cells []analysis.Cell) (out []result.Cell) {
	var all []result.Cell
	for _, c := range cells {
		all = append(all, settingOf(c))
	}
	all = distinct(all)
	for _, s := range all {
		if !slices.ContainsFunc(all, func(other result.Cell) bool { return other != s && hasAllDimensions(s, other) }) {
			out = append(out, s)
		}
	}
	return out
}

// hasAllDimensions reports whether a cell has all dimensions of another one with the same values, and more dimensions.
func hasAllDimensions(s, other result.Cell) bool {
	for _, v := range s.Values() {
		if value, ok := other.Value(v.Dimension); !ok || value != v {
			return false
		}
	}
	return true
}

// captureView shows the CPU that capturing takes, and the frames that it loses.
var captureView = view{
	mode:    measureOf,
	columns: captureColumns,
	remarks: captureRemarks,
	reading: captureReading,
	first:   captureScreen,
	fill: func(data *pageData, d *drawing, s analysis.Summary) {
		data.Question = "What capturing costs, and what it misses"
		data.Empty = nothingRecorded("trial")
		data.ModeNote = "Each block builds a new lab for each device and parameter; no clean router stands beside it: " +
			"no-capture is the host without a program."
		data.Groups = d.captureGroups(s.Cells)
		data.Ceilings, data.CeilingsNote = captureLimits(s),
			"Nothing is lost where at least 99.9 % of the frames are captured and at most 0.1 % lost end to end, in the mean "+
				"over blocks."
		data.Results, data.Further = build("Capture: means over blocks, their intervals in brackets", s, s.Cells,
			captureResults(s)...), tables(s, captureTables(s))
	},
}

// withOther follows the name of a CPU figure that includes other work.
const withOther = "with its other work"

// captureReading explains of what the shares of frames are shares.
func captureReading(s analysis.Summary) string {
	waiting, other := "", ""
	if anyAboveZero(s, capture.WaitingPct) {
		waiting = "waiting is what the kernel still had for it at its end, neither taken nor lost; "
	}
	if anyOtherWork(s.Cells) {
		other = ", " + withOther
	}
	return "captured is what the program took of the frames that passed its interface, dropped what it says it lost of " +
		"them; " + waiting +
		"loss is end to end, of the frames offered: what did not arrive behind the router, or, behind a splitter, did not " +
		"pass the interface; " +
		"CPU is exact, of the polling threads and the programs of the host that captures" + other +
		", of what that host has; " +
		"ns/frame is that of threads and programs for each frame that passed, until all were worked off."
}

// anyAboveZero reports whether a metric is above zero in any cell. anyKnown reports whether any cell has it.
func anyAboveZero(s analysis.Summary, metric string) bool {
	return slices.ContainsFunc(s.Cells, func(c analysis.Cell) bool { return c.Device(metric).Mean > 0 })
}

func anyKnown(s analysis.Summary, metric string) bool {
	return slices.ContainsFunc(s.Cells, func(c analysis.Cell) bool { return c.Device(metric).Mean.Known() })
}

// hasOther reports whether the host had other work.
func hasOther(c analysis.Cell) bool { return c.Number(result.BackgroundPct) > 0 }

func anyOtherWork(cells []analysis.Cell) bool { return slices.ContainsFunc(cells, hasOther) }

func anySharedCPU(s analysis.Summary) bool {
	return slices.ContainsFunc(s.Cells, func(c analysis.Cell) bool { return c.Flagged(capture.FlagShared) })
}

// lostBehindToo reports whether frames were also lost after the interface, so that the two shares differ.
func lostBehindToo(s analysis.Summary) bool {
	return slices.ContainsFunc(s.Cells, func(c analysis.Cell) bool {
		return c.Device(capture.LinkLossPct).Mean.Known() &&
			frameShare(c.Device(capture.LinkLossPct).Mean) != frameShare(c.Device(capture.LossPct).Mean)
	})
}

// captureColumns returns the columns of the terminal's table, without empty ones.
func captureColumns(s analysis.Summary) []cellColumn {
	cols := append([]cellColumn{textColumn("DUT", analysis.Cell.DUT)}, parameterColumns()...)
	cols = append(cols, offeredColumn,
		meanColumn(s.Metrics, capture.KFramesPerSecond, "kframes/s", analysis.Cell.Device).dropFirst(3))
	share := func(shown bool, metric, name string, drop int) {
		if shown {
			cols = append(cols, numberColumn(name, "", "", frameShare, func(c analysis.Cell) analysis.Number {
				return c.Device(
					metric).Mean
			}).dropFirst(drop))
		}
	}
	share(true, capture.CapturedPct, "captured", 0)
	share(anyKnown(s, capture.DroppedPct), capture.DroppedPct, "dropped", 4)
	share(anyAboveZero(s, capture.WaitingPct), capture.WaitingPct, "waiting", 5)
	share(lostBehindToo(s), capture.LinkLossPct, "link loss", 6)
	share(true, capture.LossPct, "loss", 0)
	cols = append(cols,
		numberColumn("CPU", "", "", percent, func(c analysis.Cell) analysis.Number { return c.Device(capture.BusyPct).Mean }))
	return append(cols, estimateColumn("ns/frame", "", digits3, func(c analysis.Cell) analysis.Estimate {
		return c.Device(
			capture.NsPerFrame)
	}).alignLeft().dropFirst(2))
}

// captureRemarks says up to which rate each device captured every frame, in runs with several rates.
func captureRemarks(s analysis.Summary) (out []string) {
	if severalRates(s.Cells) {
		for _, setting := range captureSettings(s.Cells) {
			cells := cellsOfSetting(s.Cells, setting)
			var parts []string
			for _, dut := range distinct(textsOf(cells, analysis.Cell.DUT)) {
				parts = append(parts, dut+" "+reachOf(cells, dut).String())
			}
			out = append(out, fmt.Sprintf("Nothing lost with %s: %s.", settingWords(setting), strings.Join(parts, "; ")))
		}
	}
	if anySharedCPU(s) {
		out = append(out,
			"shared: the second CPU of the programs is also the generator's, because labs may use no other here: both have "+
				"less of it.")
	}
	return out
}

// captureLimits lists the highest rates without lost frames, in runs with several rates. It has a row for each device
// and each setting that the device has.
func captureLimits(s analysis.Summary) grid {
	g := newGrid("Highest rate at which nothing is lost", "<DUT", "<Setting", "Nothing lost up to|Mbit/s",
		"Lost from|Mbit/s", "Captured there|% of those that passed", "Lost end to end there|% of those offered", "<Note")
	if !severalRates(s.Cells) {
		return g
	}
	rows := distinct(
		textsOf(s.Cells, func(c analysis.Cell) string { return settingOf(c).With(result.DUT, c.DUT()).String() }))
	sizes := distinct(textsOf(s.Cells, func(c analysis.Cell) string { return c.Text(result.FrameSize) }))
	for _, key := range rows {
		cells := slices.DeleteFunc(
			slices.Clone(s.Cells), func(c analysis.Cell) bool { return settingOf(c).With(result.DUT, c.DUT()).String() != key })
		dut, setting := cells[0].DUT(), settingOf(cells[0])
		if len(sizes) == 1 {
			setting = setting.Without(result.FrameSize)
		}
		r, note, from, taken, lost := reachOf(cells, dut), "", analysis.Absent(), analysis.Unknown(), analysis.Unknown()
		if r.None || r.Unknown || r.All || !r.Mbps.Known() {
			note = words.Capitalised(r.String())
		}
		if !r.All {
			from, taken, lost = offeredMbps(r.First.Cell), r.First.Device(capture.CapturedPct), r.First.Device(capture.LossPct)
		}
		g.add(key, nameCell(dut, dut), textCell(settingText(setting, cells)), numberCell(r.Mbps, digits4),
			numberCell(from, digits4),
			estimateCell(taken, frameShareBare), estimateCell(lost, frameShareBare), textCell(note))
	}
	return g
}

// shareOf shows a metric that is a share of frames. It never rounds a share to 0 or 100 %.
func shareOf(metric, name, note string) cellColumn {
	return cellColumn{from: func(metrics []analysis.Metric) cellColumn {
		col := device(metric, name, note).from(metrics)
		col.cell = func(c analysis.Cell) gridCell { return estimateCell(c.Device(metric), frameShareBare) }
		return col
	}}
}

// captureResults has the most important figures. captureTables has all others.
func captureResults(s analysis.Summary) []cellColumn {
	cols := []cellColumn{shareOf(capture.CapturedPct, "Captured", "* of those that passed"), shareOf(capture.DroppedPct,
		"Dropped", "* of those that passed")}
	if anyAboveZero(s, capture.WaitingPct) {
		cols = append(cols, shareOf(capture.WaitingPct, "Waiting", "* of those that passed"))
	}
	busy := "* of what the host has"
	if anyOtherWork(s.Cells) {
		busy += ", " + withOther
	}
	cols = append(cols, shareOf(capture.LossPct, "Lost end to end", "* of those offered"),
		device(capture.BusyPct, "CPU in use", busy),
		device(capture.CorePct, "Capturing", "*"), device(capture.NsPerFrame, "A frame", "*"), pairsColumn("Trials"),
		rejectedColumn("Rejected"))
	if anySharedCPU(s) {
		cols = append(cols, textColumn("Note", func(c analysis.Cell) string {
			if c.Flagged(capture.FlagShared) {
				return "two CPUs, " + generators
			}
			return ""
		}))
	}
	return cols
}

func captureTables(analysis.Summary) []cellTable {
	return []cellTable{
		{"Where frames were lost", "", []cellColumn{
			device(capture.KFramesPerSecond, "Passed", "*"), device(capture.OfferedPct, "Offered", "* of those due"),
			shareOf(capture.LinkLossPct, "Before the interface", "* of those offered"),
			shareOf(capture.DroppedPct, "By the program's word", "* of those that passed"),
			shareOf(capture.WaitingPct, "Waiting at its end", "* of those that passed"),
			device(capture.UnexplainedPct, "Not accounted for", "* of those that passed"),
			shareOf(capture.LossPct, "End to end", "* of those offered"),
			shareOf(capture.CapturedOfferedPct, "The studies' capture rate", "* captured of those offered"),
			textColumn("Flags", func(c analysis.Cell) string { return textsWithCounts(c.Flags) }),
		}},
		{"What the CPU did", "", []cellColumn{
			device(capture.NapiCorePct, "Polling threads", "*"), device(capture.ProcessCorePct, "Capture programs", "*"),
			device(capture.BackgroundCorePct, "Other work", "*"),
			device(analysis.RouterSharePct, "Share", "*"),
		}},
	}
}
