package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/logins"
	"github.com/gateweigh/gateweigh/lab/report/chart"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// loginsView shows login storms.
var loginsView = view{
	how:     func(s analysis.Summary) string { return s.Measure },
	columns: func(analysis.Summary) []column[analysis.Cell] { return stormColumns },
	remarks: func(s analysis.Summary) []string { return stormRemarks(s.Cells) },
	reading: func(analysis.Summary) string { return stormReading },
	first:   loginScreen,
	fill: func(data *pageData, d *drawing, s analysis.Summary) {
		data.Question = "How they take a storm"
		data.Empty = "No storm was recorded, so there is nothing to show. The sections below say what was skipped, rejected or went wrong."
		data.ModeNote = "Each storm has a new lab and a device that nobody has met yet; there is no clean router beside it, because a clean router has no log-ins."
		data.Groups = stormGroups(d, s.Cells)
		data.Results, data.Further = stormGrid(s.Cells), stormGrids(s.Cells)
	},
}

func stormSetting(c analysis.Cell) string {
	return words.Counted(c.Int(result.Clients), "client") + ", " + arrival(c.Number(result.LoginRate))
}

// stormGroups draws the waiting times: one group a number of clients and rate.
func stormGroups(d *drawing, cells []analysis.Cell) []figureGroup {
	var out []figureGroup
	for len(cells) > 0 {
		n := 1
		for n < len(cells) && cells[n].Int(result.Clients) == cells[0].Int(result.Clients) && cells[n].Number(result.LoginRate) == cells[0].Number(result.LoginRate) {
			n++
		}
		g := figureGroup{Heading: words.Capitalised(stormSetting(cells[0]))}
		for _, phase := range []struct {
			title, label, prefix string
		}{
			{"Logged in", "Clients logged in, % of all", logins.Login},
			{"Leased", "Clients with an address, % of all", logins.Lease},
		} {
			g.Figures = append(g.Figures, curveFigure(d, cells[:n], phase.title, phase.label, phase.prefix))
		}
		out = append(out, g)
		cells = cells[n:]
	}
	return out
}

// marked are the shares of a curve that carry a mark, %.
var marked = map[analysis.Number]bool{50: true, 90: true, 100: true}

// curveFigure draws how many clients were through after how long.
func curveFigure(d *drawing, cells []analysis.Cell, title, label, phase string) figure {
	ch := chart.XY{
		Title: title + ": " + stormSetting(cells[0]), XLabel: "From the client's turn, seconds", YLabel: label,
		Band: noBand(), Reference: math.NaN(), Curve: true,
	}
	var tips []string
	data := grid{Head: []gridHead{{Name: "DUT", Text: true}, {Name: "Share", Unit: "% of the clients"}, {Name: "After", Unit: "s"}}}
	for _, c := range cells {
		series := chart.Series{Name: c.DUT(), Style: d.style(c.DUT())}
		curve := c.Curves[phase+logins.Through]
		for i, p := range curve {
			at := chart.Point{X: float64(p.Ms) / 1000, Y: float64(p.SharePct), Lo: math.NaN(), Hi: math.NaN()}
			if marked[p.SharePct] || i == len(curve)-1 {
				at.Tip = fmt.Sprintf("%s: %s of the clients after %s", c.DUT(), percent(p.SharePct), millis(p.Ms))
				at.Key, at.Value = markKey(c.Cell), p.Ms.String()
				tips = append(tips, at.Tip)
				data.Rows = append(data.Rows, gridRow{Key: markKey(c.Cell), Cells: []gridCell{
					{Main: c.DUT(), Sort: c.DUT(), Text: true, Header: true}, numberCell(p.SharePct, bare), numberCell(p.Ms/1000, digits3)}})
			}
			series.Points = append(series.Points, at)
		}
		ch.Series = append(ch.Series, series)
	}
	ch.Desc = sentences(tips)
	return d.finish(title, "Marks are at half, at 90 % and where the last client was through; a line that ends below 100 % has left clients out. Time is logarithmic.",
		ch.Draw, data)
}

