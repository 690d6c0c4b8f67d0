package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	rates "github.com/gateweigh/gateweigh/lab/measure/rate"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// ratesView shows how fast TCP is through a tunnel, with the figures by which one would choose a tunnel.
var ratesView = view{
	mode:    measureOf,
	columns: rateColumns,
	remarks: formulas,
	reading: func(analysis.Summary) string { return ratesReading },
	first:   ratesScreen,
	fill: func(data *pageData, _ *drawing, s analysis.Summary) {
		data.Question = "What each tunnel carries"
		data.Empty = nothingRecorded("window")
		data.ModeNote = "Each block has a lab of its own, and no other lab stands beside it: clean is the direct path " +
			"between the gateways."
		data.Results = build("What to choose a tunnel by: means over blocks, their intervals in brackets", s, s.Cells,
			device(rates.Goodput, "Carries", "*"), device(rates.PerCore, "Per core", "*"),
			device(rates.EnterCPU, "Entering", "*"), device(rates.LeaveCPU, "Leaving", "*"),
			device(rates.IdleRTT, "Idle RTT", "*"), device(rates.LoadRTT, "RTT under load", "*"),
			device(rates.TunnelMTU, "MTU", "*"), textColumn("Limit", limitedBy))
		data.Further = append(tables(s, rateTables), formulaGrid(s))
	},
}

const ratesReading = "Carried is TCP payload that arrived; per core of the gateway that has more to do; theory is " +
	"what the headers leave of the link's rate, where it has one, by bytes of frames " +
	"with the Ethernet header (14) and without preamble, checksum and gap; MTU is the largest packet that the tunnel " +
	"takes; the limit is what kept the rate from being higher: the link, " +
	"the CPU of both gateways, which they share in this lab, that of the ends (clients, server, generator), or neither " +
	"(TCP, a queue, a lock). mtu-black-hole: packets of a length that the sender takes for " +
	"short enough vanish, and no ICMP message says so."

// rateTables has the page's further tables.
var rateTables = []cellTable{
	{"The rate beside what the headers leave of the link" + intervals, rates.Theory, []cellColumn{
		device(rates.Goodput, "Carries", "*"), device(rates.Theory, "Theory", "*"), device(rates.OfTheory, "Of it", "*"),
	}},
	{"The link between the gateways" + intervals, "", []cellColumn{
		device(rates.LinkMbps, "On the link", "*, frames"), device(rates.Layer1, "Layer 1", "*"),
		device(rates.Efficiency, "Payload of it", "*"),
		device(rates.TheorySharePct, "By the headers", "*"),
		device(rates.RetransmitRatio, "Sent again", "%"), device(rates.FragmentsRatio, "Fragments", "a packet"),
		device(rates.ReassemblyFailures, "Not put together", "*"), device(rates.TooLong, "Too long", "*"),
		device(rates.PathMTU, "Comes through", "*"), device(rates.KnownMTU, "The sender takes", "*"),
	}},
	{"Cost and delay" + intervals, "", []cellColumn{
		device(rates.NsPerPacket, "CPU a packet", "*, both gateways"), device(rates.RTTP99Us, "RTT p99 under load", "*"),
		pairsColumn("Windows"), blocksColumn("Blocks"), rejectedColumn("Rejected"),
	}},
}

// rateLimits has a text for each limit of a window.
var rateLimits = map[string]string{
	rates.LimitFlag(rates.ByLink): "link full", rates.LimitFlag(rates.ByGateway): "gateways' CPU",
	rates.LimitFlag(rates.ByEnds):    "ends' CPU",
	rates.LimitFlag(rates.ByUnknown): "neither",
}

// limitedBy says what limited the rate, or what is wrong with the path.
func limitedBy(c analysis.Cell) string {
	var list []string
	for _, f := range c.Flags {
		list = append(list, words.Or(rateLimits[f.Text], f.Text))
	}
	return words.Or(strings.Join(list, ", "), absentFigure)
}

// linkText names the rate of a cell's link.
func linkText(c analysis.Cell) string {
	if mbps := c.Number(result.LinkMbps); mbps > 0 {
		return carried(analysis.Number(mbps))
	}
	return "no limit"
}

