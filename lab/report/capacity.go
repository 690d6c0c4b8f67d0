package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/report/chart"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// capacityRows bounds the bars of the capacity chart; the table has all.
const capacityRows = 24

// capacityFigures draws how much the box carries with each device, one chart a
// direction and profile: for each device and the clean router, at the most
// clients it was measured with first.
func (d *drawing) capacityFigures() []figure {
	type way struct{ direction, profile string }
	var ways []way
	byWay := map[way][]analysis.CostModel{}
	for _, m := range d.summary.CostModels {
		w := way{m.Cell.Text(result.Direction), m.Cell.Text(result.Profile)}
		if byWay[w] == nil {
			ways = append(ways, w)
		}
		byWay[w] = append(byWay[w], m)
	}
	var out []figure
	for _, w := range ways {
		ch := chart.Bars{
			Title:  fmt.Sprintf("How much this box carries, %s, %s", words.Direction(w.direction), w.profile),
			XLabel: "Payload at one core of router CPU, Gbit/s",
		}
		for _, m := range byWay[w] {
			for i, c := range m.Capacity {
				if row := d.capacityRow(m, c, i); row != nil && len(ch.Rows) < capacityRows {
					ch.Rows = append(ch.Rows, *row)
					ch.Desc += row.End.Tip + ". "
				}
			}
		}
		if len(ch.Rows) > 0 {
			out = append(out, d.finish(ch.Title, "Solid is what was carried in this run. Dashed and open is extrapolated by the cost model "+
				"to a router that uses one whole core; whether the box gets there, only a run at that load can show.", ch.Draw, capacityGrid(byWay[w])))
		}
	}
	return out
}

// capacityRow is one bar, nil where nothing is known.
func (d *drawing) capacityRow(m analysis.CostModel, c analysis.Capacity, i int) *chart.BarRow {
	if !c.Mbps.Mean.Known() {
		return nil
	}
	gbit := func(n analysis.Number) analysis.Number { return n / 1000 }
	e := analysis.Estimate{Mean: gbit(c.Mbps.Mean), Lo: gbit(c.Mbps.Lo), Hi: gbit(c.Mbps.Hi), N: c.Mbps.N}
	name := fmt.Sprintf("%s, %s", routerName(m.Cell.Text(result.DUT)), words.Counted(c.Clients, "client"))
	text := rate(c.Mbps.Mean)
	switch {
	case c.Saturated:
		text += ", its limit"
	case c.Extrapolated:
		text = "about " + text + ", extrapolated"
	}
	row := chart.BarRow{Label: name, Text: text, Style: d.style(m.Cell.Text(result.DUT)), Seen: float64(gbit(c.MeasuredMbps))}
	row.End = estimatePoint(0, e, name+": "+capacityText(c)+" "+bounds(c.Mbps, rate))
	row.End.Key = fmt.Sprintf("%s|%s|%s|%d", m.Cell.Text(result.DUT), m.Cell.Text(result.Direction), m.Cell.Text(result.Profile), c.Clients)
	row.End.Value = c.Mbps.Mean.String()
	return &row
}

// capacityGrid is one row a device and number of clients.
func capacityGrid(models []analysis.CostModel) grid {
	g := grid{Caption: "How much this box carries", Sortable: true, Head: []gridHead{
		{Name: "Router", Text: true}, {Name: "Clients"}, {Name: "Carries", Unit: "Mbit/s at one core"}, {Name: "Carried in this run", Unit: "Mbit/s"},
		{Name: "From", Text: true}, {Name: "Note", Text: true},
	}}
	for _, m := range models {
		for _, c := range m.Capacity {
			from := "cost model, within what was measured"
			switch {
			case c.Saturated:
				from = "measured limit"
			case c.Extrapolated:
				from = "extrapolated"
			}
			g.Rows = append(g.Rows, gridRow{Key: fmt.Sprintf("%s|%s|%s|%d", m.Cell.Text(result.DUT), m.Cell.Text(result.Direction), m.Cell.Text(result.Profile), c.Clients), Cells: []gridCell{
				{Main: routerName(m.Cell.Text(result.DUT)), Sort: m.Cell.Text(result.DUT), Text: true, Header: true}, countCell(c.Clients),
				estimateCell(c.Mbps, digits4), numberCell(c.MeasuredMbps, digits4), textCell(from), textCell(c.Note),
			}})
		}
	}
	return g
}

// termColumns are the terms of the cost model in the order of the table.
var termColumns = []struct{ term, name, unit string }{
	{analysis.TermConstant, "Standing", "% of a core"},
	{analysis.TermLoad, "Per load", "% of a core a Gbit/s"},
	{analysis.TermClients, "Per client", "% of a core"},
	{analysis.TermPackets, "Per packet", "% of a core a Mpacket/s"},
}

