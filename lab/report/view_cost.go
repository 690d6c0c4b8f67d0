package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// costView shows the CPU that a device takes.
var costView = view{
	mode:    func(s analysis.Summary) string { return words.Or(s.Mode, "mode unknown") },
	columns: costColumns, remarks: costRemarks, reading: costReading, first: costScreen,
	fill: func(data *pageData, d *drawing, s analysis.Summary) {
		switch {
		case failsSomewhere(s):
			data.Question = "What they carry, and what they cost"
		case s.Sides != nil:
			data.Question = "How the two labs compare"
		default:
			data.Question = "What it costs"
		}
		if note, ok := modeNotes[s.Mode]; ok {
			data.ModeNote = note + words.Capitalised(sidesSentence(s))
		}
		data.Multiplicity = multiplicityNote(s)
		data.Groups, data.Flames = grouped(s.Cells, d.group, packetDimensions...), flameSection(d.dir, s)
		data.Courses = d.courseGroups(d.inWindows)
		data.CourseNote = "Lines are medians over blocks, of which each is the mean of its windows; shaded is the " +
			"middle half of the blocks. Each device is shown at its heaviest load; course.csv has all loads."
		data.Capacity, data.CostModels, data.Ceilings = d.capacityFigures(), costModelGrid(s.CostModels),
			ceilingsGrid(s.Ceilings)
		data.CeilingsNote = "A load counts as carried when it is delivered in full with at most 1 % of its segments sent " +
			"again. The ceiling lies between the load carried and the one at which a router fails."
		data.Results, data.Further = resultsGrid(s), furtherGrids(s)
		data.Noise, data.NoiseFigure, data.Stability = keepTogether(words.Capitalised(noiseSentence(s.AA))), d.noiseFigure(),
			d.stabilityFigures()
	},
}

// modeNotes say how the two sides of a pair are measured.
var modeNotes = map[string]string{
	result.ModeDuet: "Duet: DUT and clean router run at the same time in two labs with the same placement and load, so " +
		"noise of the machine cancels in their ratio. " +
		"Each block rebuilds both labs and swaps which of them carries the DUT. ",
	result.ModeSolo: "Solo: DUT and clean router are measured one after the other, so noise of the machine does not " +
		"cancel and shows in the intervals. ",
	result.ModeInterleaved: "Interleaved: one lab stands at a time. Each round measures every device and a clean router " +
		"in a balanced random order; ratios are within a round, and intervals over rounds, so what drifts from one round " +
		"to the next cancels. The noise floor is of rounds with two clean routers. ",
}

// multiplicityNote says how many verdicts are judged together.
func multiplicityNote(s analysis.Summary) string {
	if s.Multiplicity.Verdicts < 2 || s.Multiplicity.Method == "" {
		return ""
	}
	return fmt.Sprintf(
		"Verdicts are corrected for judging %d cells at once (%s): the chance that even one of them is wrong is at most "+
			"%.3g\u00a0%%.",
		s.Multiplicity.Verdicts, words.Capitalised(s.Multiplicity.Method), 100*(1-s.Confidence))
}

// costColumns returns the columns of the terminal's table of costs.
func costColumns(s analysis.Summary) []cellColumn {
	m := s.Metrics
	return append(routerColumns(cost.Dimensions, "DUT", dimensionsOf), offeredColumn,
		meanColumn(m, cost.Delivered, "delivered", analysis.Cell.Device).dropFirst(3),
		meanColumn(m, cost.CPU, "clean CPU", analysis.Cell.Clean).dropFirst(5),
		meanColumn(m, cost.CPU, "DUT CPU", analysis.Cell.Device).dropFirst(4),
		decidedColumn(s).alignLeft(),
		meanColumn(m, cost.NsPerPacket, "ns/packet", analysis.Cell.Device).dropFirst(2),
		meanColumn(m, cost.RTTP99MedianUs, "RTT p99", analysis.Cell.Device).dropFirst(1),
		textColumn("verdict", func(c analysis.Cell) string { return verdictText(s, c) }))
}

// togetherSign marks an interval that holds for all cells together.
const togetherSign = "*"

// decidedColumn shows the ratio with the interval that decides its verdict.
func decidedColumn(s analysis.Summary) cellColumn {
	col := estimateColumn(
		ratioHead(s)+" ×", "", ratio, func(c analysis.Cell) analysis.Estimate { return c.Change(cost.PerBit) })
	plain := col.cell
	col.cell = func(c analysis.Cell) gridCell {
		if c.Together == nil {
			return plain(c)
		}
		decided := estimateCell(*c.Together, ratio)
		decided.Small += togetherSign
		return decided
	}
	return col
}