// rateColumns returns the columns of the terminal's table.
func rateColumns(s analysis.Summary) []cellColumn {
	cols := []cellColumn{textColumn("DUT", analysis.Cell.DUT)}
	if slices.ContainsFunc(s.Cells, func(c analysis.Cell) bool { return c.HasDimension(result.LinkMbps) }) {
		cols = append(cols, textColumn("link", linkText).ifDiffers())
	}
	cols = append(cols, settingColumns(rates.Dimensions, result.LinkMbps)...)
	mean := func(metric, name string) cellColumn { return meanColumn(s.Metrics, metric, name, analysis.Cell.Device) }
	cols = append(cols, estimateColumn("carries", "", carried, func(c analysis.Cell) analysis.Estimate {
		return c.Device(
			rates.Goodput)
	}).alignLeft())
	if slices.ContainsFunc(s.Cells, func(c analysis.Cell) bool { return c.Device(rates.Theory).Mean.Known() }) {
		cols = append(cols, mean(rates.Theory, "theory").dropFirst(5), mean(rates.OfTheory, "of it").dropFirst(4))
	}
	return append(cols, mean(rates.PerCore, "per core"), mean(rates.EnterCPU, "enter").dropFirst(1),
		mean(rates.LeaveCPU, "leave").dropFirst(2),
		mean(rates.IdleRTT, "idle RTT"), mean(rates.LoadRTT, "RTT").dropFirst(3),
		numberColumn("MTU", "", "", digits4, func(c analysis.Cell) analysis.Number { return c.Device(rates.TunnelMTU).Mean }),
		textColumn("limit", limitedBy))
}

// carried formats a rate with four digits, because tunnels differ by a few per cent.
func carried(n analysis.Number) string {
	switch {
	case !n.Known():
		return absentFigure
	case n >= 1000:
		return significantTrimmed(n/1000, 4) + " Gbit/s"
	}
	return significantTrimmed(n, 4) + " Mbit/s"
}

// formulas says, once for each device with an accepted window, how its useful share of the link follows from the
// headers.
func formulas(s analysis.Summary) (lines []string) {
	for _, row := range formulaRows(s) {
		if !row.Device(rates.TheorySharePct).Mean.Known() {
			continue
		}
		lines = append(lines, fmt.Sprintf("%s: useful share of the link %s = %s", row.DUT(), row.Texts[rates.TextFormula],
			percent(row.Device(rates.TheorySharePct).Mean))+
			words.When(row.Texts[rates.TextHeaders] != "", "; around each packet: "+row.Texts[rates.TextHeaders]))
	}
	return lines
}

// formulaRows returns the first cell of each device.
func formulaRows(s analysis.Summary) (rows []analysis.Cell) {
	for _, c := range s.Cells {
		if c.Texts[rates.TextFormula] != "" &&
			!slices.ContainsFunc(rows, func(r analysis.Cell) bool { return r.DUT() == c.DUT() }) {
			rows = append(rows, c)
		}
	}
	return rows
}

// formulaGrid has one row for each device.
func formulaGrid(s analysis.Summary) grid {
	g := newGrid("What the headers leave of the link, for full TCP segments with time stamps", "<DUT",
		"<Around each packet, bytes", "<Useful share", "Share|%")
	for _, c := range formulaRows(s) {
		g.add(c.DUT(), nameCell(c.DUT(), c.DUT()), textCell(words.Or(c.Texts[rates.TextHeaders], "nothing")),
			textCell(c.Texts[rates.TextFormula]), numberCell(c.Device(rates.TheorySharePct).Mean, digits4))
	}
	return g
}

