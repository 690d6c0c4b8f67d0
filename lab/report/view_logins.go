package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/logins"
	"github.com/gateweigh/gateweigh/lab/report/chart"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// stormColumns returns the columns of the terminal's table of login storms.
func stormColumns(s analysis.Summary) []cellColumn {
	mean := func(head, metric string, drop int) cellColumn {
		return meanColumn(s.Metrics, metric, head, analysis.Cell.Device).dropFirst(drop)
	}
	cols := append(routerColumns(logins.Dimensions, "DUT", dimensionsOf, logins.LoginRate),
		textColumn("they come", func(c analysis.Cell) string { return arrival(c.Cell) }).ifDiffers(),
		writtenColumn("storms", func(c analysis.Cell) string { return fmt.Sprint(c.Pairs) }).dropFirst(1),
		writtenColumn("failed", failedText),
		writtenColumn("retried",
			func(c analysis.Cell) string { return shareText(c.Counts[retriedLogins], c.Counts[askedLogins]) }).dropFirst(5))
	if slices.ContainsFunc(s.Cells, func(c analysis.Cell) bool { return c.Counts[logins.DeviceLeases] > 0 }) {
		cols = append(cols, writtenColumn("leases/s", func(c analysis.Cell) string {
			return map[bool]string{
				true:  digits3(c.Device(logins.Lease + logins.PerSecond).Mean),
				false: absentFigure}[c.Counts[logins.DeviceLeases] > 0]
		}).dropFirst(6))
	}
	return append(cols,
		estimateColumn("logins/s", "", digits3,
			func(c analysis.Cell) analysis.Estimate { return c.Device(logins.Login + logins.PerSecond) }).alignLeft(),
		mean("p50", logins.Login+logins.P50Ms, 4), mean("p99", logins.Login+logins.P99Ms, 0),
		mean("max", logins.Login+logins.MaxMs, 3), mean("CPU/login", logins.Login+logins.RouterMs, 0),
		writtenColumn("RADIUS/login", func(c analysis.Cell) string {
			n := c.Device(logins.Login + logins.RadiusMs).Mean
			return map[bool]string{true: absentFigure, false: millis(n)}[n == 0]
		}).dropFirst(2),
		mean("KiB/client", logins.PSSKiBPerClient, 7),
		textColumn("limit", loginLimit))
}

// Counts of logins in all storms of a cell.
const (
	askedLogins   = logins.Login + logins.Asked
	throughLogins = logins.Login + logins.Through
	retriedLogins = logins.Login + logins.Retried
)

// arrival says at what rate the clients of a cell arrived.
func arrival(c result.Cell) string {
	return valueText(logins.Dimensions.Named(logins.LoginRate), c)
}

func stormSetting(c analysis.Cell) string {
	return familyClients(c.Cell) + ", " + arrival(c.Cell)
}

// failed returns how many clients failed in a phase, over all storms.
func failed(c analysis.Cell, phase string) int {
	return c.Counts[phase+logins.Asked] - c.Counts[phase+logins.Through]
}

// failedText says how many clients gave up, over all storms. If any did, it also says how many clients there were.
func failedText(c analysis.Cell) string {
	if c.Pairs == 0 {
		return absentFigure
	}
	text := shareText(failed(c, logins.Login), c.Counts[askedLogins])
	if c.Counts[logins.Died] > 0 {
		text += ", died"
	}
	return text
}

func shareText(n, total int) string {
	switch {
	case total == 0:
		return absentFigure
	case n == 0:
		return "0"
	}
	return fmt.Sprintf("%d of %d", n, total)
}

// sharePct returns n as a percentage of the clients of a cell that tried to log in.
func sharePct(c analysis.Cell, n int) string {
	return percent(analysis.Number(100 * float64(n) / float64(c.Counts[askedLogins])))
}

// limitText says what limited the storms. Where storms differ, it says how many had which limit.
func limitText(c analysis.Cell, phase string) string {
	var limits []analysis.Tally
	for _, l := range c.Tallies[phase+logins.Limits] {
		limits = append(
			limits, analysis.Tally{Text: words.Or(limitWords[l.Text], words.Or(l.Text, absentFigure)), Count: l.Count})
	}
	if len(limits) == 1 {
		return limits[0].Text
	}
	return words.Or(textsWithCounts(limits), absentFigure)
}

func loginLimit(c analysis.Cell) string { return limitText(c, logins.Login) }

// limitWords has a text for each limit of a storm.
var limitWords = map[string]string{
	logins.LimitDevice: "device: CPU full", logins.LimitWaiting: "device: it waits",
	logins.LimitGenerator: "client host's CPU",
	logins.LimitRadius:    "RADIUS server's CPU", logins.LimitRate: "none: keeps pace",
}

