package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// ceilingColumns are the terminal's table of ceilings.
var ceilingColumns = []column[analysis.Ceiling]{
	{head: "ceiling", left: true, value: func(l analysis.Ceiling) string { return result.OneLine(routerName(l.DUT)) }},
	{head: "profile", left: true, once: true, value: func(l analysis.Ceiling) string { return result.OneLine(l.Profile) }},
	{head: "direction", left: true, once: true, value: func(l analysis.Ceiling) string { return result.OneLine(l.Direction) }},
	{head: "clients", once: true, value: func(l analysis.Ceiling) string { return fmt.Sprint(l.Clients) }},
	{head: "carries", value: func(l analysis.Ceiling) string { return ofBlocks(carriesText(l), l.CarriesBlocks) }},
	{head: "router CPU", left: true, drop: 2, value: func(l analysis.Ceiling) string { return withBounds(l.CPU, percent) }},
	{head: "fails at", value: func(l analysis.Ceiling) string { return ofBlocks(rate(l.FailsMbps), l.FailsBlocks) }},
	{head: "by", left: true, value: func(l analysis.Ceiling) string { return failureWord(l.Why) }},
	{head: "delivers at most", left: true, drop: 1, value: mostText},
}

// ofBlocks adds to a load in how many blocks it was seen.
func ofBlocks(text string, blocks int) string {
	if blocks == 0 {
		return text
	}
	return strings.TrimSpace(fmt.Sprintf("%s (n\u00a0=\u00a0%d)", text, blocks))
}

// withBounds prints a mean and its interval, where it has one.
func withBounds(e analysis.Estimate, print func(analysis.Number) string) string {
	return strings.TrimSpace(print(e.Mean) + " " + bounds(e, print))
}

// mostText is the most a router delivered. Where no load failed that says nothing of
// the router: it is what was offered.
func mostText(l analysis.Ceiling) string {
	if !l.FailsMbps.Known() {
		return none
	}
	return withBounds(l.Most, rate)
}

// carriesText is the load a router carries. Where none failed it may be more.
func carriesText(l analysis.Ceiling) string {
	if l.CarriesMbps.Known() && !l.FailsMbps.Known() {
		return "≥ " + rate(l.CarriesMbps)
	}
	return rate(l.CarriesMbps)
}

// failureWord says how it shows that a load is not carried.
func failureWord(flag string) string {
	switch flag {
	case result.FlagSaturated:
		return "shortfall"
	case result.FlagLossy:
		return "loss"
	}
	return ""
}

// ceilingsReading says what the table of ceilings holds.
const ceilingsReading = "Ceilings: carried is a load that is delivered in full, with at most 1 % of its segments sent again, or of its datagrams lost, alone on the machine; " +
	"the ceiling lies between that and the load at which it fails; n counts blocks. Where no load failed, more was not offered."

// ceilingOf is the ceiling of a cell's device in the cell's setting.
func ceilingOf(s analysis.Summary, c analysis.Cell) (analysis.Ceiling, bool) {
	i := slices.IndexFunc(s.Ceilings, func(l analysis.Ceiling) bool {
		return l.DUT == c.DUT && l.Clients == c.Clients && l.Direction == c.Direction && l.Profile == c.Profile
	})
	if i < 0 {
		return analysis.Ceiling{}, false
	}
	return s.Ceilings[i], true
}

// ceilingText says in words between which loads a router's ceiling lies.
func ceilingText(l analysis.Ceiling) string {
	switch {
	case l.CarriesMbps.Known() && l.FailsMbps.Known():
		return fmt.Sprintf("%s but not %s", rate(l.CarriesMbps), rate(l.FailsMbps))
	case l.FailsMbps.Known():
		return "less than " + rate(l.FailsMbps)
	}
	return "at least " + rate(l.CarriesMbps)
}

