package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// cellTable is a table of cells below the results. It is left out where no cell has a figure of the needed metric, or a
// count with that name above 0.
type cellTable struct {
	caption string
	needs   string // name of a metric or count; empty: the table is always shown
	columns []cellColumn
}

// tables makes those tables for which cells have figures.
func tables(s analysis.Summary, all []cellTable) (grids []grid) {
	for _, t := range all {
		hasFigure := func(c analysis.Cell) bool { return c.Counts[t.needs] > 0 || c.Device(t.needs).Mean.Known() }
		if t.needs == "" || slices.ContainsFunc(s.Cells, hasFigure) {
			if g := build(t.caption, s, s.Cells, t.columns...); len(g.Head) > len(dimensionColumns(s, s.Cells)) {
				grids = append(grids, g)
			}
		}
	}
	return grids
}

func pairsColumn(name string) cellColumn {
	return countColumn(name, "", "pairs", func(c analysis.Cell) int { return c.Pairs })
}

func blocksColumn(name string) cellColumn {
	return countColumn(name, "", "blocks", func(c analysis.Cell) int { return c.Blocks })
}

func rejectedColumn(name string) cellColumn {
	return countColumn(name, "", "rejected", func(c analysis.Cell) int { return c.Rejected })
}

func redoneColumn(name string) cellColumn {
	return countColumn(name, "", "redone", func(c analysis.Cell) int { return c.Redone })
}

// textsWithCounts lists texts with their counts: "saturated (3), lossy (1)".
func textsWithCounts(list []analysis.Tally) string {
	var parts []string
	for _, t := range list {
		parts = append(parts, fmt.Sprintf("%s (%d)", t.Text, t.Count))
	}
	return strings.Join(parts, ", ")
}

// cellColumn is a column of a table of cells.
type cellColumn = column[analysis.Cell]

// counts shows one of a cell's counts.
func counts(key, name, unit string) cellColumn {
	return countColumn(name, unit, "counts."+key, func(c analysis.Cell) int { return c.Counts[key] })
}

// device, clean and change show a metric by its name: that of the device, that of the clean router, and the comparison
// of the two. In the note next to the heading, * stands for the metric's unit.
func device(metric, name, note string) cellColumn {
	return metricColumn(metric, "device", name, note, analysis.Cell.Device)
}

func cleanColumn(metric, name, note string) cellColumn {
	return metricColumn(metric, "clean", name, note, analysis.Cell.Clean)
}

func changeColumn(metric, name, note string) cellColumn {
	return metricColumn(metric, "change", name, note, analysis.Cell.Change)
}

// figureOf is one side of a cell's metric: analysis.Cell.Device, Clean or Change.
type figureOf func(c analysis.Cell, metric string) analysis.Estimate

// metricColumn takes the unit and format of its figures from the metric's description in the summary.
func metricColumn(metric, side, name, note string, read figureOf) cellColumn {
	return cellColumn{from: func(metrics []analysis.Metric) cellColumn {
		m, print := analysis.MetricNamed(metrics, metric), digits3
		switch {
		case side == "change" && m.Against == analysis.AsRatio:
			m.Unit, print = "×", ratio
		case strings.HasPrefix(m.Unit, "%"):
			print = percentBare
		case m.Unit == "Mbit/s":
			print = digits4
		case m.Unit == "" && strings.HasPrefix(note, "%"):
			print = percentOf
		case m.Unit == "":
			print = fraction4
		}
		col := estimateColumn(
			name, strings.Replace(note, "*", m.Unit, 1), print,
			func(c analysis.Cell) analysis.Estimate { return read(c, metric) })
		col.Field = "metrics." + metric + "." + side + ".mean"
		return col
	}}
}

// meanColumn shows a metric with its unit in the terminal.
func meanColumn(metrics []analysis.Metric, metric, name string, read figureOf) cellColumn {
	print, ok := formatsByUnit[analysis.MetricNamed(metrics, metric).Unit]
	if !ok {
		print = digits3
	}
	return numberColumn(name, "", "", print, func(c analysis.Cell) analysis.Number { return read(c, metric).Mean })
}

