package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/transfer"
	"github.com/gateweigh/gateweigh/lab/report/chart"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// transferView shows how fast clients fetch files, and how much CPU that takes.
var transferView = view{
	mode:    measureOf,
	columns: transferColumns,
	remarks: func(analysis.Summary) []string { return nil },
	reading: func(analysis.Summary) string { return transferReading },
	first:   transferScreen,
	fill: func(data *pageData, d *drawing, s analysis.Summary) {
		data.Question = "How fast files come, and what it costs"
		data.Empty = nothingRecorded("transfer")
		data.ModeNote = "Each device has a lab of its own, in which one client after the other joins; no clean router " +
			"stands beside it: clean is the router without a device."
		data.Groups = d.transferGroups(s.Cells)
		data.Results = build("Transfers: means over blocks, their intervals in brackets", s, s.Cells,
			device(transfer.MaxRate, "Maximum rate", "*"), device(transfer.MeanRateKBS, "Mean rate", "*"),
			device(transfer.Busy, "Router CPU", "*"),
			device(transfer.NsPerByte, "A byte", "*"), device(transfer.MachineBusyPct, "/proc/stat", "*"),
			device(transfer.DTRKBCPUS, "As printed", "*"),
			device(transfer.FileP50Seconds, "A file", "*"), device(transfer.MaxSeconds, "At the maximum", "*"),
			pairsColumn("Blocks"), rejectedColumn("Rejected"))
		data.Further = tables(s, []cellTable{{"What the router did at the maximum", "", []cellColumn{
			device(transfer.CPUCorePct, "Router CPU", "*"), device(transfer.WakeupsPerSecond, "Wake-ups", "*"),
			device(transfer.RouterSharePct, "Share", "*"), device("seconds", "All transfers", "*"),
		}}})
	},
}

const transferReading = "the rate is that of IP packets from the router to the clients, without headers of Ethernet " +
	"and PPPoE, in intervals between two samples; " +
	"max rate is the mean of the intervals above 90 % of the highest, and CPU is the router's in these, exact, of what " +
	"it has; ns/byte is CPU for each of these bytes; " +
	"/proc/stat is of the whole machine, with clients and server, as study 3 took it of its router."

// rateText formats a rate in kByte/s without decimals. It keeps all digits, because devices differ by less than 1 %.
func rateText(n analysis.Number) string { return significant(n, max(3, len(decimals(0)(n)))) }

// speedText names a router's speed.
func speedText(c result.Cell) string {
	if c.Number(transfer.RouterSpeed) == 1 {
		return "whole CPU"
	}
	return fmt.Sprintf("%.3g %% of its CPU", 100*c.Number(transfer.RouterSpeed))
}

// transferColumns returns the columns of the terminal's table.
func transferColumns(s analysis.Summary) []cellColumn {
	cols := append([]cellColumn{
		textColumn("DUT", analysis.Cell.DUT)}, settingColumns(transfer.Dimensions, transfer.RouterSpeed, result.Clients)...)
	return append(cols,
		textColumn("router", func(c analysis.Cell) string { return speedText(c.Cell) }).ifDiffers(),
		numberColumn("clients", "", "", digits4,
			func(c analysis.Cell) analysis.Number { return analysis.Number(c.Number(result.Clients)) }),
		estimateColumn("max rate kByte/s", "", rateText,
			func(c analysis.Cell) analysis.Estimate { return c.Device(transfer.MaxRate) }),
		estimateColumn("CPU", "", percent, func(c analysis.Cell) analysis.Estimate { return c.Device(transfer.Busy) }),
		numberColumn("ns/byte", "", "", digits3,
			func(c analysis.Cell) analysis.Number { return c.Device(transfer.NsPerByte).Mean }),
		numberColumn("/proc/stat", "", "", percent,
			func(c analysis.Cell) analysis.Number { return c.Device(transfer.MachineBusyPct).Mean }).dropFirst(1),
		numberColumn("a file", "", "", func(n analysis.Number) string { return millis(1000 * n) },
			func(c analysis.Cell) analysis.Number { return c.Device(transfer.FileP50Seconds).Mean }).dropFirst(2))
}

