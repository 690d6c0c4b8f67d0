package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// ceilingColumns returns the columns of the terminal's table of ceilings. A ceiling is the load above which a router
// does not carry all that is offered.
func ceilingColumns() []column[analysis.Ceiling] {
	return append(routerColumns(cost.Dimensions, "ceiling", func(l analysis.Ceiling) result.Cell { return l.Cell }),
		writtenColumn("carries", func(l analysis.Ceiling) string { return inBlocks(carriesText(l), l.CarriesBlocks) }),
		estimateColumn("router CPU", "", percent,
			func(l analysis.Ceiling) analysis.Estimate { return l.CPU }).alignLeft().dropFirst(
			2),
		writtenColumn("fails at", func(l analysis.Ceiling) string { return inBlocks(rate(l.FailsMbps), l.FailsBlocks) }),
		textColumn("by", failureText),
		writtenColumn("delivers at most",
			func(l analysis.Ceiling) string { return withBounds(mostDelivered(l), rate) }).alignLeft().dropFirst(1))
}

// inBlocks adds to a load the number of blocks that it was measured in.
func inBlocks(text string, blocks int) string {
	if blocks > 0 {
		text = words.Joined(" ", text, fmt.Sprintf("(n\u00a0=\u00a0%d)", blocks))
	}
	return text
}

// mostDelivered returns the most that a router delivered. It is unknown where the router carried all that was offered.
func mostDelivered(l analysis.Ceiling) analysis.Estimate {
	if !l.FailsMbps.Known() {
		return analysis.Unknown()
	}
	return l.Most
}

// carriesText formats the load that a router carries. Where no load failed, it is a lower bound.
func carriesText(l analysis.Ceiling) string { return atLeast(l, rate(l.CarriesMbps)) }

func atLeast(l analysis.Ceiling, text string) string {
	if l.CarriesMbps.Known() && !l.FailsMbps.Known() {
		return "≥ " + text
	}
	return text
}

// failureText says which flag shows that a load was not carried.
func failureText(l analysis.Ceiling) string {
	return map[string]string{result.FlagSaturated: "shortfall", result.FlagLossy: "loss"}[l.Why]
}

// ceilingsReading explains the table of ceilings.
const ceilingsReading = "Ceilings: carried is a load that is delivered in full, with at most 1 % of its segments " +
	"sent again, or of its datagrams lost, alone on the machine; " +
	"the ceiling lies between that and the load at which it fails; n counts blocks. Where no load failed, more was not " +
	"offered."

// ceilingOf returns the ceiling of a cell's device, or that of the clean router in the cell's setting. It is nil where
// the run has none.
func ceilingOf(s analysis.Summary, c result.Cell) *analysis.Ceiling {
	if i := slices.IndexFunc(
		s.Ceilings, func(l analysis.Ceiling) bool { return l.Cell == c.Without(result.OfferedMbps) }); i >= 0 {
		return &s.Ceilings[i]
	}
	return nil
}

// ceilingText says in words between which loads a router's ceiling is.
func ceilingText(l analysis.Ceiling) string {
	switch {
	case l.CarriesMbps.Known() && l.FailsMbps.Known():
		return fmt.Sprintf("%s but not %s", rate(l.CarriesMbps), rate(l.FailsMbps))
	case l.FailsMbps.Known():
		return "less than " + rate(l.FailsMbps)
	}
	return "at least " + rate(l.CarriesMbps)
}

// ceilingsLead names the devices that carry most and least. It is empty where no ceiling is known. The cells must be
// ranked.
func ceilingsLead(s analysis.Summary, cells []analysis.Cell) string {
	byText := map[string][]string{}
	var texts []string
	for _, c := range cells {
		if l := ceilingOf(s, c.Cell); l != nil && (l.CarriesMbps.Known() || l.FailsMbps.Known()) {
			text := ceilingText(*l)
			texts, byText[text] = append(texts, text), append(byText[text], c.DUT())
		}
	}
	texts = distinct(texts)
	if len(texts) == 0 {
		return ""
	}
	first, verb, rest := texts[0], "carries", ""
	if len(byText[first]) > 1 {
		verb = "carry"
	}
	if len(texts) > 1 {
		last := texts[len(texts)-1]
		rest = fmt.Sprintf(", and %s %s", words.Listed(byText[last]), last)
	}
	return keepTogether(
		fmt.Sprintf("Alone on the machine and without loss, %s %s %s%s.", words.Listed(byText[first]), verb, first, rest))
}

// failsSomewhere reports whether a device of the run reached its ceiling. If so, the picture shows ceilings.
func failsSomewhere(s analysis.Summary) bool {
	return slices.ContainsFunc(s.Ceilings, func(l analysis.Ceiling) bool { return l.FailsMbps.Known() })
}

// Shapes of the marks of ceilings.
const (
	shapeCarries = "carries" // carries a load, and fails at a larger one of the run
	shapeMore    = "more"    // carries all loads of the run
	shapeLess    = "less"    // fails at the smallest load of the run
)

