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

// capacityRows is the largest number of bars in the capacity chart. The table has all.
const capacityRows = 24

// capacity is the load that a router carries with one number of clients.
type capacity struct {
	analysis.Capacity
	cell result.Cell
}

// key joins the dimensions of a cell to a text for the page's data attributes.
func key(c result.Cell, dimensions ...result.Dimension) string {
	var parts []string
	for _, d := range dimensions {
		parts = append(parts, c.Text(d))
	}
	return strings.Join(parts, "|")
}

func capacityKey(c result.Cell) string {
	text := key(c, result.DUT, result.Direction, result.Profile, result.FrameSize, result.Clients)
	if c.HasDimension(result.Family) {
		text += "|" + c.Text(result.Family)
	}
	return text
}

// capacityFigures draws the load that the machine carries with each device, one chart for each direction and profile. A
// device has one bar for each number of clients, the largest number first.
func (d *drawing) capacityFigures() (out []figure) {
	var all []result.Cell
	byWay := map[result.Cell][]capacity{}
	for _, m := range d.summary.CostModels {
		way := m.Cell.Only(packetDimensions...)
		all = append(all, way)
		for _, c := range m.Capacity {
			byWay[way] = append(byWay[way], capacity{c, m.Cell.With(result.Clients, c.Clients)})
		}
	}
	for _, w := range distinct(all) {
		ch := chart.Forest{
			Bars: true, Title: "How much this box carries, " + packetsInWords(w),
			XLabel: "Payload at one core of router CPU, Gbit/s",
		}
		for _, c := range byWay[w] {
			if c.Mbps.Mean.Known() && len(ch.Rows) < capacityRows {
				row := d.capacityRow(c)
				ch.Rows = append(ch.Rows, row)
				ch.Desc += row.Marks[0].Point.Tip + ". "
			}
		}
		if len(ch.Rows) > 0 {
			out = append(out,
				d.finish(ch.Title, "Solid is what was carried in this run. Dashed and open is extrapolated by the cost model "+
					"to a router that uses one whole core; whether the box gets there, only a run at that load can show.", ch.Draw,
					capacityGrid(byWay[w])))
		}
	}
	return out
}

// capacityRow makes one bar.
func (d *drawing) capacityRow(c capacity) chart.ForestRow {
	e, dut, text := c.Mbps, c.cell.Text(result.DUT), rate(c.Mbps.Mean)
	e.Mean, e.Lo, e.Hi = e.Mean/1000, e.Lo/1000, e.Hi/1000
	switch {
	case c.Saturated:
		text += ", its limit"
	case c.Extrapolated:
		text = "about " + text + ", extrapolated"
	}
	name := routerName(dut) + ", " + clientsOf(c.cell)
	end := meanPoint(capacityKey(c.cell), 0, e, name+": "+capacityText(c.Capacity)+" "+bounds(c.Mbps, rate))
	end.Value = c.Mbps.Mean.String()
	return chart.ForestRow{Label: name, Text: text, Seen: float64(c.MeasuredMbps) / 1000, Marks: []chart.ForestMark{{
		Style: d.style(dut), Point: end}}}
}

// capacityGrid has one row for each device and number of clients.
func capacityGrid(list []capacity) grid {
	g := newGrid("How much this box carries", "<Router", "Clients", "Carries|Mbit/s at one core",
		"Carried in this run|Mbit/s", "<From", "<Note")
	for _, c := range list {
		from := "cost model, within what was measured"
		switch {
		case c.Saturated:
			from = "measured limit"
		case c.Extrapolated:
			from = "extrapolated"
		}
		g.add(capacityKey(c.cell), routerCell(c.cell), countCell(c.Clients), estimateCell(c.Mbps, digits4),
			numberCell(c.MeasuredMbps, digits4),
			textCell(from), textCell(c.Note))
	}
	return g
}

