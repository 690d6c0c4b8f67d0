package report

import (
	"fmt"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
)

// grid is a table ready to print.
type grid struct {
	Caption string
	Head    []gridHead
	Rows    [][]gridCell
}

type gridHead struct {
	Name, Unit string
	Text       bool // aligned left
}

// gridCell is one value; Sort is what it is ordered by, Small is its interval.
type gridCell struct {
	Main, Small, Sort string
	Text, Header      bool
	Badge             string // class of a verdict
}

// gridColumn makes the cells of one column.
type gridColumn struct {
	head gridHead
	cell func(analysis.Cell) gridCell
}

func textColumn(name string, of func(analysis.Cell) string) gridColumn {
	return gridColumn{gridHead{Name: name, Text: true}, func(c analysis.Cell) gridCell {
		return gridCell{Main: of(c), Sort: of(c), Text: true}
	}}
}

func numberColumn(name, unit string, print func(analysis.Number) string, of func(analysis.Cell) analysis.Number) gridColumn {
	return gridColumn{gridHead{Name: name, Unit: unit}, func(c analysis.Cell) gridCell {
		return gridCell{Main: print(of(c)), Sort: of(c).String()}
	}}
}

func countColumn(name string, of func(analysis.Cell) int) gridColumn {
	return numberColumn(name, "", func(n analysis.Number) string { return fmt.Sprint(int(n)) },
		func(c analysis.Cell) analysis.Number { return analysis.Number(of(c)) })
}

func estimateColumn(name, unit string, print func(analysis.Number) string, of func(analysis.Cell) analysis.Estimate) gridColumn {
	return gridColumn{gridHead{Name: name, Unit: unit}, func(c analysis.Cell) gridCell {
		e := of(c)
		return gridCell{Main: print(e.Mean), Small: bounds(e, print), Sort: e.Mean.String()}
	}}
}

// identity names the cell in both tables; the device's name is the row's header.
func identity(cells []analysis.Cell) []gridColumn {
	cols := []gridColumn{{gridHead{Name: "DUT", Text: true}, func(c analysis.Cell) gridCell {
		return gridCell{Main: c.DUT, Sort: c.DUT, Text: true, Header: true}
	}}}
	for _, col := range []gridColumn{
		textColumn("Profile", func(c analysis.Cell) string { return c.Profile }),
		textColumn("Direction", func(c analysis.Cell) string { return c.Direction }),
	} {
		for _, c := range cells {
			if col.cell(c) != col.cell(cells[0]) {
				cols = append(cols, col)
				break
			}
		}
	}
	return append(cols,
		countColumn("Clients", func(c analysis.Cell) int { return c.Clients }),
		numberColumn("Offered", "Mbit/s", digits4, func(c analysis.Cell) analysis.Number { return c.OfferedMbps }))
}

// resultsGrid is what most readers want, the answer first: a phone shows only
// the first columns at once.
func resultsGrid(cells []analysis.Cell) grid {
	return build("Means over blocks with their intervals in brackets; a click on a heading sorts", cells, append(identity(cells),
		estimateColumn("Overhead", "× per bit", ratio, func(c analysis.Cell) analysis.Estimate { return c.OverheadRatio }),
		gridColumn{gridHead{Name: "Verdict", Text: true}, func(c analysis.Cell) gridCell {
			note := ""
			if c.BlocksNeeded != nil {
				note = "needs about " + counted(*c.BlocksNeeded, "more block")
			}
			return gridCell{Main: c.Verdict, Small: note, Sort: c.Verdict, Text: true, Badge: c.Verdict}
		}},
		estimateColumn("Delivered", "Mbit/s", digits4, func(c analysis.Cell) analysis.Estimate { return c.Intervals.DeliveredMbps }),
		estimateColumn("Clean CPU", "% of a core", bare, func(c analysis.Cell) analysis.Estimate { return c.CleanCPUCorePct }),
		estimateColumn("DUT CPU", "% of a core", bare, func(c analysis.Cell) analysis.Estimate { return c.CPUCorePct }),
		numberColumn("Increase", "%, normalised", bare, func(c analysis.Cell) analysis.Number { return c.IncreasePct }),
		estimateColumn("Per packet", "ns", digits3, func(c analysis.Cell) analysis.Estimate { return c.Intervals.NsPerPacket }),
		estimateColumn("RTT p99", "µs under load", digits3, func(c analysis.Cell) analysis.Estimate { return c.Intervals.RTTP99us }),
	))
}