const stormReading = "a login is all that a client of this kind does, from its first message until it is told that " +
	"it is in; " +
	"logins/s is how many got in over the time until the last of them was; p50, p99 and max count from the moment each " +
	"client was due, " +
	"over those that got in; CPU/login is the router's, exact, until half a second after the last login; limit is whose " +
	"CPU was full, " +
	"85 % or more: where it is not the device, the device may be faster than shown."

// reasonsNamed is the largest number of reasons in a line under the table.
const reasonsNamed = 3

// troubles are the kinds of failure in a storm. Each has a tally of reasons and the number of clients affected.
var troubles = []struct {
	sentence, row, tally string
	count                func(analysis.Cell) int
}{
	{"got no lease", "no lease", logins.Lease + logins.Failures,
		func(c analysis.Cell) int { return failed(c, logins.Lease) }},
	{"did not get in", "no login", logins.Login + logins.Failures,
		func(c analysis.Cell) int { return failed(c, logins.Login) }},
	{"asked again for a lease", "asked again for a lease", logins.Lease + logins.Refusals,
		func(c analysis.Cell) int { return c.Counts[logins.Lease+logins.Retried] }},
	{"tried more than once to log in", "tried again to log in", logins.Login + logins.Refusals,
		func(c analysis.Cell) int { return c.Counts[retriedLogins] }},
	{"ended by itself", "device died", logins.Deaths, func(c analysis.Cell) int { return c.Counts[logins.Died] }},
}

// stormRemarks says what failed in the storms.
func stormRemarks(cells []analysis.Cell) (out []string) {
	for _, c := range cells {
		for _, t := range troubles {
			n := t.count(c)
			if n == 0 {
				continue
			}
			affected := shareText(n, c.Counts[askedLogins]) + " clients"
			if t.tally == logins.Deaths {
				affected = "the device, in " + shareText(n, c.Pairs) + " storms,"
			}
			reasons := reasonsText(c.Tallies[t.tally], reasonsNamed, "", "")
			out = append(out,
				fmt.Sprintf("%s, %s: %s %s: %s", c.DUT(), familyClients(c.Cell), affected, t.sentence, strings.Join(reasons, "; ")))
		}
	}
	return out
}

// mostClients returns one cell for each device: that with the most clients, at the highest rate. The device that admits
// the most clients a second comes first.
func mostClients(cells []analysis.Cell) []analysis.Cell {
	rate := func(c analysis.Cell) float64 {
		if c.Number(logins.LoginRate) == 0 { // all clients log in at once
			return math.Inf(1)
		}
		return c.Number(logins.LoginRate)
	}
	out := onePerDevice(cells, func(c, than analysis.Cell) bool {
		more := c.Int(result.Clients) - than.Int(result.Clients)
		return c.Pairs > 0 && (than.Pairs == 0 || more > 0 || more == 0 && rate(c) > rate(than))
	})
	rankBy(out, func(c analysis.Cell) analysis.Number { return -c.Device(logins.Login + logins.PerSecond).Mean })
	return out
}

// Shapes of the marks of logins.
const (
	shapeAll  = "all"  // every client got in
	shapeSome = "some" // some clients did not get in
)

// loginScreen returns the picture of a run of login storms, and the sentence above it. It ranks the devices by their
// logins a second, the fastest first.
func loginScreen(d *drawing) (lead string, r ranking) {
	cells := mostClients(d.summary.Cells)
	load, setting := commonText(cells, stormSetting)
	r = ranking{
		Title: "Clients let in a second", Load: load, Order: "fastest first", ReachText: intervalText(d.summary),
		Key: []keyEntry{{shapeAll, "all clients got in"}, {shapeSome, "some were left out"}},
	}
	for _, c := range cells {
		row, e := d.ranked(c), c.Device(logins.Login+logins.PerSecond)
		row.Figure, row.Value, row.Interval, row.Shape, row.Word = e, digits3(e.Mean), bounds(e, digits3), shapeAll,
			"all clients got in"
		row.Note, row.Facts = words.Joined("; ", setting(c), loginNote(c)), loginFacts(c)
		if failed(c, logins.Login) > 0 {
			row.Shape, row.Word = shapeSome, "some clients were left out"
		}
		r.Rows = append(r.Rows, row)
	}
	if len(r.Rows) > 0 {
		lead = loginLead(cells)
	}
	return lead, r
}

// loginNote returns a note about a device that belongs beside its logins a second.
func loginNote(c analysis.Cell) string {
	var text, died string
	switch {
	case c.Pairs == 0:
		return notAccepted(c, "storm")
	case c.Counts[throughLogins] == 0:
		text = "lets nobody in"
	case failed(c, logins.Login) > 0:
		text = "leaves " + sharePct(c, failed(c, logins.Login)) + " out"
	}
	if c.Counts[logins.Died] > 0 {
		died = "ended by itself in " + words.Counted(c.Counts[logins.Died], "storm")
	}
	return words.Joined("; ", text, died)
}