// costModelGrid has one row for each fitted model.
func costModelGrid(models []analysis.CostModel) grid {
	g := newGrid("What a router's CPU is made of: a fit over all cells, with intervals over blocks", "<Router",
		"<Direction", "<Profile",
		"Standing|% of a core", "Per load|% of a core a Gbit/s", "Per client|% of a core",
		"Per packet|% of a core a Mpacket/s",
		"R²", "Residual|%", "<Fitted over", "<Left out")
	for _, m := range models {
		cells := []gridCell{routerCell(m.Cell), textCell(m.Cell.Text(result.Direction)), textCell(packetsText(m.Cell))}
		for _, term := range []string{analysis.TermConstant, analysis.TermLoad, analysis.TermClients, analysis.TermPackets} {
			cell := gridCell{Main: absentFigure}
			if i := slices.IndexFunc(m.Terms, func(t analysis.Term) bool { return t.Name == term }); i >= 0 {
				cell = estimateCell(m.Terms[i].Value, digits3)
			}
			cells = append(cells, cell)
		}
		over := absentFigure
		if len(m.Terms) > 0 {
			over = fmt.Sprintf("%s to %s, %d to %s; %s in %s", rate(m.MinMbps), rate(m.MaxMbps), m.MinClients, words.Counted(
				m.MaxClients, "client"),
				words.Counted(m.Blocks, "block"), words.Counted(m.Cells, "cell"))
		}
		g.add(key(m.Cell, append([]result.Dimension{result.DUT}, packetDimensions...)...),
			append(cells, numberCell(m.R2, fraction4),
				numberCell(m.ResidualPct, digits3), textCell(over), textCell(strings.Join(m.Omitted, " ")))...)
	}
	return g
}

// incrementsGrid has the steps of all sweeps, in the form of the study's tables 5.2-5.4 and 5.6-5.8.
func incrementsGrid(sum analysis.Summary) grid {
	g := newGrid("From one level to the next: normalised CPU, with intervals over blocks", "<Router", "<Sweep", "From",
		"To",
		"Net|points of a core", "Relative|%", "Proportion|1 is proportional", "<Verdict",
		"Beyond the clean router|% of the ratio", "<Verdict on that")
	for _, s := range sum.Sweeps {
		for _, inc := range s.Increments {
			g.addSweep(sum, s, numberCell(inc.From, digits4), numberCell(inc.To, digits4), estimateCell(inc.NetPct, digits3),
				estimateCell(inc.RelativePct, digits3),
				estimateCell(inc.Proportion, ratio), badgeCell(inc.Verdict, togetherText(inc.Together, digits3, "steps")),
				estimateCell(inc.RatioPct, digits3),
				badgeCell(inc.RatioVerdict, togetherText(inc.RatioTogether, digits3, "steps")))
		}
	}
	return g
}

// linearityGrid says how CPU follows bandwidth. It has one row for each sweep with enough levels.
func linearityGrid(sum analysis.Summary) grid {
	g := newGrid("How CPU follows bandwidth: straight line and power law through each block's levels", "<Router", "<Sweep",
		"Slope|% of a core a Gbit/s",
		"Intercept|% of a core", "R²", "Exponent|1 is proportional", "Bends at", "Off the line there|%", "Levels used",
		"<Left out")
	for _, s := range sum.Sweeps {
		l := s.Linearity
		if l == nil {
			continue
		}
		var unused []string
		for _, level := range l.LevelsLeft {
			unused = append(unused, digits4(level))
		}
		bend := numberCell(l.BendAt, digits4)
		if !l.BendAt.Known() {
			bend.Main = "nowhere"
		}
		g.addSweep(sum, s, estimateCell(l.Slope, digits3), estimateCell(l.Intercept, digits3), numberCell(l.R2, fraction4),
			estimateCell(l.Exponent, ratio),
			bend, estimateCell(l.BendPct, digits3), countCell(l.LevelsUsed), textCell(strings.Join(unused, ", ")))
	}
	return g
}

// addSweep adds the row of a sweep.
func (g *grid) addSweep(sum analysis.Summary, s analysis.Sweep, cells ...gridCell) {
	dut, direction := s.Cell.Text(result.DUT), s.Cell.Text(result.Direction)
	setting := fmt.Sprintf("clients at %s, %s", rate(offeredMbps(s.Cell)), direction)
	if s.Along == result.OfferedMbps {
		setting = fmt.Sprintf("Mbit/s with %s, %s", clientsOf(s.Cell), direction)
	}
	name := fmt.Sprintf("%s|%s|%s|%d|%s", dut, s.Along, key(s.Cell, result.Direction, result.Profile), s.Cell.Int(
		result.Clients), offeredMbps(s.Cell))
	if v, ok := s.Cell.Value(result.Family); ok {
		setting, name = setting+", "+analysis.Family.Say(v), name+"|"+v.Text
	}
	g.add(name, append([]gridCell{nameCell(sweptName(sum, dut), dut), textCell(setting)}, cells...)...)
}