// ceilingsLead says what each device of the cards carries; empty where the run has
// no ceilings.
func ceilingsLead(s analysis.Summary, cells []analysis.Cell) string {
	var parts []string
	for _, c := range cells {
		if l, ok := ceilingOf(s, c); ok && (l.CarriesMbps.Known() || l.FailsMbps.Known()) {
			verb := " "
			if len(parts) == 0 {
				verb = " carries "
			}
			parts = append(parts, l.DUT+verb+ceilingText(l))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "Alone on the machine and without loss, " + listed(parts) + "."
}

// failsSomewhere reports whether a device of the run came to its ceiling: then that is
// what its cards say first.
func failsSomewhere(s analysis.Summary) bool {
	return slices.ContainsFunc(s.Ceilings, func(l analysis.Ceiling) bool { return l.FailsMbps.Known() })
}

// addCeiling makes the card of a device one about its ceiling; what it costs becomes a line.
func (h *headline) addCeiling(l analysis.Ceiling, c analysis.Cell) {
	cost := fact{"CPU per bit", unbroken(strings.TrimSpace(fmt.Sprintf("%s × %s at %s, %s", ratio(c.OverheadRatio.Mean), bounds(c.OverheadRatio, ratio), rate(c.OfferedMbps), c.Verdict)))}
	if l.FailsMbps.Known() { // what it carries with loss would stand against it
		h.Facts = slices.DeleteFunc(h.Facts, func(f fact) bool { return f.Name == capacityFact })
	}
	h.Facts = append([]fact{cost}, h.Facts...)
	h.Verdict, h.P = "", ""
	h.Big, h.Interval = unbroken(carriesText(l)), counted(l.CarriesBlocks, "block")
	text := fmt.Sprintf(" carries %s without loss, alone on the machine, with %s, %s", ceilingText(l), counted(l.Clients, "client"), directionWord(l.Direction))
	switch {
	case !l.FailsMbps.Known():
		text += "; more was not offered"
	case !l.CarriesMbps.Known():
		h.Big, h.Interval = "< "+rate(l.FailsMbps), counted(l.FailsBlocks, "block")
		fallthrough
	default:
		text += fmt.Sprintf(": there it fails by %s; it delivers at most %s", failureWord(l.Why), withBounds(l.Most, rate))
	}
	h.Sentence = unbroken(text + ".")
}

// ceilingsGrid is one row a router, clients, direction and profile.
func ceilingsGrid(list []analysis.Ceiling) grid {
	g := grid{Caption: "What each carries without loss, alone on the machine", Sortable: true, Head: []gridHead{
		{Name: "Router", Text: true}, {Name: "Direction", Text: true}, {Name: "Profile", Text: true}, {Name: "Clients"},
		{Name: "Carries", Unit: "Mbit/s"}, {Name: "Router CPU there", Unit: "% of a core"}, {Name: "Fails at", Unit: "Mbit/s"}, {Name: "By", Text: true},
		{Name: "Delivers at most", Unit: "Mbit/s"},
	}}
	for _, l := range list {
		carries := numberCell(l.CarriesMbps, digits4)
		if l.CarriesMbps.Known() && !l.FailsMbps.Known() {
			carries.Main = "≥ " + carries.Main
		}
		carries.Small = ofBlocks("", l.CarriesBlocks)
		fails := numberCell(l.FailsMbps, digits4)
		fails.Small = ofBlocks("", l.FailsBlocks)
		most := estimateCell(l.Most, digits4)
		if !l.FailsMbps.Known() { // then it is what was offered
			most = gridCell{Main: none}
		}
		g.Rows = append(g.Rows, gridRow{Key: fmt.Sprintf("%s|%s|%s|%d", l.DUT, l.Direction, l.Profile, l.Clients), Cells: []gridCell{
			{Main: routerName(l.DUT), Sort: l.DUT, Text: true, Header: true}, textCell(l.Direction), textCell(l.Profile), countCell(l.Clients),
			carries, estimateCell(l.CPU, digits3), fails, textCell(failureWord(l.Why)), most,
		}})
	}
	return g
}
