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

// fact is a name with its value.
type fact struct{ Name, Value string }

// heaviest has one cell a DUT: that with the highest offered load, with the
// most clients among those, upload before download.
func heaviest(s analysis.Summary) []analysis.Cell {
	best := map[string]analysis.Cell{}
	var order []string
	for _, c := range s.Cells {
		old, seen := best[c.DUT()]
		if !seen {
			order = append(order, c.DUT())
		}
		better := offered(c.Cell) > offered(old.Cell) || offered(c.Cell) == offered(old.Cell) && c.Int(result.Clients) > old.Int(result.Clients)
		sameWay := c.Text(result.Direction) == old.Text(result.Direction) && c.Text(result.Profile) == old.Text(result.Profile)
		if !seen || old.Pairs == 0 && c.Pairs > 0 || better && sameWay && c.Pairs > 0 {
			best[c.DUT()] = c
		}
	}
	var out []analysis.Cell
	for _, name := range order {
		out = append(out, best[name])
	}
	return out
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
			{analysis.Equivalent, fmt.Sprintf("the same within %g %%", 100*s.Delta)},
			{analysis.Inconclusive, "left open"},
		},
	}
	if s.Sides != nil {
		r.Title = "Ratio of the labs: router CPU per delivered bit, × " + otherName(s)
	}
	for _, c := range cells {
		r.Rows = append(r.Rows, ranked{
			DUT: c.DUT(), Key: markKey(c.Cell), Style: d.style(c.DUT()).Class(), Shape: c.Verdict, Word: c.Verdict, At: c.Change(cost.PerBit),
			Value: ratio(c.Change(cost.PerBit).Mean) + " ×", Interval: bounds(c.Change(cost.PerBit), ratio),
			Note: words.Joined("; ", where(c), costNote(s, c)), Facts: costFacts(s, c),
		})
	}
	return r
}

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

// rankedCells has one cell a device, the cheapest first.
func rankedCells(s analysis.Summary) []analysis.Cell {
	cells := heaviest(s)
	rank(cells, func(c analysis.Cell) analysis.Number { return c.Change(cost.PerBit).Mean })
	return cells
}

// intervalText says what the lines of a picture are.
func intervalText(s analysis.Summary) string {
	return fmt.Sprintf("%g %% interval, on a logarithmic scale", 100*s.Confidence)
}

// costNote is what a reader must know of a device beside its ratio.
func costNote(s analysis.Summary, c analysis.Cell) string {
	var verdict, limit, guests string
	switch {
	case c.Pairs == 0:
		if len(c.Rejects) > 0 {
			return "no trial was accepted, mostly because: " + c.Rejects[0].Text
		}
		return "no trial was accepted"
	case !c.Change(cost.PerBit).Mean.Known():
		return "no ratio, because a side delivered nothing or cost nothing"
	case c.Verdict == analysis.Equivalent:
		verdict = fmt.Sprintf("the same within %g %%", 100*s.Delta)
	case c.Verdict == analysis.Inconclusive:
		verdict = "left open"
	}
	if cost.AtLimit(c) {
		limit = fmt.Sprintf("delivers %s of %s Mbit/s", digits3(c.Device(cost.Delivered).Mean), trimmed(offered(c.Cell), 4))
	}
	if c.Counts[cost.GuestsIn] < c.Counts[cost.GuestsCame] {
		guests = fmt.Sprintf("%d of %s got in", c.Counts[cost.GuestsIn], words.Counted(c.Counts[cost.GuestsCame], "guest"))
	}
	return words.Joined("; ", verdict, limit, guests)
}

// chance is the p-value behind a verdict, empty when there is none.
func chance(c analysis.Cell) string {
	p := analysis.Absent()
	switch c.Verdict {
	case analysis.Different:
		p = c.PDifferent
	case analysis.Equivalent:
		p = c.PEquivalent
	}
	switch {
	case !p.Known():
		return ""
	case p < 0.001:
		return "p < 0.001"
	}
	return fmt.Sprintf("p = %.3f", float64(p))
}

// capacityFact names what one core of the router carries.
const capacityFact = "Capacity"