// furtherGrids are all other figures, in tables that fit a screen.
func furtherGrids(cells []analysis.Cell) []grid {
	const intervals = ": means over blocks with their intervals"
	return []grid{
		build("CPU"+intervals, cells, append(identity(cells),
			estimateColumn("Normalised CPU", "eq. 5.1, % of a core", bare, func(c analysis.Cell) analysis.Estimate { return c.Intervals.CPUNormalisedPct }),
			estimateColumn("Clean normalised", "eq. 5.1, % of a core", bare, func(c analysis.Cell) analysis.Estimate { return c.Intervals.CleanCPUNormalisedPct }),
			estimateColumn("Router CPU", "% of the machine", bare, func(c analysis.Cell) analysis.Estimate { return c.Intervals.CPUMachinePct }),
			estimateColumn("In processes", "% of a core", bare, func(c analysis.Cell) analysis.Estimate { return c.Intervals.ProcessCorePct }),
			estimateColumn("Processes, whole block", "% of a core", bare, func(c analysis.Cell) analysis.Estimate { return c.BlockFigures.DaemonCorePct }),
			estimateColumn("Machine busy", "%, /proc/stat, all labs", bare, func(c analysis.Cell) analysis.Estimate { return c.Intervals.MachineBusyPct }),
			estimateColumn("Metering", "% of a core", bare, func(c analysis.Cell) analysis.Estimate { return c.Intervals.MeterCorePct }),
			estimateColumn("Clean per packet", "ns", digits3, func(c analysis.Cell) analysis.Estimate { return c.Intervals.CleanNsPerPacket }),
		)),
		build("Traffic"+intervals, cells, append(identity(cells),
			estimateColumn("Clean delivered", "Mbit/s", digits4, func(c analysis.Cell) analysis.Estimate { return c.Intervals.CleanDeliveredMbps }),
			estimateColumn("On the link", "Mbit/s with headers", digits4, func(c analysis.Cell) analysis.Estimate { return c.Intervals.LinkMbps }),
			estimateColumn("Loss", "% on the router", percentOf, func(c analysis.Cell) analysis.Estimate { return c.Intervals.LossRatio }),
			estimateColumn("Retransmitted", "%", percentOf, func(c analysis.Cell) analysis.Estimate { return c.Intervals.RetransmitRatio }),
			estimateColumn("Segments per burst", "", digits3, func(c analysis.Cell) analysis.Estimate { return c.Intervals.SegmentsPerBurst }),
			estimateColumn("Clean segments per burst", "", digits3, func(c analysis.Cell) analysis.Estimate { return c.Intervals.CleanSegmentsPerBurst }),
			estimateColumn("Aggregation", "frames per packet", digits3, func(c analysis.Cell) analysis.Estimate { return c.Intervals.AggregationFactor }),
			estimateColumn("RTT p50", "µs under load", digits3, func(c analysis.Cell) analysis.Estimate { return c.Intervals.RTTP50us }),
		)),
		build("Memory, set-up and clients"+intervals, cells, append(identity(cells),
			estimateColumn("Memory", "PSS, MiB", digits3, func(c analysis.Cell) analysis.Estimate { return c.Intervals.PSSMiB }),
			estimateColumn("Set-up", "s, labs and DUT", digits3, func(c analysis.Cell) analysis.Estimate { return c.BlockFigures.SetupSeconds }),
			estimateColumn("Leases", "s, all clients", digits3, func(c analysis.Cell) analysis.Estimate { return c.BlockFigures.LeaseSeconds }),
			estimateColumn("Log-ins", "s, all clients", digits3, func(c analysis.Cell) analysis.Estimate { return c.BlockFigures.LoginSeconds }),
			estimateColumn("Log-in p50", "ms, one client", digits3, func(c analysis.Cell) analysis.Estimate { return c.BlockFigures.LoginP50ms }),
			estimateColumn("Log-in p99", "ms, one client", digits3, func(c analysis.Cell) analysis.Estimate { return c.BlockFigures.LoginP99ms }),
		)),
		build("Trials: pairs are those accepted; flags with the number of pairs they were seen in", cells, append(identity(cells),
			countColumn("Pairs", func(c analysis.Cell) int { return c.Pairs }),
			countColumn("Blocks", func(c analysis.Cell) int { return c.Blocks }),
			countColumn("Rejected", func(c analysis.Cell) int { return c.Rejected }),
			countColumn("Redone", func(c analysis.Cell) int { return c.Redone }),
			textColumn("Flags", flagText),
		)),
	}
}

func build(caption string, cells []analysis.Cell, cols []gridColumn) grid {
	g := grid{Caption: caption}
	for _, col := range cols {
		g.Head = append(g.Head, col.head)
	}
	for _, c := range cells {
		row := make([]gridCell, 0, len(cols))
		for _, col := range cols {
			row = append(row, col.cell(c))
		}
		g.Rows = append(g.Rows, row)
	}
	return g
}

func flagText(c analysis.Cell) string {
	var parts []string
	for _, f := range c.Flags {
		parts = append(parts, fmt.Sprintf("%s (%d)", f.Text, f.Count))
	}
	if len(parts) == 0 {
		return none
	}
	return strings.Join(parts, ", ")
}