// ratesScreen ranks the devices by the rate they carry, at the setting with the fastest link.
func ratesScreen(d *drawing) (lead string, r ranking) {
	s := d.summary
	if len(s.Cells) == 0 {
		return "", ranking{}
	}
	setting := s.Cells[0].Without(result.DUT)
	for _, c := range s.Cells {
		if cell := c.Without(result.DUT); linkRateOrder(cell) > linkRateOrder(setting) {
			setting = cell
		}
	}
	cells := slices.DeleteFunc(
		slices.Clone(s.Cells), func(c analysis.Cell) bool { return c.Without(result.DUT) != setting })
	rankBy(cells, func(c analysis.Cell) analysis.Number { return -c.Device(rates.Goodput).Mean })
	r = ranking{
		Title: "TCP payload carried, Mbit/s", Order: "the most first", ReachText: intervalText(s),
		Load: fmt.Sprintf("%s, %s, link: %s", words.Counted(setting.Int(result.Clients), "client"), words.Direction(
			setting.Text(result.Direction)), linkText(cells[0])),
	}
	for _, c := range cells {
		row, e := d.ranked(c), c.Device(rates.Goodput)
		row.Figure, row.Value, row.Interval, row.Facts = e, carried(e.Mean), bounds(e, digits4), rateFacts(c)
		if row.Note = limitedBy(c); c.Pairs == 0 {
			row.Note = notAccepted(c, "window")
		}
		r.Rows = append(r.Rows, row)
	}
	return ratesLead(cells), r
}

// linkRateOrder orders settings by the rate of their link. A link without a limit comes last.
func linkRateOrder(c result.Cell) float64 {
	if mbps := c.Number(result.LinkMbps); mbps > 0 {
		return mbps
	}
	return 1e9
}

// ratesLead names the device that carries most, and the one that carries most for each core.
func ratesLead(cells []analysis.Cell) string {
	tunnels := slices.DeleteFunc(slices.Clone(cells), func(c analysis.Cell) bool {
		return c.DUT() == analysis.Clean || !c.Device(rates.Goodput).Mean.Known()
	})
	if len(tunnels) == 0 {
		return ""
	}
	most := maybeFirst(tunnels, deviceOf(rates.Goodput))
	lead := fmt.Sprintf(
		"Of the tunnels, %s carries most: %s", most[0].DUT(), withBounds(most[0].Device(rates.Goodput), carried))
	if len(most) > 1 {
		lead = "Which of the tunnels carries most, this run leaves open: " + between(most, deviceOf(rates.Goodput))
	}
	perCore := withFigure(tunnels, deviceOf(rates.PerCore))
	rankBy(perCore, func(c analysis.Cell) analysis.Number { return -c.Device(rates.PerCore).Mean })
	switch thrifty := maybeFirst(perCore, deviceOf(rates.PerCore)); {
	case len(thrifty) > 1:
		lead += "; likewise which carries most per core: " + between(thrifty, deviceOf(rates.PerCore))
	case len(thrifty) == 1 && (len(most) > 1 || thrifty[0].DUT() != most[0].DUT()):
		lead += fmt.Sprintf(
			"; %s carries most per core, %s", thrifty[0].DUT(), withBounds(thrifty[0].Device(rates.PerCore), carried))
	}
	return keepTogether(lead + ".")
}

// between names tunnels that cannot be told apart, each with its rate.
func between(cells []analysis.Cell, estimateOf func(analysis.Cell) analysis.Estimate) string {
	return firstNames(
		textsOf(cells, func(c analysis.Cell) string { return c.DUT() + " with " + withBounds(estimateOf(c), carried) }))
}

// rateFacts lists a device's other figures.
func rateFacts(c analysis.Cell) (facts factList) {
	if c.Pairs == 0 {
		return nil
	}
	mean := func(metric string) analysis.Number { return c.Device(metric).Mean }
	facts.add(mean(rates.Theory).Known(), "By its headers", "%s Mbit/s, of which %s arrive", digits4(mean(rates.Theory)),
		percent(mean(rates.OfTheory)))
	facts.add(mean(rates.PerCore).Known(), "Per core", "%s", carried(mean(rates.PerCore)))
	facts.add(mean(rates.EnterCPU).Known(), "CPU", "%s of a core entering, %s leaving", percent(mean(rates.EnterCPU)),
		percent(mean(rates.LeaveCPU)))
	facts.add(mean(rates.IdleRTT).Known(), "RTT", "%s idle, %s under load", micros(mean(rates.IdleRTT)),
		micros(mean(rates.LoadRTT)))
	facts.add(mean(rates.TunnelMTU).Known(), "MTU", "%s bytes", digits4(mean(rates.TunnelMTU)))
	return facts
}