func loginFacts(c analysis.Cell) (facts factList) {
	if c.Pairs == 0 {
		return nil
	}
	in := "all " + clientsOf(c.Cell)
	if failed(c, logins.Login) > 0 {
		in = fmt.Sprintf("%s of %s", groupedCount(c.Counts[throughLogins]), words.Counted(c.Counts[askedLogins], "client"))
	}
	facts.add(true, "Let in", "%s", in)
	add := func(name, text, metric string, print format) {
		n := c.Device(metric).Mean
		facts.add(n.Known(), name, text, print(n))
	}
	add("Wait", "half up to %s, 99 %% up to "+millis(c.Device(logins.Login+logins.P99Ms).Mean), logins.Login+logins.P50Ms,
		millis)
	add("The last waited", "%s", logins.Login+logins.MaxMs, millis)
	facts.add(c.Counts[retriedLogins] > 0, "Had to try again", "%s", sharePct(c, c.Counts[retriedLogins]))
	add("Router CPU", "%s a login", logins.Login+logins.RouterMs, millis)
	add("Memory", "%s KiB a client", logins.PSSKiBPerClient, digits3)
	facts.add(true, "Limit", "%s", loginLimit(c))
	return facts
}

// loginLead compares the fastest and the slowest device, for readers of one sentence only. The cells must be ranked.
func loginLead(cells []analysis.Cell) string {
	var accepted []analysis.Cell
	for _, c := range cells {
		if c.Pairs > 0 {
			accepted = append(accepted, c)
		}
	}
	if len(accepted) == 0 {
		return "No storm was accepted, so this run says nothing of the devices."
	}
	open := orderClause(accepted, deviceOf(logins.Login+logins.PerSecond))
	if n := len(accepted); n > 2 {
		accepted = []analysis.Cell{accepted[0], accepted[n-1]}
	}
	all, each := commonText(accepted, stormSetting)
	var parts []string
	for _, c := range accepted {
		text := fmt.Sprintf("%s lets in %s clients a second", c.DUT(), digits3(c.Device(logins.Login+logins.PerSecond).Mean))
		switch {
		case c.Counts[throughLogins] == 0:
			text = c.DUT() + " lets nobody in"
		case failed(c, logins.Login) > 0:
			text += " and leaves " + sharePct(c, failed(c, logins.Login)) + " out"
		}
		if setting := each(c); setting != "" {
			text += " (" + setting + ")"
		}
		parts = append(parts, text)
	}
	if all != "" {
		all = "With " + all
	}
	return keepTogether(words.Joined("; ", words.Joined(", ", all, strings.Join(parts, ", and ")), open) + ".")
}

// loginsView shows login storms.
var loginsView = view{
	mode:    measureOf,
	columns: stormColumns,
	remarks: func(s analysis.Summary) []string { return stormRemarks(s.Cells) },
	reading: func(analysis.Summary) string { return stormReading },
	first:   loginScreen,
	fill: func(data *pageData, d *drawing, s analysis.Summary) {
		data.Question = "How they take a storm"
		data.Empty = nothingRecorded("storm")
		data.ModeNote = "Each storm has a new lab and a device that nobody has met yet; there is no clean router beside " +
			"it, because a clean router has no logins."
		data.Groups = grouped(s.Cells, d.stormGroup, result.Clients, logins.LoginRate, result.Family)
		data.Results, data.Further = build(
			"Logins: means over storms, their intervals in brackets", s, s.Cells, stormResults...), tables(s, loginTables)
		if met := metGrid(s.Cells); len(met.Rows) > 0 {
			data.Further = append(data.Further, met)
		}
	},
}

// stormGroup draws the waiting times for one number of clients and one rate.
func (d *drawing) stormGroup(cells []analysis.Cell) figureGroup {
	return figureGroup{Heading: words.Capitalised(stormSetting(cells[0])), Figures: []figure{
		d.curve(cells, "Logged in", "Clients logged in, % of all", logins.Login),
		d.curve(cells, "Leased", "Clients with an address, % of all", logins.Lease),
	}}
}

// marked are the shares of a curve that have a mark, %.
var marked = map[analysis.Number]bool{50: true, 90: true, 100: true}