// mostFetching returns the cells with the most clients at the fastest router speed.
func mostFetching(cells []analysis.Cell) (out []analysis.Cell) {
	if len(cells) == 0 {
		return nil
	}
	clients := slices.MaxFunc(
		cells, func(a, b analysis.Cell) int { return a.Int(result.Clients) - b.Int(result.Clients) }).Int(result.Clients)
	for _, c := range cells {
		if c.Int(result.Clients) == clients && c.Number(transfer.RouterSpeed) == cells[0].Number(transfer.RouterSpeed) {
			out = append(out, c)
		}
	}
	return out
}

// transferScreen ranks the devices by the CPU for each byte, with the most clients.
func transferScreen(d *drawing) (lead string, r ranking) {
	cells := mostFetching(d.summary.Cells)
	if len(cells) == 0 {
		return "", ranking{}
	}
	rankBy(cells, func(c analysis.Cell) analysis.Number { return c.Device(transfer.NsPerByte).Mean })
	r = ranking{
		Title: "Router CPU for each byte, ns", Order: "the least first", ReachText: intervalText(d.summary),
		Load: clientsOf(cells[0].Cell) + ", router with " + speedText(cells[0].Cell),
	}
	for _, c := range cells {
		row, e := d.ranked(c), c.Device(transfer.NsPerByte)
		row.Figure, row.Value, row.Interval = e, digits3(e.Mean), bounds(e, digits3)
		rate, cpu := c.Device(transfer.MaxRate), c.Device(transfer.Busy).Mean
		if row.Note = notAccepted(c, "transfer"); c.Pairs > 0 {
			row.Note = rateText(rate.Mean) + " kByte/s, CPU " + percent(cpu)
		}
		var facts factList
		facts.add(rate.Mean.Known(), "Maximum rate", "%s kByte/s", withBounds(rate, rateText))
		facts.add(cpu.Known(), "Router CPU there", "%s of what it has", percent(cpu))
		row.Facts = facts
		r.Rows = append(r.Rows, row)
	}
	fast := slices.Clone(cells)
	rankBy(fast, func(c analysis.Cell) analysis.Number { return -c.Device(transfer.MaxRate).Mean })
	first, last := fast[0], fast[len(fast)-1]
	if !first.Device(transfer.MaxRate).Mean.Known() {
		return "", r
	}
	clause := func(c analysis.Cell) string {
		return fmt.Sprintf("%s kByte/s through %s, for %s of the router's CPU", rateText(c.Device(transfer.MaxRate).Mean),
			c.DUT(), percent(c.Device(transfer.Busy).Mean))
	}
	lead = words.Capitalised(clientsOf(first.Cell)) + " fetch at most " + clause(first)
	if last.Device(transfer.MaxRate).Mean.Known() && len(fast) > 1 {
		lead += ", and " + clause(last)
	}
	rate := deviceOf(transfer.MaxRate)
	return keepTogether(words.Joined("; ", lead, orderClause(withFigure(fast, rate), rate)) + "."), r
}

// transferGroups draws three charts for each router speed: the rates over time with the most clients, and rate and CPU
// by clients. Where there are several speeds, charts of rate and CPU by speed come first.
func (d *drawing) transferGroups(cells []analysis.Cell) (out []figureGroup) {
	speeds := distinct(textsOf(cells, func(c analysis.Cell) string { return c.Text(transfer.RouterSpeed) }))
	if len(speeds) > 1 {
		clients := mostFetching(cells)[0].Text(result.Clients)
		all := slices.DeleteFunc(slices.Clone(cells), func(c analysis.Cell) bool { return c.Text(result.Clients) != clients })
		out = append(out, figureGroup{Heading: "By the router's CPU, " + clientsOf(all[0].Cell), Stacked: true,
			Figures: d.against(all, transfer.RouterSpeed, "Router's CPU, share of this machine's")})
	}
	return append(out, grouped(cells, d.transferGroup, transfer.RouterSpeed)...)
}