// costModelGrid is one row a fitted model.
func costModelGrid(models []analysis.CostModel) grid {
	g := grid{Caption: "What a router's CPU is made of: a fit over all cells, with intervals over blocks", Sortable: true, Head: []gridHead{
		{Name: "Router", Text: true}, {Name: "Direction", Text: true}, {Name: "Profile", Text: true}}}
	for _, col := range termColumns {
		g.Head = append(g.Head, gridHead{Name: col.name, Unit: col.unit})
	}
	g.Head = append(g.Head, gridHead{Name: "R²"}, gridHead{Name: "Residual", Unit: "%"}, gridHead{Name: "Fitted over", Text: true}, gridHead{Name: "Left out", Text: true})
	for _, m := range models {
		row := gridRow{Key: fmt.Sprintf("%s|%s|%s", m.Cell.Text(result.DUT), m.Cell.Text(result.Direction), m.Cell.Text(result.Profile)), Cells: []gridCell{
			{Main: routerName(m.Cell.Text(result.DUT)), Sort: m.Cell.Text(result.DUT), Text: true, Header: true}, textCell(m.Cell.Text(result.Direction)), textCell(m.Cell.Text(result.Profile))}}
		for _, col := range termColumns {
			i := slices.IndexFunc(m.Terms, func(t analysis.Term) bool { return t.Name == col.term })
			if i < 0 {
				row.Cells = append(row.Cells, gridCell{Main: none})
				continue
			}
			row.Cells = append(row.Cells, estimateCell(m.Terms[i].Value, digits3))
		}
		over := fmt.Sprintf("%s to %s, %d to %s; %s in %s", rate(m.MinMbps), rate(m.MaxMbps), m.MinClients, words.Counted(m.MaxClients, "client"),
			words.Counted(m.Blocks, "block"), words.Counted(m.Cells, "cell"))
		if len(m.Terms) == 0 {
			over = none
		}
		row.Cells = append(row.Cells, numberCell(m.R2, fraction4), numberCell(m.ResidualPct, digits3), textCell(over), textCell(strings.Join(m.Omitted, " ")))
		g.Rows = append(g.Rows, row)
	}
	return g
}

// incrementsGrid is the steps of all sweeps, as the study's tables 5.2-5.4 and 5.6-5.8 have them.
func incrementsGrid(sum analysis.Summary) grid {
	g := grid{Caption: "From one level to the next: normalised CPU, with intervals over blocks", Sortable: true, Head: append(sweepHead(),
		gridHead{Name: "From"}, gridHead{Name: "To"}, gridHead{Name: "Net", Unit: "points of a core"}, gridHead{Name: "Relative", Unit: "%"},
		gridHead{Name: "Proportion", Unit: "1 is proportional"}, gridHead{Name: "Verdict", Text: true},
		gridHead{Name: "Beyond the clean router", Unit: "% of the ratio"}, gridHead{Name: "Verdict on that", Text: true})}
	for _, s := range sum.Sweeps {
		for _, inc := range s.Increments {
			g.Rows = append(g.Rows, gridRow{Key: sweepKey(s), Cells: append(sweepCells(sum, s),
				numberCell(inc.From, digits4), numberCell(inc.To, digits4), estimateCell(inc.NetPct, digits3), estimateCell(inc.RelativePct, digits3),
				estimateCell(inc.Proportion, ratio), badgeCell(inc.Verdict, ""), estimateCell(inc.RatioPct, digits3), badgeCell(inc.RatioVerdict, ""))})
		}
	}
	return g
}

// linearityGrid says how CPU follows bandwidth, one row a sweep that can tell.
func linearityGrid(sum analysis.Summary) grid {
	g := grid{Caption: "How CPU follows bandwidth: straight line and power law through each block's levels", Sortable: true, Head: append(sweepHead(),
		gridHead{Name: "Slope", Unit: "% of a core a Gbit/s"}, gridHead{Name: "Intercept", Unit: "% of a core"}, gridHead{Name: "R²"},
		gridHead{Name: "Exponent", Unit: "1 is proportional"}, gridHead{Name: "Bends at"}, gridHead{Name: "Off the line there", Unit: "%"},
		gridHead{Name: "Levels used"}, gridHead{Name: "Left out", Text: true})}
	for _, s := range sum.Sweeps {
		l := s.Linearity
		if l == nil {
			continue
		}
		var left []string
		for _, level := range l.LevelsLeft {
			left = append(left, digits4(level))
		}
		bend := numberCell(l.BendAt, digits4)
		if !l.BendAt.Known() {
			bend.Main = "nowhere"
		}
		g.Rows = append(g.Rows, gridRow{Key: sweepKey(s), Cells: append(sweepCells(sum, s),
			estimateCell(l.Slope, digits3), estimateCell(l.Intercept, digits3), numberCell(l.R2, fraction4), estimateCell(l.Exponent, ratio),
			bend, estimateCell(l.BendPct, digits3), countCell(l.LevelsUsed), textCell(strings.Join(left, ", ")))})
	}
	return g
}

func sweepHead() []gridHead {
	return []gridHead{{Name: "Router", Text: true}, {Name: "Sweep", Text: true}}
}

func sweepKey(s analysis.Sweep) string {
	return fmt.Sprintf("%s|%s|%s|%s|%d|%s", s.Cell.Text(result.DUT), s.Along, s.Cell.Text(result.Direction), s.Cell.Text(result.Profile), s.Cell.Int(result.Clients), offered(s.Cell))
}

func sweepCells(sum analysis.Summary, s analysis.Sweep) []gridCell {
	what := fmt.Sprintf("clients at %s, %s", rate(offered(s.Cell)), s.Cell.Text(result.Direction))
	if s.Along == result.OfferedMbps {
		what = fmt.Sprintf("Mbit/s with %s, %s", words.Counted(s.Cell.Int(result.Clients), "client"), s.Cell.Text(result.Direction))
	}
	return []gridCell{{Main: sweptName(sum, s.Cell.Text(result.DUT)), Sort: s.Cell.Text(result.DUT), Text: true, Header: true}, textCell(what)}
}