// verdictText returns the verdict with its note.
func verdictText(s analysis.Summary, c analysis.Cell) string {
	if c.BlocksNeeded != nil {
		return fmt.Sprintf("%s (+%s)", c.Verdict, words.Counted(*c.BlocksNeeded, repeat(s)))
	}
	return c.Verdict
}

// costRemarks returns the lines below the table of costs.
func costRemarks(s analysis.Summary) []string {
	out := append(slices.Concat(lineRemarks(s), totalsSentences(s.Cells), churnSentences(s.Cells)),
		"Noise floor: "+noiseSentence(s.AA))
	if slices.ContainsFunc(s.Cells, func(c analysis.Cell) bool { return c.Together != nil }) {
		out = append([]string{togetherSign +
			" An interval of all cells together: by that of the cell by itself the verdict would be another, and among so " +
			"many cells one may look so by chance."}, out...)
	}
	out = append(openSentences(s), out...)
	if text := sidesSentence(s); text != "" {
		out = append([]string{"What is compared: " + text}, out...)
	}
	return out
}

// openSentences says why cells have no verdict. Each reason has one line with the first cells that have it.
func openSentences(s analysis.Summary) (out []string) {
	const shown = 3 // cells named for each reason
	cells := map[string][]string{}
	var reasons []string
	for _, c := range s.Cells {
		if c.Verdict != analysis.Inconclusive || c.Together != nil || c.Pairs == 0 {
			continue
		}
		reason, _, _ := strings.Cut(c.VerdictNote, ";")
		if cells[reason] == nil {
			reasons = append(reasons, reason)
		}
		cells[reason] = append(cells[reason], c.DUT()+" "+loadText(c))
	}
	for _, reason := range reasons {
		list := cells[reason]
		if more := len(list) - shown; more > 0 {
			list = append(list[:shown:shown], fmt.Sprintf("%d more", more))
		}
		out = append(out, fmt.Sprintf("Left open (%s): %s.", reason, words.Listed(list)))
	}
	return out
}

func costReading(s analysis.Summary) string {
	return fmt.Sprintf(
		"%s × is router CPU per delivered bit, DUT over clean router, with its %g %% interval over %s; "+
			"it is equivalent when that lies within %g %% of 1; else different when it leaves out 1 and the ratio lies beyond "+
			"the noise floor; "+
			"both corrected for the number of cells.", ratioHead(s), 100*s.Confidence, words.Plural(repeat(s)), 100*s.Delta)
}

// noiseSentence says by how much two clean routers differ.
func noiseSentence(aa analysis.AA) string {
	if !aa.Ratio.Mean.Known() {
		return "not known: no A/A pair was measured and accepted."
	}
	spread := ""
	if aa.SDLog.Known() {
		spread = fmt.Sprintf(", blocks spread by %s", percent(aa.SDLog*100))
	}
	return fmt.Sprintf("two clean routers differ by × %s (%s in %s%s).", withBounds(aa.Ratio, digits3OfRatio),
		words.Counted(aa.Pairs, "pair"), words.Counted(aa.Blocks, "block"), spread)
}

// costScreen returns the picture of the page's first screen, and the sentence above it.
func costScreen(d *drawing) (lead string, r ranking) {
	s := d.summary
	if failsSomewhere(s) {
		r, cells := rankCeilings(d)
		if lead = ceilingsLead(s, cells); lead != "" {
			return lead, r
		}
	}
	return leadSentence(s, rankedCells(s)), rankCosts(d)
}

// rankedCells returns one cell for each device, at its heaviest load. The device with the lowest cost comes first.
func rankedCells(s analysis.Summary) []analysis.Cell {
	cells := onePerDevice(s.Cells, func(c, than analysis.Cell) bool {
		return c.Pairs > 0 && (than.Pairs == 0 || samePackets(c.Cell, than.Cell) && compareLoad(c, than))
	})
	rankBy(cells, func(c analysis.Cell) analysis.Number { return c.Change(cost.PerBit).Mean })
	return cells
}