// rankCeilings ranks the devices by the load that they carry, the largest first.
func rankCeilings(d *drawing) (ranking, []analysis.Cell) {
	s := d.summary
	cells := rankedCells(s)
	slices.SortStableFunc(
		cells, func(a, b analysis.Cell) int { return slices.Compare(ceilingOrder(s, a), ceilingOrder(s, b)) })
	load, setting := commonText(cells, func(c analysis.Cell) string {
		return fmt.Sprintf("with %s, %s", clientsOf(c.Cell), words.Direction(c.Text(result.Direction)))
	})
	r := ranking{
		Title: "Load carried without loss, alone on the machine, Mbit/s", Load: load, Order: "the most first",
		ReachText: "to the load that is not carried, on a logarithmic scale",
		Key: []keyEntry{
			{shapeCarries, "carried; the next load tried is not"}, {shapeMore, "carried; more was not offered"},
			{shapeLess, "fails at the least that was tried"},
		},
		Notes: []string{unheardSentence(s, cells)},
	}
	for _, c := range cells {
		if l := ceilingOf(s, c.With(result.DUT, analysis.Clean)); l != nil {
			r.Notes = append(r.Notes, words.Joined(" ", "The clean router carries "+ceilingText(*l), setting(c))+".")
		}
		row := d.ranked(c)
		row.Key, row.Value, row.Note, row.Facts = capacityKey(c.Cell), absentFigure, costNote(s, c), costFacts(s, c)
		if l := ceilingOf(s, c.Cell); l != nil {
			row.addCeiling(*l, c, setting(c))
		}
		r.Rows = append(r.Rows, row)
	}
	r.Notes = distinct(r.Notes)
	return r, cells
}

// ceilingOrder returns the sort key of a device. A device that carries more comes first.
func ceilingOrder(s analysis.Summary, c analysis.Cell) []float64 {
	l := ceilingOf(s, c.Cell)
	if l == nil {
		return []float64{1}
	}
	order := []float64{0, math.Inf(-1)} // no load was carried, and none failed
	if l.CarriesMbps.Known() {
		order[0] = -float64(l.CarriesMbps)
	}
	if l.FailsMbps.Known() {
		order[1] = -float64(l.FailsMbps)
	}
	return order
}

// addCeiling makes the ceiling the subject of a device's row. The device's cost becomes one of its facts.
func (row *rankedDevice) addCeiling(l analysis.Ceiling, c analysis.Cell, setting string) {
	row.Value, row.Shape, row.Note, row.Word = carriesText(l), shapeCarries, setting, "carries all that was offered"
	// The line goes from the load that was carried to the one that failed.
	row.Figure = analysis.Estimate{Mean: l.CarriesMbps, Lo: l.CarriesMbps, Hi: l.FailsMbps, N: l.CarriesBlocks}
	reason := fmt.Sprintf(
		"%s by %s, delivers at most %s", inBlocks(rate(l.FailsMbps), l.FailsBlocks), failureText(l), withBounds(l.Most, rate))
	if !l.FailsMbps.Known() {
		row.Shape, reason = shapeMore, "more was not offered"
	} else {
		// The load that the device carries with loss would seem to contradict its ceiling.
		row.Facts = slices.DeleteFunc(row.Facts, func(f fact) bool { return f.Name == capacityFact })
		row.Note, row.Word = words.Joined("; ", fmt.Sprintf("fails at %s by %s", rate(l.FailsMbps), failureText(l)), setting),
			""
	}
	if !l.CarriesMbps.Known() {
		row.Figure = analysis.Estimate{Mean: l.FailsMbps, Lo: analysis.Absent(), Hi: analysis.Absent()}
	}
	if !l.CarriesMbps.Known() && l.FailsMbps.Known() {
		row.Shape, row.Value = shapeLess, "< "+rate(l.FailsMbps)
	}
	change := c.Change(cost.PerBit)
	row.Facts = append([]fact{
		{"Carries", inBlocks(carriesText(l), l.CarriesBlocks)}, {"Fails at", reason},
		{"CPU per bit", fmt.Sprintf("%s × %s at %s", ratio(change.Mean), bounds(change, ratio), rate(offeredMbps(c.Cell)))},
	}, row.Facts...)
}

// ceilingsGrid has one row for each router, number of clients, direction and profile.
func ceilingsGrid(list []analysis.Ceiling) grid {
	g := newGrid("What each carries without loss, alone on the machine", "<Router", "<Direction", "<Profile", "Clients",
		"Carries|Mbit/s", "Router CPU there|% of a core", "Fails at|Mbit/s", "<By", "Delivers at most|Mbit/s")
	for _, l := range list {
		carries, fails := numberCell(l.CarriesMbps, digits4), numberCell(l.FailsMbps, digits4)
		carries.Main, carries.Small, fails.Small = atLeast(l, carries.Main), inBlocks("", l.CarriesBlocks),
			inBlocks("", l.FailsBlocks)
		g.add(capacityKey(l.Cell), routerCell(l.Cell), textCell(l.Cell.Text(result.Direction)), textCell(packetsText(l.Cell)),
			countCell(l.Cell.Int(result.Clients)), carries, estimateCell(l.CPU, digits3), fails, textCell(failureText(l)),
			estimateCell(mostDelivered(l), digits4))
	}
	return g
}
