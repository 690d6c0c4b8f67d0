package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/report/chart"
)

// describeStorms fills in a page about a run that measured logins.
func (data *pageData) describeStorms(d *drawing, s analysis.Summary) {
	data.Question = "How they take a storm"
	data.Empty = "No storm was recorded, so there is nothing to show. The sections below say what was skipped, rejected or went wrong."
	data.ModeNote = "Each storm has a new lab and a device that nobody has met yet; there is no clean router beside it, because a clean router has no log-ins."
	data.Groups = stormGroups(d, s.Storms)
	data.Results, data.Further = stormGrid(s.Storms), stormGrids(s.Storms)
	data.Noise, data.NoiseFigure, data.Stability, data.Multiplicity = "", nil, nil, ""
	data.Counts = fmt.Sprintf("%s accepted, %d rejected by self-tests, %d redone.", counted(s.Trials.Accepted, "storm"), s.Trials.Rejected, s.Trials.Redone)
	for _, c := range s.Storms {
		for _, r := range c.Rejects {
			data.Rejects = append(data.Rejects, rejectRow{stormPlace(c), r.Text, r.Count})
		}
	}
	data.Rejects, data.MoreReasons = bounded(data.Rejects, reasonRows)
}

// stormPlace names a cell.
func stormPlace(c analysis.StormCell) string { return c.DUT + ", " + stormSetting(c) }

func stormSetting(c analysis.StormCell) string {
	return counted(c.Clients, "client") + ", " + arrival(c)
}

// stormKey names a cell in the page's data attributes.
func stormKey(c analysis.StormCell) string {
	return fmt.Sprintf("%s|%d|%s", c.DUT, c.Clients, c.LoginRate)
}

// stormGroups draws the waiting times: one group a number of clients and rate.
func stormGroups(d *drawing, cells []analysis.StormCell) []figureGroup {
	var out []figureGroup
	for len(cells) > 0 {
		n := 1
		for n < len(cells) && cells[n].Clients == cells[0].Clients && cells[n].LoginRate == cells[0].LoginRate {
			n++
		}
		g := figureGroup{Heading: capitalised(stormSetting(cells[0]))}
		for _, phase := range []struct {
			title, label string
			of           func(analysis.StormCell) analysis.StormPhase
		}{
			{"Logged in", "Clients logged in, % of all", func(c analysis.StormCell) analysis.StormPhase { return c.Login }},
			{"Leased", "Clients with an address, % of all", func(c analysis.StormCell) analysis.StormPhase { return c.Lease }},
		} {
			g.Figures = append(g.Figures, curveFigure(d, cells[:n], phase.title, phase.label, phase.of))
		}
		out = append(out, g)
		cells = cells[n:]
	}
	return out
}

// marked are the shares of a curve that carry a mark, %.
var marked = map[analysis.Number]bool{50: true, 90: true, 100: true}

// curveFigure draws how many clients were through after how long.
func curveFigure(d *drawing, cells []analysis.StormCell, title, label string, of func(analysis.StormCell) analysis.StormPhase) figure {
	ch := chart.XY{
		Title: title + ": " + stormSetting(cells[0]), XLabel: "From the client's turn, seconds", YLabel: label,
		Band: noBand(), Reference: math.NaN(), Curve: true,
	}
	var tips []string
	data := grid{Head: []gridHead{{Name: "DUT", Text: true}, {Name: "Share", Unit: "% of the clients"}, {Name: "After", Unit: "s"}}}
	for _, c := range cells {
		series := chart.Series{Name: c.DUT, Style: d.style(c.DUT)}
		curve := of(c).Curve
		for i, p := range curve {
			at := chart.Point{X: float64(p.Ms) / 1000, Y: float64(p.SharePct), Lo: math.NaN(), Hi: math.NaN()}
			if marked[p.SharePct] || i == len(curve)-1 {
				at.Tip = fmt.Sprintf("%s: %s of the clients after %s", c.DUT, percent(p.SharePct), millis(p.Ms))
				at.Key, at.Value = stormKey(c), p.Ms.String()
				tips = append(tips, at.Tip)
				data.Rows = append(data.Rows, gridRow{Key: stormKey(c), Cells: []gridCell{
					{Main: c.DUT, Sort: c.DUT, Text: true, Header: true}, numberCell(p.SharePct, bare), numberCell(p.Ms/1000, digits3)}})
			}
			series.Points = append(series.Points, at)
		}
		ch.Series = append(ch.Series, series)
	}
	ch.Desc = sentences(tips)
	return d.finish(title, "Marks are at half, at 90 % and where the last client was through; a line that ends below 100 % has left clients out. Time is logarithmic.",
		ch.Draw, data)
}