// dimensionColumns are the first columns of every table: the device, texts in which cells differ, and numbers.
func dimensionColumns(s analysis.Summary, cells []analysis.Cell) []cellColumn {
	cols := []cellColumn{{gridHead: gridHead{Name: "DUT", Text: true}, cell: func(c analysis.Cell) gridCell {
		return nameCell(c.DUT(), c.DUT())
	}}}
	var numbers []cellColumn
	for _, v := range everyDimension(cells) {
		d := s.Dimensions.Named(v.Dimension)
		switch {
		case d.NoneShort != "":
			numbers = append(numbers, cellColumn{gridHead: gridHead{Name: d.PageHead(), Unit: d.Unit, Text: true}, cell: func(
				c analysis.Cell) gridCell {
				if !c.HasDimension(d.Name) {
					return gridCell{Main: absentFigure, Text: true}
				}
				return gridCell{Main: valueText(d, c.Cell), Sort: c.Text(d.Name), Text: true}
			}})
		case v.IsNumber:
			numbers = append(numbers, numberColumn(d.PageHead(), d.Unit, "dimensions."+string(d.Name), digits4,
				func(c analysis.Cell) analysis.Number {
					if !c.HasDimension(d.Name) {
						return analysis.Absent()
					}
					return analysis.Number(c.Number(d.Name))
				}))
		case slices.ContainsFunc(cells, func(c analysis.Cell) bool { return c.Text(d.Name) != v.Text }):
			cols = append(cols, textColumn(d.PageHead(), func(c analysis.Cell) string { return c.Text(d.Name) }))
		}
	}
	return append(cols, numbers...)
}

// everyDimension lists all dimensions that any cell has, without the device. Each has the value of the first cell that
// has it.
func everyDimension(cells []analysis.Cell) []result.Value {
	all := result.NewCell()
	for _, c := range cells {
		for _, v := range c.Without(result.DUT).Values() {
			switch {
			case all.HasDimension(v.Dimension):
			case v.IsNumber:
				all = all.With(v.Dimension, v.Number)
			default:
				all = all.With(v.Dimension, v.Text)
			}
		}
	}
	return all.Values()
}

// valueText returns a cell's value of a dimension for a column of the page: a number, or the word for none.
func valueText(d analysis.Dimension, c result.Cell) string {
	v, _ := c.Value(d.Name)
	return d.Column(v, digits4(analysis.Number(v.Number))+d.Behind)
}

// shortText returns a cell's value of a dimension for a column of the terminal.
func shortText(d analysis.Dimension, c result.Cell) string {
	v, _ := c.Value(d.Name)
	return d.Column(v, v.Text)
}

// settingColumns returns the terminal's columns of a measure's dimensions, without some of them. Each is shown where
// cells differ.
func settingColumns(dims analysis.Dimensions, less ...result.Dimension) (cols []cellColumn) {
	for _, d := range dims.Without(append(less, result.DUT)...) {
		text := func(c analysis.Cell) string { return shortText(d, c.Cell) }
		cols = append(cols, textColumn(d.TerminalHead(), text).ifDiffers())
	}
	return cols
}

// anyFigure reports whether a cell has a figure for a column. A device without logins or leases needs no column for
// them.
func anyFigure(cells []analysis.Cell, col cellColumn) bool {
	return slices.ContainsFunc(cells, func(c analysis.Cell) bool { return col.cell(c).Sort != "" })
}

// build makes a table of the cells of a run. Each row begins with the cell's name.
func build(caption string, s analysis.Summary, cells []analysis.Cell, columns ...cellColumn) grid {
	g := grid{Caption: caption, Sortable: caption != ""}
	all := dimensionColumns(s, cells)
	for _, col := range columns {
		if col.from != nil {
			if col = col.from(s.Metrics); !anyFigure(cells, col) {
				continue
			}
		}
		all = append(all, col)
	}
	for _, col := range all {
		g.Head = append(g.Head, col.gridHead)
	}
	for _, c := range cells {
		row := gridRow{Key: c.Cell.String()}
		for _, col := range all {
			row.Cells = append(row.Cells, col.cell(c))
		}
		g.Rows = append(g.Rows, row)
	}
	return g
}