func (d *drawing) transferGroup(cells []analysis.Cell) figureGroup {
	g := figureGroup{
		Heading: "Router with " + speedText(cells[0].Cell), Stacked: true, Figures: []figure{d.courses(mostFetching(cells))}}
	if len(distinct(textsOf(cells, func(c analysis.Cell) string { return c.Text(result.Clients) }))) > 1 {
		g.Figures = append(g.Figures, d.against(cells, result.Clients, "Clients")...)
	}
	return g
}

// against draws rate and CPU of all devices over a dimension.
func (d *drawing) against(cells []analysis.Cell, along result.Dimension, xLabel string) (out []figure) {
	for _, p := range []struct {
		metric, title, label string
		print                format
	}{
		{transfer.MaxRate, "Maximum transfer rate", "Maximum transfer rate, kByte/s", rateText},
		{transfer.Busy, "Router CPU at the maximum", "Router CPU, % of what it has", percentBare},
	} {
		ch := chart.XY{Title: p.title, XLabel: xLabel, YLabel: p.label, Reference: math.NaN(), Height: stackedHeight,
			LogX: along == transfer.RouterSpeed}
		data := newGrid("", "<DUT", xLabel, p.label)
		var tips []string
		for _, dut := range distinct(textsOf(cells, analysis.Cell.DUT)) {
			line := chart.Series{Name: dut, Style: d.style(dut)}
			for _, c := range cells {
				e, x := c.Device(p.metric), c.Number(along)
				if c.DUT() != dut || !e.Mean.Known() {
					continue
				}
				tip := fmt.Sprintf("%s, %s, router with %s: %s", dut, clientsOf(c.Cell), speedText(c.Cell), withBounds(e, p.print))
				line.Points = append(line.Points, meanPoint(c.Cell.String(), x, e, tip))
				data.add(c.Cell.String(), nameCell(dut, dut), numberCell(analysis.Number(x), digits4), estimateCell(e, p.print))
				tips = append(tips, tip)
			}
			ch.Series = append(ch.Series, line)
		}
		ch.Desc = sentences(tips)
		out = append(out, d.finish(p.title, "", ch.Draw, data))
	}
	return out
}

// courses draws the rates of cells over time, like figure 4 of study 3.
func (d *drawing) courses(cells []analysis.Cell) figure {
	title := "Transfer rate with " + clientsOf(cells[0].Cell)
	ch := chart.XY{Title: title, XLabel: "Since the first transfer began, seconds", YLabel: "Transfer rate, kByte/s",
		Reference: math.NaN(), OverTime: true}
	data := newGrid("", "<DUT", "After|s", "Rate|kByte/s")
	var tips []string
	for _, c := range cells {
		line := chart.Series{Name: c.DUT(), Style: d.style(c.DUT())}
		for _, p := range c.Curves[transfer.RateCurve] {
			line.Points = append(
				line.Points, chart.Point{X: float64(p.Ms) / 1000, Y: float64(p.Value), Lo: math.NaN(), Hi: math.NaN()})
			data.add(c.Cell.String(), nameCell(c.DUT(), c.DUT()), numberCell(p.Ms/1000, digits3), numberCell(p.Value, rateText))
		}
		tips = append(tips, fmt.Sprintf("%s: %s kByte/s at most", c.DUT(), rateText(c.Device(transfer.MaxRate).Mean)))
		ch.Series = append(ch.Series, line)
	}
	ch.Desc = sentences(tips)
	return d.finish(title, "The first transfers of each device that were accepted.", ch.Draw, data)
}