// stormColumn makes the cells of one column.
type stormColumn struct {
	head gridHead
	cell func(analysis.StormCell) gridCell
}

func stormEstimate(name, unit, field string, print func(analysis.Number) string, of func(analysis.StormCell) analysis.Estimate) stormColumn {
	return stormColumn{gridHead{Name: name, Unit: unit, Field: field + ".mean"}, func(c analysis.StormCell) gridCell { return estimateCell(of(c), print) }}
}

func stormCount(name, unit, field string, of func(analysis.StormCell) int) stormColumn {
	return stormColumn{gridHead{Name: name, Unit: unit, Field: field}, func(c analysis.StormCell) gridCell { return countCell(of(c)) }}
}

func stormText(name string, of func(analysis.StormCell) string) stormColumn {
	return stormColumn{gridHead{Name: name, Text: true}, func(c analysis.StormCell) gridCell { return textCell(of(c)) }}
}

// stormTable makes a table of cells, each under its name.
func stormTable(caption string, cells []analysis.StormCell, cols ...stormColumn) grid {
	cols = append([]stormColumn{
		{gridHead{Name: "DUT", Text: true}, func(c analysis.StormCell) gridCell {
			return gridCell{Main: c.DUT, Sort: c.DUT, Text: true, Header: true}
		}},
		stormCount("Clients", "", "clients", func(c analysis.StormCell) int { return c.Clients }),
		stormText("They come", arrival),
	}, cols...)
	g := grid{Caption: caption, Sortable: true}
	for _, col := range cols {
		g.Head = append(g.Head, col.head)
	}
	for _, c := range cells {
		row := gridRow{Key: stormKey(c)}
		for _, col := range cols {
			row.Cells = append(row.Cells, col.cell(c))
		}
		g.Rows = append(g.Rows, row)
	}
	return g
}

// stormGrid is what most readers want.
func stormGrid(cells []analysis.StormCell) grid {
	type cell = analysis.StormCell
	return stormTable("Logins: means over storms, their intervals in brackets", cells,
		stormEstimate("Logins", "a second", "login.per_second", digits3, func(c cell) analysis.Estimate { return c.Login.PerSecond }),
		stormColumn{gridHead{Name: "Left out", Unit: "clients"}, func(c cell) gridCell { return countCell(c.Login.Failed()) }},
		stormCount("Asked", "in all storms", "login.asked", func(c cell) int { return c.Login.Asked }),
		stormEstimate("p50", "ms", "login.p50_ms", digits3, func(c cell) analysis.Estimate { return c.Login.P50Ms }),
		stormEstimate("p90", "ms", "login.p90_ms", digits3, func(c cell) analysis.Estimate { return c.Login.P90Ms }),
		stormEstimate("p99", "ms", "login.p99_ms", digits3, func(c cell) analysis.Estimate { return c.Login.P99Ms }),
		stormEstimate("Last", "ms", "login.max_ms", digits3, func(c cell) analysis.Estimate { return c.Login.MaxMs }),
		stormEstimate("Router CPU", "ms a login", "login.router_ms", digits3, func(c cell) analysis.Estimate { return c.Login.RouterMs }),
		stormEstimate("RADIUS CPU", "ms a login", "login.radius_ms", digits3, func(c cell) analysis.Estimate { return c.Login.RadiusMs }),
		stormEstimate("Memory", "KiB a client", "pss_kib_per_client", digits3, func(c cell) analysis.Estimate { return c.PSSKiBPerClient }),
		stormText("Limit", func(c cell) string { return limitText(c.Login) }),
		stormCount("Storms", "", "storms", func(c cell) int { return c.Storms }),
		stormCount("Rejected", "", "rejected", func(c cell) int { return c.Rejected }))
}

