package report

import (
	"fmt"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// fact is a name with its value.
type fact struct{ Name, Value string }

// factList is what else a reader asks of a device. What is not known is left out.
type factList []fact

func (f *factList) add(known bool, name, format string, args ...any) {
	if known {
		*f = append(*f, fact{name, fmt.Sprintf(format, args...)})
	}
}

// oneEach has one cell a device: the first, or one that is better.
func oneEach(cells []analysis.Cell, better func(c, than analysis.Cell) bool) (out []analysis.Cell) {
	at := map[string]int{}
	for _, c := range cells {
		if i, seen := at[c.DUT()]; !seen {
			at[c.DUT()] = len(out)
			out = append(out, c)
		} else if better(c, out[i]) {
			out[i] = c
		}
	}
	return out
}

// heavier compares the offered load, then the number of clients.
func heavier(c, than analysis.Cell) bool {
	return result.CompareCells(c.Cell, than.Cell, result.OfferedMbps, result.Clients) > 0
}

// ways are the dimensions of what is sent: cells that differ in them share no chart.
var ways = []result.Dimension{result.Direction, result.Profile, result.FrameSize, result.LinkMbps}

// sameWay reports whether two cells carry the same packets the same way.
func sameWay(a, b result.Cell) bool { return alike(a, b, ways...) }

// packetsText says how packets look to the router: their profile, the size of frames, and the link that they come to.
func packetsText(c result.Cell) string {
	link := ""
	if v, has := c.Value(result.LinkMbps); has {
		link = analysis.WordsOf(v)
	}
	return words.Joined(", ", c.Text(result.Profile), words.Frames(c.Text(result.FrameSize)), link)
}

// wayText says what cells carry: "upload, per-packet".
func wayText(c result.Cell) string {
	return words.Direction(c.Text(result.Direction)) + ", " + packetsText(c)
}

// rankedCells has one cell a device, that at the heaviest load; the cheapest device comes first.
func rankedCells(s analysis.Summary) []analysis.Cell {
	cells := oneEach(s.Cells, func(c, than analysis.Cell) bool {
		return c.Pairs > 0 && (than.Pairs == 0 || sameWay(c.Cell, than.Cell) && heavier(c, than))
	})
	rank(cells, func(c analysis.Cell) analysis.Number { return c.Change(cost.PerBit).Mean })
	return cells
}

// ranked begins the row of a cell's device.
func (d *drawing) ranked(c analysis.Cell) ranked {
	return ranked{DUT: c.DUT(), Key: c.Cell.String(), Style: d.style(c.DUT()).Class()}
}

// rankCosts has the devices by the CPU they take for a bit, cheapest first; those of
// which nothing is known come last.
func rankCosts(d *drawing) ranking {
	s := d.summary
	cells := rankedCells(s)
	load, where := inCommon(cells, loadText)
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
		row.Shape, row.Word, row.At, row.Value, row.Interval = c.Verdict, c.Verdict, e, ratio(e.Mean)+" ×", bounds(e, ratio)
		row.Note, row.Facts = words.Joined("; ", where(c), costNote(s, c)), costFacts(s, c)
		r.Rows = append(r.Rows, row)
	}
	return r
}

func sameWithin(s analysis.Summary) string { return fmt.Sprintf("the same within %g %%", 100*s.Delta) }

// costScreen is the picture that a run is about, and the sentence above it.
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

// intervalText says what the lines of a picture are.
func intervalText(s analysis.Summary) string {
	return fmt.Sprintf("%g %% interval, on a logarithmic scale", 100*s.Confidence)
}

// notAccepted says that a cell has no accepted trial, and why.
func notAccepted(c analysis.Cell, noun string) string {
	if len(c.Rejects) > 0 {
		return "no " + noun + " was accepted, mostly because: " + c.Rejects[0].Text
	}
	return "no " + noun + " was accepted"
}

// costNote is what a reader must know of a device besides its ratio.
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
		verdict = words.Joined(", ", "left open", togetherText(c.Together, ratio, "cells"))
	}
	if cost.AtLimit(c) {
		limit = fmt.Sprintf("delivers %s of %s Mbit/s", digits3(c.Device(cost.Delivered).Mean), trimmed(offered(c.Cell), 4))
	}
	if c.Counts[cost.GuestsIn] < c.Counts[cost.GuestsCame] {
		guests = guestsIn(c)
	}
	return words.Joined("; ", verdict, limit, guests)
}

// chance is the p-value behind a verdict, empty when there is none.
func chance(c analysis.Cell) string {
	p, ok := map[string]analysis.Number{analysis.Different: c.PDifferent, analysis.Equivalent: c.PEquivalent}[c.Verdict]
	switch {
	case !ok || !p.Known():
		return ""
	case p < 0.001:
		return "p < 0.001"
	}
	return "p = " + three(p)
}

// capacityFact names what one core of the router carries.
const capacityFact = "Capacity"