// rankCosts ranks the devices by the CPU for each delivered bit, the lowest first. Devices without a figure come last.
func rankCosts(d *drawing) ranking {
	s := d.summary
	cells := rankedCells(s)
	load, setting := commonText(cells, loadText)
	r := ranking{
		Title: "Router CPU per delivered bit, × " + otherName(s), Load: load, Order: "cheapest first",
		Reference: 1, ReferenceName: "clean router", Floor: s.AA.Ratio, ReachText: intervalText(s),
		Notes: []string{unheardSentence(s, cells)},
		Key: []keyEntry{
			{analysis.Different, "differs from the clean router"},
			{analysis.Equivalent, sameWithin(s)},
			{analysis.Inconclusive, "left open"},
		},
	}
	if s.Sides != nil {
		r.Title = "Ratio of the labs: router CPU per delivered bit, × " + otherName(s)
	}
	for _, c := range cells {
		row, e := d.ranked(c), c.Change(cost.PerBit)
		row.Shape, row.Word, row.Figure, row.Value, row.Interval = c.Verdict, c.Verdict, e, ratio(e.Mean)+" ×",
			bounds(e, ratio)
		row.Note, row.Facts = words.Joined("; ", setting(c), costNote(s, c)), costFacts(s, c)
		r.Rows = append(r.Rows, row)
	}
	return r
}

func sameWithin(s analysis.Summary) string { return fmt.Sprintf("the same within %g %%", 100*s.Delta) }

// costNote returns a note about a device that belongs beside its ratio.
func costNote(s analysis.Summary, c analysis.Cell) string {
	var verdict, limit, guests string
	switch {
	case c.Pairs == 0:
		return notAccepted(c, "trial")
	case !c.Change(cost.PerBit).Mean.Known():
		return "no ratio, because a side delivered nothing or cost nothing"
	case c.Verdict == analysis.Equivalent:
		verdict = sameWithin(s)
	case c.Verdict == analysis.Inconclusive:
		reason, _, _ := strings.Cut(c.VerdictNote, ";")
		verdict = words.Joined(", ", words.Joined(": ", "left open", reason), togetherText(c.Together, ratio, "cells"))
	}
	if cost.AtLimit(c) {
		limit = fmt.Sprintf(
			"delivers %s of %s Mbit/s", digits3(c.Device(cost.Delivered).Mean), significantTrimmed(offeredMbps(c.Cell), 4))
	}
	if c.Counts[cost.GuestsIn] < c.Counts[cost.GuestsCame] {
		guests = guestsIn(c)
	}
	return words.Joined("; ", verdict, limit, guests)
}

// chance returns the p-value of a verdict. It is empty when there is none.
func chance(c analysis.Cell) string {
	p, ok := map[string]analysis.Number{analysis.Different: c.PDifferent, analysis.Equivalent: c.PEquivalent}[c.Verdict]
	switch {
	case !ok || !p.Known():
		return ""
	case p < 0.001:
		return "p < 0.001"
	}
	return "p = " + digits3OfRatio(p)
}

// capacityFact is the name of the fact that says what one core of the router carries.
const capacityFact = "Capacity"

func costFacts(s analysis.Summary, c analysis.Cell) []fact {
	var out factList
	out.add(c.Pairs > 0 && c.Verdict != "", "Verdict", "%s", verdictFact(s, c))
	for _, m := range s.CostModels {
		for _, point := range m.Capacity {
			known := m.Cell.Text(result.DUT) == c.DUT() && samePackets(m.Cell, c.Cell) &&
				point.Clients == c.Int(result.Clients) &&
				point.Mbps.Mean.Known()
			out.add(known, capacityFact, "%s", capacityText(point))
		}
	}
	dut, beside := c.Device(cost.RTTP99MedianUs).Mean, c.Clean(cost.RTTP99MedianUs).Mean
	out.add(dut.Known() && beside.Known(), "Delay, p99", "%s, clean router %s", micros(dut), micros(beside))
	idle, added, others := c.Device(cost.IdleP50Us).Mean, c.Device(cost.AddedP50Us).Mean, c.Clean(cost.AddedP50Us).Mean
	out.add(idle.Known() && added.Known() && others.Known(), "Delay, idle",
		"%s, to which the load adds %s µs, at the clean router %s µs", micros(idle), signedText(added), signedText(others))
	pss, login := c.Device(cost.PSSMiB).Mean, c.Device(cost.LoginP50Ms).Mean
	out.add(pss.Known() && pss > 0, "Memory", "%s MiB", digits3(pss))
	out.add(login.Known() && login > 0, "Login", "%s ms a client", digits3(login))
	out.add(manyAtOnce(c), "All at once", "%s", totalsText(c))
	out.add(c.Counts[cost.GuestBlocks] > 0, "Guests", "%s", guestsFact(c))
	out.add(c.Counts[cost.GuestBlocks] > 0, "Tracked connections", "%s",
		beforeAndAfter(c, cost.FlowsBefore, cost.FlowsAfter))
	return out
}

