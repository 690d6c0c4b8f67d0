package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/transition"
	"github.com/gateweigh/gateweigh/lab/report/chart"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// transitionView shows how long packets take through the kernel, between TCP and Ethernet.
var transitionView = view{
	mode:    measureOf,
	columns: transitionColumns,
	remarks: func(analysis.Summary) []string { return nil },
	reading: func(analysis.Summary) string { return transitionReading },
	first:   transitionScreen,
	fill: func(data *pageData, d *drawing, s analysis.Summary) {
		data.Question = "How long packets take between TCP and Ethernet"
		data.Empty = nothingRecorded("step")
		data.ModeNote = "Each block has a lab of its own, and no other stands beside it: clean is the direct path. " +
			"Quotients are of the same block."
		data.Groups = d.transitionGroups(s.Cells)
		data.Results, data.Further = build("Medians"+overBlocks, s, s.Cells, transitionResults()...),
			tables(s, transitionTables())
	},
}

const overBlocks = ": means over blocks, their intervals in brackets"

const transitionReading = "TCP→Ethernet is from a program's write on the gateway until its packet leaves by the " +
	"outer interface, through the tunnel; Ethernet→TCP from the packet's arrival there until the other " +
	"gateway's program has read it (study 4's figures 6 and 7); enter and leave are the time of forwarded packets in " +
	"each gateway; way is from the client's write to the server's read. Threads wait: polling threads and daemons of " +
	"both gateways together, in the run queue; writes late: how late the gateway's program got its CPU for a probe. " +
	"Figures are medians of the probes of a step, means of blocks; × is the direct path's. Probes whose connection sent " +
	"again are left out; of a background over TCP the share of its segments that was sent again stands beside them."

// gatewayParts are the parts of the path that tables and charts show first.
var gatewayParts = []struct{ part, name string }{
	{transition.Down, "TCP→Ethernet"}, {transition.Up, "Ethernet→TCP"}, {transition.Enter, "Enter"},
	{transition.Leave, "Leave"}, {transition.Way, "Way"},
}

// median returns the name of a part's median.
func median(part string) string { return transition.MetricOf(part, "p50") }

// transitionColumns returns the columns of the terminal's table.
func transitionColumns(s analysis.Summary) []cellColumn {
	cols := []cellColumn{textColumn("DUT", analysis.Cell.DUT), numberColumn("background", "", "", background, func(
		c analysis.Cell) analysis.Number {
		return offeredMbps(c.Cell)
	})}
	cols = append(cols, settingColumns(transition.Dimensions, result.OfferedMbps)...)
	for i, p := range gatewayParts {
		col := meanColumn(s.Metrics, median(p.part), p.name, analysis.Cell.Device)
		if p.part != transition.Down && p.part != transition.Up {
			cols = append(cols, col.dropFirst(len(gatewayParts)-i))
		} else {
			cols = append(cols, col, numberColumn("×", "", "", ratio, func(c analysis.Cell) analysis.Number {
				return c.Device(
					transition.RatioOf(p.part)).Mean
			}).dropFirst(6))
		}
	}
	if slices.ContainsFunc(s.Cells, hasOther) { // other work explains the times
		cols = append(cols, numberColumn("threads wait", "", "", percent, func(c analysis.Cell) analysis.Number {
			return c.Device(transition.Waits).Mean
		}), meanColumn(s.Metrics, transition.MetricOf(transition.Late, "mean"), "writes late",
			analysis.Cell.Device).dropFirst(
			7))
	}
	cols = append(cols,
		meanColumn(s.Metrics, transition.MetricOf(transition.Up, "p99"), "p99", analysis.Cell.Device).dropFirst(4))
	if anyKnown(s, transition.ResentBackground) {
		cols = append(cols, numberColumn("sent again", "", "", percent, func(c analysis.Cell) analysis.Number {
			return c.Device(transition.ResentBackground).Mean
		}).dropFirst(5))
	}
	return append(cols, textColumn("flags", flagsOf))
}

// background formats a load. It writes 0 in words.
func background(n analysis.Number) string {
	if n == 0 {
		return "none"
	}
	return rate(n)
}

// flagsOf lists the flags that weaken a cell's figures.
func flagsOf(c analysis.Cell) string {
	var list []string
	for _, f := range c.Flags {
		list = append(list, f.Text)
	}
	return words.Listed(list)
}

func transitionResults() (cols []cellColumn) {
	for _, p := range gatewayParts {
		cols = append(cols, device(median(p.part), p.name, "*"), device(transition.RatioOf(p.part), "of it", "× direct"))
	}
	return append(cols, device(transition.DeliveredMbps, "Delivered", "*"), textColumn("Flags", flagsOf),
		pairsColumn("Steps"), rejectedColumn("Rejected"))
}

