package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/report/chart"
	"github.com/gateweigh/gateweigh/lab/result"
)

// headline is one card: what a device costs at its heaviest load. Sentence goes
// on after the name of the DUT.
type headline struct {
	DUT, Big, Interval, Sentence string
	Verdict, P                   string
	Style                        string
	Facts                        []fact
}

// fact is a name with its value.
type fact struct{ Name, Value string }

// heaviest has one cell a DUT: that with the highest offered load, with the
// most clients among those, upload before download.
func heaviest(s analysis.Summary) []analysis.Cell {
	best := map[string]analysis.Cell{}
	var order []string
	for _, c := range s.Cells {
		old, seen := best[c.DUT]
		if !seen {
			order = append(order, c.DUT)
		}
		better := c.OfferedMbps > old.OfferedMbps || c.OfferedMbps == old.OfferedMbps && c.Clients > old.Clients
		sameWay := c.Direction == old.Direction && c.Profile == old.Profile
		if !seen || old.Pairs == 0 && c.Pairs > 0 || better && sameWay && c.Pairs > 0 {
			best[c.DUT] = c
		}
	}
	var out []analysis.Cell
	for _, name := range order {
		out = append(out, best[name])
	}
	return out
}

func headlines(s analysis.Summary, styles map[string]int) []headline {
	var out []headline
	for _, c := range heaviest(s) {
		h := headline{
			DUT: c.DUT, Big: none, Verdict: c.Verdict, P: chance(c), Style: chart.Style{Number: styles[c.DUT]}.Class(),
			Sentence: unbroken(strings.TrimPrefix(headlineSentence(s, c), c.DUT)), Facts: cardFacts(c, s.CostModels),
		}
		if c.OverheadRatio.Mean.Known() {
			h.Big = ratio(c.OverheadRatio.Mean) + " ×"
			h.Interval = bounds(c.OverheadRatio, ratio)
		}
		if l, ok := ceilingOf(s, c); ok && failsSomewhere(s) {
			h.addCeiling(l, c)
		}
		out = append(out, h)
	}
	return out
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

// capacityFact is the line of a card that says what one core of the router carries.
const capacityFact = "Carries"

// cardFacts is what else a reader asks of a device; what is not known is left out.
func cardFacts(c analysis.Cell, models []analysis.CostModel) []fact {
	var out []fact
	add := func(known bool, name, format string, args ...any) {
		if known {
			out = append(out, fact{name, unbroken(fmt.Sprintf(format, args...))})
		}
	}
	for _, m := range models {
		if m.DUT != c.DUT || m.Direction != c.Direction || m.Profile != c.Profile {
			continue
		}
		for _, at := range m.Capacity {
			if at.Clients == c.Clients && at.Mbps.Mean.Known() {
				out = append(out, fact{capacityFact, unbroken(capacityText(at))})
			}
		}
	}
	add(c.RTT.P99.Known() && c.CleanRTT.P99.Known(), "Delay, p99", "%s, clean router %s", micros(c.RTT.P99), micros(c.CleanRTT.P99))
	add(c.PSSMiB.Known() && c.PSSMiB > 0, "Memory", "%s MiB", digits3(c.PSSMiB))
	login := c.BlockFigures.LoginP50ms.Mean
	add(login.Known() && login > 0, "Log-in", "%s ms a client", digits3(login))
	return append(out, guestFacts(c)...)
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

// leadSentence says what every device costs, for whoever reads one sentence
// only. It claims no more than the verdicts do.
func leadSentence(s analysis.Summary) string {
	cells := heaviest(s)
	if len(cells) == 0 {
		return ""
	}
	where, alike := "", !slices.ContainsFunc(cells, func(c analysis.Cell) bool { return loadText(c) != loadText(cells[0]) })
	if alike {
		where = " " + loadText(cells[0])
	}
	var costs, open, limits []string
	for _, c := range cells {
		times := " times"
		if len(costs) == 0 {
			times = " times the CPU"
		}
		name := c.DUT
		if !alike {
			name += " " + loadText(c)
		}
		switch {
		case c.Pairs > 0 && c.Verdict == analysis.Different:
			costs = append(costs, ratio(c.OverheadRatio.Mean)+times+" with "+name)
		case c.Pairs > 0 && c.Verdict == analysis.Equivalent:
			costs = append(costs, fmt.Sprintf("the same CPU, within %g %%, with %s", 100*s.Delta, name))
		default:
			open = append(open, c.DUT)
		}
		if short(c) {
			limits = append(limits, fmt.Sprintf("%s could carry only %s.", c.DUT, rate(c.DeliveredMbps)))
		}
	}
	ceilings := ceilingsLead(s, cells)
	if ceilings != "" {
		limits = nil // it says more
	}
	out := []string{ceilings, strings.Join(crowdSentences(cells), " "), guestsLead(cells)}
	if len(costs) > 0 {
		out = append(out, fmt.Sprintf("Compared with %s, carrying the same bit%s takes %s.", otherName(s), where, listed(costs)))
	}
	out = append(out, limits...)
	if len(open) > 0 {
		out = append(out, openSentence(s, open))
	}
	out = append(out, unheardSentence(s, cells))
	out = slices.DeleteFunc(out, func(text string) bool { return text == "" })
	return unbroken(strings.Join(out, " "))
}

// unheardSentence names the loads above those of the cards of which no trial was accepted.
func unheardSentence(s analysis.Summary, cells []analysis.Cell) string {
	var parts []string
	for _, c := range cells {
		var loads []string
		for _, o := range s.Cells {
			if o.DUT == c.DUT && o.Direction == c.Direction && o.Profile == c.Profile && o.Pairs == 0 && c.Pairs > 0 &&
				(o.OfferedMbps > c.OfferedMbps || o.OfferedMbps == c.OfferedMbps && o.Clients > c.Clients) {
				loads = append(loads, loadText(o))
			}
		}
		if len(loads) > 0 {
			parts = append(parts, c.DUT+" "+listed(loads))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("No trial of %s was accepted.", listed(parts))
}

// listed joins parts as a sentence does.
func listed(parts []string) string {
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
}

// short reports whether the device itself could not carry the offered load. A
// hiccup in one trial of many is not the device's limit.
func short(c analysis.Cell) bool {
	return c.Has(result.FlagSaturated) && c.DeliveredMbps < 0.98*c.OfferedMbps
}

// loadText is the load of a cell in a sentence.
func loadText(c analysis.Cell) string {
	return fmt.Sprintf("at %s %s with %s", rate(c.OfferedMbps), directionWord(c.Direction), counted(c.Clients, "client"))
}

// headlineSentence says in words what a DUT costs; it claims no more than the verdict does.
func headlineSentence(s analysis.Summary, c analysis.Cell) string {
	where := loadText(c)
	r := fmt.Sprintf("%s × %s", ratio(c.OverheadRatio.Mean), otherName(s))
	var text string
	switch {
	case c.Pairs == 0:
		text := c.DUT + ": no trial was accepted"
		if len(c.Rejects) > 0 {
			text += ", mostly because: " + c.Rejects[0].Text
		}
		return text + "."
	case !c.OverheadRatio.Mean.Known():
		return fmt.Sprintf("%s: no ratio %s, because a side delivered nothing or cost nothing.", c.DUT, where)
	case c.Verdict == analysis.Different:
		text = fmt.Sprintf("%s costs %s %s", c.DUT, r, where)
	case c.Verdict == analysis.Equivalent:
		text = fmt.Sprintf("%s costs the same as a clean router within %g %%, %s %s", c.DUT, 100*s.Delta, r, where)
	default:
		text = fmt.Sprintf("%s seems to cost %s %s: %s", c.DUT, r, where, c.VerdictNote)
	}
	if short(c) {
		text += fmt.Sprintf("; it could deliver only %s", rate(c.DeliveredMbps))
	}
	return text + "."
}

// unbroken keeps figures together with their units and intervals whole.
func unbroken(s string) string {
	return strings.NewReplacer("× ", "×\u00a0", " ×", "\u00a0×", " %", "\u00a0%", " Mbit", "\u00a0Mbit", " Gbit", "\u00a0Gbit",
		" MiB", "\u00a0MiB", " ms", "\u00a0ms", " µs", "\u00a0µs").Replace(s)
}
