package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// ceilingColumns are the terminal's table of ceilings.
var ceilingColumns = []column[analysis.Ceiling]{
	{head: "ceiling", left: true, value: func(l analysis.Ceiling) string { return result.OneLine(routerName(l.Cell.Text(result.DUT))) }},
	{head: "profile", left: true, once: true, value: func(l analysis.Ceiling) string { return result.OneLine(l.Cell.Text(result.Profile)) }},
	{head: "direction", left: true, once: true, value: func(l analysis.Ceiling) string { return result.OneLine(l.Cell.Text(result.Direction)) }},
	{head: "clients", once: true, value: func(l analysis.Ceiling) string { return fmt.Sprint(l.Cell.Int(result.Clients)) }},
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
		return l.Cell == c.Without(result.OfferedMbps)
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

// ceilingsLead says what the devices carry that carry most and least; empty where no
// ceiling is known. The cells are ranked.
func ceilingsLead(s analysis.Summary, cells []analysis.Cell) string {
	by := map[string][]string{}
	var texts []string
	for _, c := range cells {
		if l, ok := ceilingOf(s, c); ok && (l.CarriesMbps.Known() || l.FailsMbps.Known()) {
			text := ceilingText(l)
			if by[text] == nil {
				texts = append(texts, text)
			}
			by[text] = append(by[text], l.Cell.Text(result.DUT))
		}
	}
	if len(texts) == 0 {
		return ""
	}
	verb := "carries"
	if len(by[texts[0]]) > 1 {
		verb = "carry"
	}
	out := fmt.Sprintf("Alone on the machine and without loss, %s %s %s", words.Listed(by[texts[0]]), verb, texts[0])
	if len(texts) > 1 {
		last := texts[len(texts)-1]
		out += fmt.Sprintf(", and %s %s", words.Listed(by[last]), last)
	}
	return unbroken(out + ".")
}

// failsSomewhere reports whether a device of the run came to its ceiling: then that is
// what the picture is of.
func failsSomewhere(s analysis.Summary) bool {
	return slices.ContainsFunc(s.Ceilings, func(l analysis.Ceiling) bool { return l.FailsMbps.Known() })
}

// Shapes of the marks of ceilings.
const (
	shapeCarries = "carries" // and fails at a load that was tried
	shapeMore    = "more"    // carries all that was tried
	shapeLess    = "less"    // fails at the least that was tried
)

// rankCeilings has the devices by the load they carry, the largest first.
func rankCeilings(d *drawing) (ranking, []analysis.Cell) {
	s := d.summary
	cells := rankedCells(s)
	slices.SortStableFunc(cells, func(a, b analysis.Cell) int { return slices.Compare(ceilingOrder(s, a), ceilingOrder(s, b)) })
	load, where := inCommon(cells, func(c analysis.Cell) string {
		return fmt.Sprintf("with %s, %s", words.Counted(c.Int(result.Clients), "client"), words.Direction(c.Text(result.Direction)))
	})
	r := ranking{
		Title: "Load carried without loss, alone on the machine, Mbit/s", Load: load, Order: "the most first",
		ReachText: "to the load that is not carried, on a logarithmic scale",
		Key: []keyEntry{
			{shapeCarries, "carried; the next load tried is not"}, {shapeMore, "carried; more was not offered"}, {shapeLess, "fails at the least that was tried"},
		},
		Notes: []string{unheardSentence(s, cells)},
	}
	for _, c := range cells {
		if l, ok := ceilingOf(s, analysis.Cell{Cell: c.With(result.DUT, analysis.Clean)}); ok {
			text := words.Joined(" ", "The clean router carries "+ceilingText(l), where(c)) + "."
			if !slices.Contains(r.Notes, text) {
				r.Notes = append(r.Notes, text)
			}
		}
		row := ranked{DUT: c.DUT(), Key: ceilingKey(c.DUT(), c.Text(result.Direction), c.Text(result.Profile), c.Int(result.Clients)), Style: d.style(c.DUT()).Class(), Value: none, Note: costNote(s, c), Facts: costFacts(s, c)}
		if l, ok := ceilingOf(s, c); ok {
			row.addCeiling(l, c, where(c))
		}
		r.Rows = append(r.Rows, row)
	}
	return r, cells
}

// ceilingOrder sorts a device that carries more before one that carries less.
func ceilingOrder(s analysis.Summary, c analysis.Cell) []float64 {
	l, ok := ceilingOf(s, c)
	order := []float64{0, math.Inf(-1)} // nothing carried, no load that fails
	if !ok {
		return []float64{1}
	}
	if l.CarriesMbps.Known() {
		order[0] = -float64(l.CarriesMbps)
	}
	if l.FailsMbps.Known() {
		order[1] = -float64(l.FailsMbps)
	}
	return order
}

// ceilingPlace is where a ceiling stands: from the load carried to the one that fails.
func ceilingPlace(l analysis.Ceiling) analysis.Estimate {
	if !l.CarriesMbps.Known() {
		return analysis.Estimate{Mean: l.FailsMbps, Lo: analysis.Absent(), Hi: analysis.Absent()}
	}
	return analysis.Estimate{Mean: l.CarriesMbps, Lo: l.CarriesMbps, Hi: l.FailsMbps, N: l.CarriesBlocks}
}

// addCeiling makes the row of a device one about its ceiling; what the device costs
// becomes a fact.
func (row *ranked) addCeiling(l analysis.Ceiling, c analysis.Cell, where string) {
	row.At, row.Value, row.Shape = ceilingPlace(l), carriesText(l), shapeCarries
	row.Note, row.Word = where, "carries all that was offered"
	why := fmt.Sprintf("%s by %s, delivers at most %s", ofBlocks(rate(l.FailsMbps), l.FailsBlocks), failureWord(l.Why), withBounds(l.Most, rate))
	switch {
	case !l.FailsMbps.Known():
		row.Shape, why = shapeMore, "more was not offered"
	case !l.CarriesMbps.Known():
		row.Shape, row.Value = shapeLess, "< "+rate(l.FailsMbps)
		fallthrough
	default: // what the device carries with loss would stand against its ceiling
		row.Facts = slices.DeleteFunc(row.Facts, func(f fact) bool { return f.Name == capacityFact })
		row.Note, row.Word = words.Joined("; ", fmt.Sprintf("fails at %s by %s", rate(l.FailsMbps), failureWord(l.Why)), where), ""
	}
	cost := strings.TrimSpace(fmt.Sprintf("%s × %s at %s", ratio(c.Change(cost.PerBit).Mean), bounds(c.Change(cost.PerBit), ratio), rate(offered(c.Cell))))
	row.Facts = append([]fact{{"Carries", ofBlocks(carriesText(l), l.CarriesBlocks)}, {"Fails at", why}, {"CPU per bit", cost}}, row.Facts...)
}

// ceilingKey names a ceiling in the page's data attributes.
func ceilingKey(dut, direction, profile string, clients int) string {
	return fmt.Sprintf("%s|%s|%s|%d", dut, direction, profile, clients)
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
		g.Rows = append(g.Rows, gridRow{Key: ceilingKey(l.Cell.Text(result.DUT), l.Cell.Text(result.Direction), l.Cell.Text(result.Profile), l.Cell.Int(result.Clients)), Cells: []gridCell{
			{Main: routerName(l.Cell.Text(result.DUT)), Sort: l.Cell.Text(result.DUT), Text: true, Header: true}, textCell(l.Cell.Text(result.Direction)), textCell(l.Cell.Text(result.Profile)), countCell(l.Cell.Int(result.Clients)),
			carries, estimateCell(l.CPU, digits3), fails, textCell(failureWord(l.Why)), most,
		}})
	}
	return g
}