// verdictFact returns the verdict with its p-value, or with its note.
func verdictFact(s analysis.Summary, c analysis.Cell) string {
	switch c.Verdict {
	case analysis.Inconclusive:
		return words.Joined("; ", words.Joined(": ", c.Verdict, c.VerdictNote), togetherText(c.Together, ratio, "cells"))
	case analysis.Equivalent:
		return words.Joined(", ", fmt.Sprintf("equivalent within %g %%", 100*s.Delta), chance(c))
	}
	return words.Joined(", ", c.Verdict, chance(c))
}

// capacityText says how much a device carries, and whether that was measured or modelled.
func capacityText(c analysis.Capacity) string {
	switch {
	case c.Saturated:
		return rate(c.Mbps.Mean) + ", its limit in this run"
	case c.Extrapolated:
		return fmt.Sprintf("about %s a core, extrapolated from %s", rate(c.Mbps.Mean), rate(c.MeasuredMbps))
	}
	return rate(c.Mbps.Mean) + " a core"
}

// leadSentence gives the range of the devices' costs, for readers of one sentence only. It claims no more than the
// verdicts do. The cells must be ranked.
func leadSentence(s analysis.Summary, cells []analysis.Cell) string {
	var known, open []analysis.Cell
	accepted := 0
	for _, c := range cells {
		accepted += c.Pairs
		if c.Pairs > 0 && (c.Verdict == analysis.Different || c.Verdict == analysis.Equivalent) {
			known = append(known, c)
		} else {
			open = append(open, c)
		}
	}
	switch {
	case len(cells) == 0:
		return ""
	case accepted == 0:
		return "No trial was accepted, so there is nothing to compare."
	}
	where, each := commonText(cells, loadText)
	name := func(c analysis.Cell) string { return words.Joined(" ", c.DUT(), each(c)) }
	left := openClause(
		s, textsOf(open, func(c analysis.Cell) string { return words.Joined(" ", name(c), bounds(decidedBy(c), ratio)) }))
	if len(known) == 0 {
		return keepTogether(words.Capitalised(words.Joined(", ", where, left)) + ".")
	}
	text := words.Joined(
		" ", fmt.Sprintf("Compared with %s, carrying the same bit", otherName(s)), where, "takes", costRange(s, known, name))
	return keepTogether(words.Joined("; ", text, left) + ".")
}

// costRange gives the costs of the cheapest and the most expensive of the ranked cells.
func costRange(s analysis.Summary, cells []analysis.Cell, name func(analysis.Cell) string) string {
	same := fmt.Sprintf("the same CPU, within %g %%,", 100*s.Delta)
	amount := func(c analysis.Cell, unit string) string {
		text := same + " with " + name(c)
		if c.Verdict == analysis.Different {
			text = ratio(c.Change(cost.PerBit).Mean) + unit + " with " + name(c)
		}
		if cost.AtLimit(c) {
			text += fmt.Sprintf(", which delivers only %s", rate(c.Device(cost.Delivered).Mean))
		}
		return text
	}
	first, last := cells[0], cells[len(cells)-1]
	order := orderClause(cells, costRatio)
	switch {
	case len(cells) == 1:
		return amount(first, " times the CPU")
	case !slices.ContainsFunc(cells, func(c analysis.Cell) bool { return c.Verdict != analysis.Equivalent }):
		return same + " with " + words.Listed(textsOf(cells, name))
	}
	from := "from " + amount(first, " times the CPU")
	if cost.AtLimit(first) {
		from += ","
	}
	return words.Joined("; ", from+" to "+amount(last, " times"), order)
}

// decidedBy returns the ratio with the interval that decides the cell's verdict.
func decidedBy(c analysis.Cell) analysis.Estimate {
	e := c.Change(cost.PerBit)
	switch {
	case c.Together != nil:
		return *c.Together
	case !e.Mean.Known():
		return analysis.Unknown()
	}
	return e
}

// unheardSentence names loads above those of the picture at which no trial was accepted.
func unheardSentence(s analysis.Summary, cells []analysis.Cell) string {
	var parts []string
	for _, c := range cells {
		var loads []string
		for _, o := range s.Cells {
			if o.DUT() == c.DUT() && samePackets(o.Cell, c.Cell) && o.Pairs == 0 && c.Pairs > 0 && compareLoad(o, c) {
				loads = append(loads, loadText(o))
			}
		}
		if len(loads) > 0 {
			parts = append(parts, c.DUT()+" "+words.Listed(loads))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("No trial of %s was accepted.", words.Listed(parts))
}