// transitionTables has the page's further tables: all figures of each part, then those of CPUs and of probes.
func transitionTables() (list []cellTable) {
	for _, p := range transition.Parts {
		t := cellTable{caption: words.Capitalised(p.Text) + overBlocks, needs: median(p.Name)}
		for _, stat := range []string{"min", "mean", "p50", "p99", "max"} {
			t.columns = append(t.columns, device(transition.MetricOf(p.Name, stat), stat, "*"))
		}
		list = append(list, t)
	}
	return append(list,
		cellTable{"What waited for a CPU at the gateways" + overBlocks, transition.EnterCorePct, []cellColumn{
			device(transition.EnterCorePct, "CPU, entering", "*"), device(transition.EnterNAPIWait, "Polling waits", "*"),
			device(transition.EnterProcessWait, "Daemons wait", "*"), device(transition.SenderWaitUs, "The writer waits", "*"),
			device(transition.LeaveCorePct, "CPU, leaving", "*"), device(transition.LeaveNAPIWait, "Polling waits", "*"),
			device(transition.LeaveProcessWait, "Daemons wait", "*"), device(transition.ReceiverWaitUs, "The reader waits", "*"),
			device(transition.Waits, "All threads wait", "*"), device(transition.MetricOf(transition.Late, "mean"),
				"Written late by", "*"), device(transition.BackgroundCorePct, "Other work", "*"),
		}},
		cellTable{"Probes" + overBlocks, transition.KeptPct, []cellColumn{device(transition.KeptPct, "Kept", "*"), device(
			transition.ResentPct, "Sent again", "*"), device(transition.UnmatchedPct, "Not found for certain", "*"),
			device(transition.ResentBackground, "Background sent again", "*")}})
}

// transitionSettings returns the settings of the cells without device and load. Where the gateways are busy, it leaves
// that out too.
func transitionSettings(cells []analysis.Cell, along result.Dimension) (list []result.Cell) {
	for _, c := range cells {
		list = append(list, c.Without(result.DUT, along))
	}
	return distinct(list)
}

// transitionGroups draws each part over the rate of the background load. Where other work of the gateways changes, it
// draws over that instead. The distributions are those at the highest value.
func (d *drawing) transitionGroups(cells []analysis.Cell) (out []figureGroup) {
	along, name, unit, value := result.OfferedMbps, "Background", "Mbit/s", format(background)
	if slices.ContainsFunc(cells, func(c analysis.Cell) bool {
		return c.Number(result.BackgroundPct) != cells[0].Number(result.BackgroundPct)
	}) {
		along, name, unit, value = result.BackgroundPct, "Other work", "% of the gateways' CPU", percent
	}
	// Cells without other work belong to every kind of work, and begin its lines.
	kinds := cells
	idle := func(c analysis.Cell) bool { return along == result.BackgroundPct && !(c.Number(along) > 0) }
	if busy := slices.DeleteFunc(slices.Clone(cells), idle); len(busy) > 0 {
		kinds = busy
	}
	for i, setting := range transitionSettings(kinds, along) {
		if i >= panelsDrawn {
			break
		}
		shown := slices.DeleteFunc(slices.Clone(cells), func(c analysis.Cell) bool {
			if idle(c) {
				return c.Without(result.DUT, along, transition.BackgroundKind) != setting.Without(transition.BackgroundKind)
			}
			return c.Without(result.DUT, along) != setting
		})
		g := figureGroup{Heading: words.Capitalised(transition.Dimensions.Label(setting.Without(result.Profile,
			result.Direction)))}
		for _, p := range gatewayParts {
			o := overDimension{median(p.part), p.name, p.name + ", median, µs", along, name, unit, value, micros, digits3}
			if f, ok := d.over(shown, o); ok {
				g.Figures = append(g.Figures, f)
			}
		}
		for _, part := range []string{transition.Down, transition.Up} {
			if f, ok := d.distribution(shown, along, part); ok {
				g.Figures = append(g.Figures, f)
			}
		}
		out = append(out, g)
	}
	return out
}

// quantiles are the shares of a distribution that have a mark, %.
var quantiles = []analysis.Number{50, 99, 100}

// distribution draws the times of a part at the highest value of a dimension that all devices have.
func (d *drawing) distribution(cells []analysis.Cell, along result.Dimension, part string) (figure, bool) {
	highest := analysis.Number(math.Inf(-1))
	for _, c := range cells {
		all := len(distinct(textsOf(cells, analysis.Cell.DUT)))
		same := slices.DeleteFunc(slices.Clone(cells), func(o analysis.Cell) bool {
			return o.Number(along) != c.Number(
				along) || o.Curves[part] == nil
		})
		if len(same) == all {
			highest = max(highest, analysis.Number(c.Number(along)))
		}
	}
	name := gatewayParts[slices.IndexFunc(
		gatewayParts, func(p struct{ part, name string }) bool { return p.part == part })].name
	title := "Distribution of " + name
	ch := chart.XY{Title: title, XLabel: name + ", µs", YLabel: "Probes that took no longer, %", Reference: math.NaN(),
		Curve: true, Height: stackedHeight}
	data := newGrid("", "<DUT", "Share|% of the probes", "Up to|µs")
	var tips []string
	for _, c := range cells {
		if analysis.Number(c.Number(along)) != highest || c.Curves[part] == nil {
			continue
		}
		line, marks := chart.Series{Name: c.DUT(), Style: d.style(c.DUT())}, quantiles
		for _, p := range c.Curves[part] {
			point := chart.Point{X: float64(p.Ms) * 1000, Y: float64(p.SharePct), Lo: math.NaN(), Hi: math.NaN()}
			if len(marks) > 0 && p.SharePct >= marks[0] {
				point.Tip = fmt.Sprintf("%s: %s of the probes up to %s", c.DUT(), percent(p.SharePct), micros(p.Ms*1000))
				point.Key, point.Value = c.Cell.String(), p.Ms.String()
				data.add(c.Cell.String(), nameCell(c.DUT(), c.DUT()), numberCell(p.SharePct, percentBare),
					numberCell(p.Ms*1000, digits3))
				tips = append(tips, point.Tip)
				for len(marks) > 0 && p.SharePct >= marks[0] {
					marks = marks[1:]
				}
			}
			line.Points = append(line.Points, point)
		}
		ch.Series = append(ch.Series, line)
	}
	if ch.Series == nil {
		return figure{}, false
	}
	ch.Desc = sentences(tips)
	value := background(highest)
	if along == result.BackgroundPct {
		value = percent(highest)
	}
	return d.finish(title, "With "+value+words.When(along == result.BackgroundPct, " other work")+words.When(
		along == result.OfferedMbps, " background")+". Marks are at half, at 99 % and at the longest. Time is logarithmic.",
		ch.Draw, data), true
}