// stormGrids are all other figures.
func stormGrids(cells []analysis.StormCell) []grid {
	type cell = analysis.StormCell
	leases := stormTable("Leases", cells,
		stormText("Leased by", func(c cell) string { return map[bool]string{true: "the device", false: "the lab"}[c.DeviceLeases] }),
		stormEstimate("Leases", "a second", "lease.per_second", digits3, func(c cell) analysis.Estimate { return c.Lease.PerSecond }),
		stormCount("Leased", "clients", "lease.through", func(c cell) int { return c.Lease.Through }),
		stormCount("Asked again", "clients", "lease.retried", func(c cell) int { return c.Lease.Retried }),
		stormEstimate("p50", "ms", "lease.p50_ms", digits3, func(c cell) analysis.Estimate { return c.Lease.P50Ms }),
		stormEstimate("p99", "ms", "lease.p99_ms", digits3, func(c cell) analysis.Estimate { return c.Lease.P99Ms }),
		stormEstimate("Last", "ms", "lease.max_ms", digits3, func(c cell) analysis.Estimate { return c.Lease.MaxMs }),
		stormEstimate("Router CPU", "ms a lease", "lease.router_ms", digits3, func(c cell) analysis.Estimate { return c.Lease.RouterMs }),
		stormText("Limit", func(c cell) string { return limitText(c.Lease) }))
	busy := stormTable("Who was busy during the logins: shares of the CPUs each may use", cells,
		stormEstimate("Router", "%", "login.router_busy_pct", bare, func(c cell) analysis.Estimate { return c.Login.RouterBusyPct }),
		stormEstimate("Endpoints", "%", "login.endpoints_busy_pct", bare, func(c cell) analysis.Estimate { return c.Login.EndpointsBusyPct }),
		stormEstimate("of it clients", "%", "login.client_busy_pct", bare, func(c cell) analysis.Estimate { return c.Login.ClientBusyPct }),
		stormEstimate("of it RADIUS", "%", "login.radius_busy_pct", bare, func(c cell) analysis.Estimate { return c.Login.RadiusBusyPct }),
		stormEstimate("Client CPU", "ms a login", "login.client_ms", digits3, func(c cell) analysis.Estimate { return c.Login.ClientMs }),
		stormEstimate("Device's processes", "ms a login", "login.process_ms", digits3, func(c cell) analysis.Estimate { return c.Login.ProcessMs }),
		stormEstimate("Latest begin", "ms", "login.late_ms", digits3, func(c cell) analysis.Estimate { return c.Login.LateMs }),
		stormEstimate("Memory, idle", "PSS, MiB", "idle_pss_mib", digits3, func(c cell) analysis.Estimate { return c.IdlePSSMiB }),
		stormEstimate("Memory, all in", "PSS, MiB", "logged_pss_mib", digits3, func(c cell) analysis.Estimate { return c.LoggedPSSMiB }))
	grids := []grid{leases, busy}
	if met := metGrid(cells); len(met.Rows) > 0 {
		grids = append(grids, met)
	}
	return grids
}

// metGrid is what clients met on their way, one row a reason.
func metGrid(cells []analysis.StormCell) grid {
	g := grid{Caption: "What clients met", Sortable: true, Head: []gridHead{
		{Name: "DUT", Text: true}, {Name: "Storm", Text: true}, {Name: "What", Text: true}, {Name: "Clients"}, {Name: "Such as", Text: true}}}
	for _, c := range cells {
		for _, part := range []struct {
			what string
			list []analysis.Tally
		}{
			{"no lease", c.Lease.Failures}, {"no login", c.Login.Failures}, {"device died", c.Deaths},
			{"asked again for a lease", c.Lease.Refusals}, {"tried again to log in", c.Login.Refusals},
		} {
			for _, r := range part.list {
				g.Rows = append(g.Rows, gridRow{Key: stormKey(c), Cells: []gridCell{
					{Main: c.DUT, Sort: c.DUT, Text: true, Header: true}, textCell(stormSetting(c)), textCell(part.what), countCell(r.Count), textCell(strings.TrimSpace(r.Text))}})
			}
		}
	}
	g.Rows, _ = bounded(g.Rows, reasonRows)
	return g
}