// costFacts is what else a reader asks of a device; what is not known is left out.
func costFacts(s analysis.Summary, c analysis.Cell) []fact {
	var out []fact
	add := func(known bool, name, format string, args ...any) {
		if known {
			out = append(out, fact{name, fmt.Sprintf(format, args...)})
		}
	}
	add(c.Pairs > 0 && c.Verdict != "", "Verdict", "%s", verdictFact(s, c))
	for _, m := range s.CostModels {
		if m.Cell.Text(result.DUT) != c.DUT() || m.Cell.Text(result.Direction) != c.Text(result.Direction) || m.Cell.Text(result.Profile) != c.Text(result.Profile) {
			continue
		}
		for _, at := range m.Capacity {
			add(at.Clients == c.Int(result.Clients) && at.Mbps.Mean.Known(), capacityFact, "%s", capacityText(at))
		}
	}
	add(c.Device("rtt_p99_median_us").Mean.Known() && c.Clean("rtt_p99_median_us").Mean.Known(), "Delay, p99", "%s, clean router %s", micros(c.Device("rtt_p99_median_us").Mean), micros(c.Clean("rtt_p99_median_us").Mean))
	add(c.Device("pss_mib").Mean.Known() && c.Device("pss_mib").Mean > 0, "Memory", "%s MiB", digits3(c.Device("pss_mib").Mean))
	login := c.Device("login_p50_ms").Mean
	add(login.Known() && login > 0, "Log-in", "%s ms a client", digits3(login))
	add(isCrowd(c), "All at once", "%s", crowdText(c))
	return append(out, guestFacts(c)...)
}

// verdictFact is the verdict with the chance behind it, or with what it lacks.
func verdictFact(s analysis.Summary, c analysis.Cell) string {
	switch c.Verdict {
	case analysis.Inconclusive:
		return words.Joined(": ", c.Verdict, c.VerdictNote)
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
	if len(known) == 0 {
		return unbroken(words.Capitalised(words.Joined(", ", where, openClause(s, named(open, name)))) + ".")
	}
	return unbroken(words.Joined("; ",
		words.Joined(" ", fmt.Sprintf("Compared with %s, carrying the same bit", otherName(s)), where, "takes", costRange(s, known, name)),
		openClause(s, named(open, name))) + ".")
}

// named are the names of cells.
func named(cells []analysis.Cell, name func(analysis.Cell) string) (out []string) {
	for _, c := range cells {
		out = append(out, name(c))
	}
	return out
}

// costRange is what the cheapest and the dearest of the cells cost, which are ranked.
func costRange(s analysis.Summary, cells []analysis.Cell, name func(analysis.Cell) string) string {
	same := fmt.Sprintf("the same CPU, within %g %%,", 100*s.Delta)
	cost := func(c analysis.Cell, unit string) string {
		amount := same
		if c.Verdict == analysis.Different {
			amount = ratio(c.Change(cost.PerBit).Mean) + unit
		}
		text := amount + " with " + name(c)
		if cost.AtLimit(c) {
			text += fmt.Sprintf(", which delivers only %s", rate(c.Device(cost.Delivered).Mean))
		}
		return text
	}
	first, last := cells[0], cells[len(cells)-1]
	switch {
	case len(cells) == 1:
		return cost(first, " times the CPU")
	case !slices.ContainsFunc(cells, func(c analysis.Cell) bool { return c.Verdict != analysis.Equivalent }):
		return same + " with " + words.Listed(named(cells, name))
	}
	return "from " + cost(first, " times the CPU") + " to " + cost(last, " times")
}

// inCommon is the text that holds for the whole list, and that of each where they differ.
func inCommon[T any](list []T, text func(T) string) (all string, each func(T) string) {
	if slices.ContainsFunc(list, func(v T) bool { return text(v) != text(list[0]) }) {
		return "", text
	}
	if len(list) > 0 {
		all = text(list[0])
	}
	return all, func(T) string { return "" }
}

// unheardSentence names the loads above those of the picture of which no trial was accepted.
func unheardSentence(s analysis.Summary, cells []analysis.Cell) string {
	var parts []string
	for _, c := range cells {
		var loads []string
		for _, o := range s.Cells {
			if o.DUT() == c.DUT() && o.Text(result.Direction) == c.Text(result.Direction) && o.Text(result.Profile) == c.Text(result.Profile) && o.Pairs == 0 && c.Pairs > 0 &&
				(offered(o.Cell) > offered(c.Cell) || offered(o.Cell) == offered(c.Cell) && o.Int(result.Clients) > c.Int(result.Clients)) {
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
	return fmt.Sprintf("at %s %s with %s", rate(offered(c.Cell)), words.Direction(c.Text(result.Direction)), words.Counted(c.Int(result.Clients), "client"))
}

// unbroken keeps figures together with their units and intervals whole.
func unbroken(s string) string {
	return strings.NewReplacer("× ", "×\u00a0", " ×", "\u00a0×", " %", "\u00a0%", " Mbit", "\u00a0Mbit", " Gbit", "\u00a0Gbit",
		" MiB", "\u00a0MiB", " ms", "\u00a0ms", " µs", "\u00a0µs").Replace(s)
}