// transitionScreen ranks the devices by the part Ethernet→TCP, at the highest background load that all devices carry.
func transitionScreen(d *drawing) (lead string, r ranking) {
	cells := carriedByAll(d.summary.Cells)
	if len(cells) == 0 {
		return "", ranking{}
	}
	metric := median(transition.Up)
	rankBy(cells, func(c analysis.Cell) analysis.Number { return c.Device(metric).Mean })
	setting := cells[0].Without(result.DUT, result.Profile, result.Direction, result.OfferedMbps)
	r = ranking{
		Title: "Ethernet→TCP, median, µs", Order: "the least first", ReachText: intervalText(d.summary), LoadAlone: true,
		Load: words.Joined(", ", "background: "+background(offeredMbps(cells[0].Cell)), transition.Dimensions.Label(setting)),
	}
	for _, c := range cells {
		row, e := d.ranked(c), c.Device(metric)
		row.Figure, row.Value, row.Interval, row.Facts = e, micros(e.Mean), bounds(e, digits3), transitionFacts(c)
		if c.Pairs == 0 {
			row.Note = notAccepted(c, "step")
		} else if over := c.Device(transition.RatioOf(transition.Up)).Mean; over.Known() {
			row.Note = "× " + ratio(over) + " of the direct path's"
		}
		r.Rows = append(r.Rows, row)
	}
	first, last := cells[0].Device(metric).Mean, cells[len(cells)-1].Device(metric).Mean
	if first.Known() && last.Known() {
		lead = fmt.Sprintf("From Ethernet to TCP a packet takes %s with %s", micros(first), cells[0].DUT())
		if len(cells) > 1 {
			lead += fmt.Sprintf(" and %s with %s", micros(last), cells[len(cells)-1].DUT())
		}
		lead = words.Joined("; ", lead, orderClause(cells, deviceOf(metric))) + "."
	}
	return keepTogether(lead), r
}

// carriedByAll returns the cells of all devices with the least other work. Their load is the highest at which no device
// is at its limit, or else the lowest.
func carriedByAll(cells []analysis.Cell) (carried []analysis.Cell) {
	if len(cells) == 0 {
		return nil
	}
	quiet := slices.MinFunc(cells, func(a, b analysis.Cell) int {
		return int(a.Number(result.BackgroundPct) - b.Number(result.BackgroundPct))
	})
	setting := quiet.Without(result.DUT, result.OfferedMbps)
	same := slices.DeleteFunc(
		slices.Clone(cells), func(c analysis.Cell) bool { return c.Without(result.DUT, result.OfferedMbps) != setting })
	loads := map[float64]bool{} // loads that all devices carry
	for _, c := range same {
		carried, known := loads[c.Number(result.OfferedMbps)]
		loads[c.Number(result.OfferedMbps)] = (carried || !known) && c.Pairs > 0 && !c.Flagged(transition.FlagShort)
	}
	best, lowest := -1., math.Inf(1)
	for load, carried := range loads {
		lowest = min(lowest, load)
		if carried {
			best = max(best, load)
		}
	}
	if best < 0 {
		best = lowest
	}
	return slices.DeleteFunc(same, func(c analysis.Cell) bool { return c.Number(result.OfferedMbps) != best })
}

// transitionFacts lists a device's other figures at the same load.
func transitionFacts(c analysis.Cell) (facts factList) {
	for _, p := range gatewayParts {
		e := c.Device(median(p.part))
		facts.add(e.Mean.Known(), p.name, "%s", words.Joined(" ", micros(e.Mean), bounds(e, digits3)))
	}
	facts.add(c.Device(transition.MetricOf(transition.Up, "p99")).Mean.Known(), "Ethernet→TCP, 99th percentile", "%s",
		micros(c.Device(transition.MetricOf(transition.Up, "p99")).Mean))
	return facts
}