// curve draws the share of clients that finished a phase over time.
func (d *drawing) curve(cells []analysis.Cell, title, label, phase string) figure {
	ch := chart.XY{
		Title: title + ": " + stormSetting(cells[0]), XLabel: "From the client's turn, seconds", YLabel: label,
		Reference: math.NaN(), Curve: true,
	}
	var tips []string
	data := newGrid("", "<DUT", "Share|% of the clients", "After|s")
	for _, c := range cells {
		series, key := chart.Series{Name: c.DUT(), Style: d.style(c.DUT())}, c.Cell.String()
		curve := c.Curves[phase+logins.Through]
		for i, p := range curve {
			point := chart.Point{X: float64(p.Ms) / 1000, Y: float64(p.SharePct), Lo: math.NaN(), Hi: math.NaN()}
			if marked[p.SharePct] || i == len(curve)-1 {
				point.Tip = fmt.Sprintf("%s: %s of the clients after %s", c.DUT(), percent(p.SharePct), millis(p.Ms))
				point.Key, point.Value = key, p.Ms.String()
				tips = append(tips, point.Tip)
				data.add(key, nameCell(c.DUT(), c.DUT()), numberCell(p.SharePct, percentBare), numberCell(p.Ms/1000, digits3))
			}
			series.Points = append(series.Points, point)
		}
		ch.Series = append(ch.Series, series)
	}
	ch.Desc = sentences(tips)
	return d.finish(title,
		"Marks are at half, at 90 % and where the last client was through; a line that ends below 100 % has left clients "+
			"out. Time is logarithmic.",
		ch.Draw, data)
}

// stormResults has the most important figures.
var stormResults = []cellColumn{
	device(logins.Login+logins.PerSecond, "Logins", "*"),
	countColumn("Left out", "clients", "", func(c analysis.Cell) int { return failed(c, logins.Login) }),
	counts(askedLogins, "Asked", "in all storms"),
	device(logins.Login+logins.P50Ms, "p50", "*"), device(logins.Login+logins.P90Ms, "p90", "*"),
	device(logins.Login+logins.P99Ms, "p99", "*"), device(logins.Login+logins.MaxMs, "Last", "*"),
	device(logins.Login+logins.RouterMs, "Router CPU", "* a login"),
	device(logins.Login+logins.RadiusMs, "RADIUS CPU", "* a login"),
	device(logins.PSSKiBPerClient, "Memory", "* a client"),
	textColumn("Limit", loginLimit),
	pairsColumn("Storms"), rejectedColumn("Rejected"),
}

// loginTables has all other figures.
var loginTables = []cellTable{
	{"Leases", logins.Lease + logins.Through, []cellColumn{
		textColumn("Leased by", func(c analysis.Cell) string {
			return map[bool]string{true: "the device", false: "the lab"}[c.Counts[logins.DeviceLeases] > 0]
		}),
		device(logins.Lease+logins.PerSecond, "Leases", "*"),
		counts(logins.Lease+logins.Through, "Leased", "clients"),
		counts(logins.Lease+logins.Retried, "Asked again", "clients"),
		device(logins.Lease+logins.P50Ms, "p50", "*"), device(logins.Lease+logins.P99Ms, "p99", "*"),
		device(logins.Lease+logins.MaxMs, "Last", "*"),
		device(logins.Lease+logins.RouterMs, "Router CPU", "* a lease"),
		textColumn("Limit", func(c analysis.Cell) string { return limitText(c, logins.Lease) }),
	}},
	{"Who was busy during the logins: shares of the CPUs each may use", "", []cellColumn{
		device(logins.Login+logins.RouterBusyPct, "Router", "*"),
		device(logins.Login+logins.EndpointsBusyPct, "Endpoints", "*"),
		device(logins.Login+logins.ClientBusyPct, "of it clients", "*"),
		device(logins.Login+logins.RadiusBusyPct, "of it RADIUS", "*"),
		device(logins.Login+logins.ClientMs, "Client CPU", "* a login"),
		device(logins.Login+logins.ProcessMs, "Device's processes", "* a login"),
		device(logins.Login+logins.LateMs, "Latest begin", "*"),
		device(logins.IdlePSSMiB, "Memory, idle", "PSS, *"), device(logins.LoggedPSSMiB, "Memory, all in", "PSS, *"),
	}},
}

// metGrid lists the failures that clients met, one row for each reason.
func metGrid(cells []analysis.Cell) grid {
	g := newGrid("What clients met", "<DUT", "<Storm", "<What", "Clients", "<Such as")
	for _, c := range cells {
		for _, t := range troubles {
			for _, r := range c.Tallies[t.tally] {
				g.add(c.Cell.String(), nameCell(c.DUT(), c.DUT()), textCell(stormSetting(c)), textCell(t.row), countCell(r.Count),
					textCell(strings.TrimSpace(r.Text)))
			}
		}
	}
	g.Rows, _ = bounded(g.Rows, reasonRows)
	return g
}