func costFacts(s analysis.Summary, c analysis.Cell) []fact {
	var out factList
	out.add(c.Pairs > 0 && c.Verdict != "", "Verdict", "%s", verdictFact(s, c))
	for _, m := range s.CostModels {
		for _, at := range m.Capacity {
			known := m.Cell.Text(result.DUT) == c.DUT() && sameWay(m.Cell, c.Cell) && at.Clients == c.Int(result.Clients) &&
				at.Mbps.Mean.Known()
			out.add(known, capacityFact, "%s", capacityText(at))
		}
	}
	dut, beside := c.Device(cost.RTTP99MedianUs).Mean, c.Clean(cost.RTTP99MedianUs).Mean
	out.add(dut.Known() && beside.Known(), "Delay, p99", "%s, clean router %s", micros(dut), micros(beside))
	pss, login := c.Device(cost.PSSMiB).Mean, c.Device(cost.LoginP50Ms).Mean
	out.add(pss.Known() && pss > 0, "Memory", "%s MiB", digits3(pss))
	out.add(login.Known() && login > 0, "Login", "%s ms a client", digits3(login))
	out.add(manyAtOnce(c), "All at once", "%s", totalsText(c))
	out.add(c.Counts[cost.GuestBlocks] > 0, "Guests", "%s", guestsFact(c))
	out.add(c.Counts[cost.GuestBlocks] > 0, "Tracked connections", "%s", fromTo(c, cost.FlowsBefore, cost.FlowsAfter))
	return out
}

// verdictFact is the verdict with the chance behind it, or with what it lacks.
func verdictFact(s analysis.Summary, c analysis.Cell) string {
	switch c.Verdict {
	case analysis.Inconclusive:
		return words.Joined("; ", words.Joined(": ", c.Verdict, c.VerdictNote), togetherText(c.Together, ratio, "cells"))
	case analysis.Equivalent:
		return words.Joined(", ", fmt.Sprintf("equivalent within %g %%", 100*s.Delta), chance(c))
	}
	return words.Joined(", ", c.Verdict, chance(c))
}

// capacityText says how much a device carries, and whether that was seen.
func capacityText(c analysis.Capacity) string {
	switch {
	case c.Saturated:
		return rate(c.Mbps.Mean) + ", its limit in this run"
	case c.Extrapolated:
		return fmt.Sprintf("about %s a core, extrapolated from %s", rate(c.Mbps.Mean), rate(c.MeasuredMbps))
	}
	return rate(c.Mbps.Mean) + " a core"
}

// leadSentence says between what the devices of a run lie, for whoever reads one
// sentence only. It claims no more than the verdicts do. The cells are ranked.
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
	where, each := inCommon(cells, loadText)
	name := func(c analysis.Cell) string { return words.Joined(" ", c.DUT(), each(c)) }
	left := openClause(
		s, named(open, func(c analysis.Cell) string { return words.Joined(" ", name(c), bounds(decidedBy(c), ratio)) }))
	if len(known) == 0 {
		return unbroken(words.Capitalised(words.Joined(", ", where, left)) + ".")
	}
	text := words.Joined(
		" ", fmt.Sprintf("Compared with %s, carrying the same bit", otherName(s)), where, "takes", costRange(s, known, name))
	return unbroken(words.Joined("; ", text, left) + ".")
}

// named is a text of each cell.
func named(cells []analysis.Cell, name func(analysis.Cell) string) (out []string) {
	for _, c := range cells {
		out = append(out, name(c))
	}
	return out
}

// costRange says what the cheapest and the most expensive of the ranked cells cost.
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
		return same + " with " + words.Listed(named(cells, name))
	}
	from := "from " + amount(first, " times the CPU")
	if cost.AtLimit(first) {
		from += ","
	}
	return words.Joined("; ", from+" to "+amount(last, " times"), order)
}

// decidedBy is the ratio with the interval that the cell's verdict rests on.
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

// inCommon returns the text common to the whole list, or, where texts differ, a function
// with the text of each element.
func inCommon[T any](list []T, text func(T) string) (all string, each func(T) string) {
	if slices.ContainsFunc(list, func(v T) bool { return text(v) != text(list[0]) }) {
		return "", text
	}
	if len(list) > 0 {
		all = text(list[0])
	}
	return all, func(T) string { return "" }
}

// distinct keeps the first of equal values.
func distinct[T comparable](list []T) (out []T) {
	for _, v := range list {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// unheardSentence names the loads above those of the picture of which no trial was accepted.
func unheardSentence(s analysis.Summary, cells []analysis.Cell) string {
	var parts []string
	for _, c := range cells {
		var loads []string
		for _, o := range s.Cells {
			if o.DUT() == c.DUT() && sameWay(o.Cell, c.Cell) && o.Pairs == 0 && c.Pairs > 0 && heavier(o, c) {
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

// loadText is the load of a cell in a sentence.
func loadText(c analysis.Cell) string {
	return fmt.Sprintf(
		"at %s %s with %s", rate(offered(c.Cell)), words.Direction(c.Text(result.Direction)), clientsOf(c.Cell))
}