// stormGrid is what most readers want.
func stormGrid(cells []analysis.Cell) grid {
	return build("Logins: means over storms, their intervals in brackets", cells,
		device("login_per_second", "Logins", "a second", digits3),
		gridColumn{gridHead{Name: "Left out", Unit: "clients"}, func(c analysis.Cell) gridCell { return countCell(failed(c, logins.Login)) }},
		counts(logins.Login+logins.Asked, "Asked", "in all storms"),
		device("login_p50_ms", "p50", "ms", digits3), device("login_p90_ms", "p90", "ms", digits3),
		device("login_p99_ms", "p99", "ms", digits3), device("login_max_ms", "Last", "ms", digits3),
		device("login_router_ms", "Router CPU", "ms a login", digits3), device("login_radius_ms", "RADIUS CPU", "ms a login", digits3),
		device("pss_kib_per_client", "Memory", "KiB a client", digits3),
		textColumn("Limit", func(c analysis.Cell) string { return limitText(c, logins.Login) }),
		countColumn("Storms", "", "pairs", func(c analysis.Cell) int { return c.Pairs }),
		countColumn("Rejected", "", "rejected", func(c analysis.Cell) int { return c.Rejected }))
}

// loginTables are all other figures.
var loginTables = []cellTable{
	{"Leases", nil, []gridColumn{
		textColumn("Leased by", func(c analysis.Cell) string {
			return map[bool]string{true: "the device", false: "the lab"}[c.Counts[logins.DeviceLeases] > 0]
		}),
		device("lease_per_second", "Leases", "a second", digits3),
		counts(logins.Lease+logins.Through, "Leased", "clients"), counts(logins.Lease+logins.Retried, "Asked again", "clients"),
		device("lease_p50_ms", "p50", "ms", digits3), device("lease_p99_ms", "p99", "ms", digits3), device("lease_max_ms", "Last", "ms", digits3),
		device("lease_router_ms", "Router CPU", "ms a lease", digits3),
		textColumn("Limit", func(c analysis.Cell) string { return limitText(c, logins.Lease) }),
	}},
	{"Who was busy during the logins: shares of the CPUs each may use", nil, []gridColumn{
		device("login_router_busy_pct", "Router", "%", bare), device("login_endpoints_busy_pct", "Endpoints", "%", bare),
		device("login_client_busy_pct", "of it clients", "%", bare), device("login_radius_busy_pct", "of it RADIUS", "%", bare),
		device("login_client_ms", "Client CPU", "ms a login", digits3), device("login_process_ms", "Device's processes", "ms a login", digits3),
		device("login_late_ms", "Latest begin", "ms", digits3),
		device("idle_pss_mib", "Memory, idle", "PSS, MiB", digits3), device("logged_pss_mib", "Memory, all in", "PSS, MiB", digits3),
	}},
}

// stormGrids are all other figures.
func stormGrids(cells []analysis.Cell) []grid {
	grids := tablesOf(cells, loginTables)
	if met := metGrid(cells); len(met.Rows) > 0 {
		grids = append(grids, met)
	}
	return grids
}

// metGrid is what clients met on their way, one row a reason.
func metGrid(cells []analysis.Cell) grid {
	g := grid{Caption: "What clients met", Sortable: true, Head: []gridHead{
		{Name: "DUT", Text: true}, {Name: "Storm", Text: true}, {Name: "What", Text: true}, {Name: "Clients"}, {Name: "Such as", Text: true}}}
	for _, c := range cells {
		for _, part := range []struct {
			what string
			list []analysis.Tally
		}{
			{"no lease", c.Tallies[logins.Lease+logins.Failures]}, {"no login", c.Tallies[logins.Login+logins.Failures]}, {"device died", c.Tallies[logins.Deaths]},
			{"asked again for a lease", c.Tallies[logins.Lease+logins.Refusals]}, {"tried again to log in", c.Tallies[logins.Login+logins.Refusals]},
		} {
			for _, r := range part.list {
				g.Rows = append(g.Rows, gridRow{Key: markKey(c.Cell), Cells: []gridCell{
					{Main: c.DUT(), Sort: c.DUT(), Text: true, Header: true}, textCell(stormSetting(c)), textCell(part.what), countCell(r.Count), textCell(strings.TrimSpace(r.Text))}})
			}
		}
	}
	g.Rows, _ = bounded(g.Rows, reasonRows)
	return g
}
