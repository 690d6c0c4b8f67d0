package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// grid is a table ready to print.
type grid struct {
	Caption  string
	Head     []gridHead
	Rows     []gridRow
	Note     string
	Sortable bool
}

// gridHead heads a column; Field is the name of its figure in summary.json.
type gridHead struct {
	Name, Unit string
	Text       bool // aligned left
	Field      string
}

// gridRow is one row; Key names what it is of, for programs that read the page.
type gridRow struct {
	Key   string
	Cells []gridCell
}

// gridCell is one value; Sort is its exact figure and what it is ordered by,
// Small its interval.
type gridCell struct {
	Main, Small, Sort string
	Text, Header      bool
	Badge             string // class of a verdict
}

func textCell(s string) gridCell { return gridCell{Main: s, Sort: s, Text: true} }

func numberCell(n analysis.Number, print func(analysis.Number) string) gridCell {
	return gridCell{Main: print(n), Sort: n.String()}
}

func countCell(n int) gridCell {
	return numberCell(analysis.Number(n), func(analysis.Number) string { return words.Grouped(fmt.Sprint(n)) })
}

func estimateCell(e analysis.Estimate, print func(analysis.Number) string) gridCell {
	return gridCell{Main: print(e.Mean), Small: bounds(e, print), Sort: e.Mean.String()}
}

// badgeCell is a verdict with what it lacks.
func badgeCell(verdict, note string) gridCell {
	return gridCell{Main: verdict, Small: note, Sort: verdict, Text: true, Badge: verdict}
}

// gridColumn makes the cells of one column.
type gridColumn struct {
	head gridHead
	cell func(analysis.Cell) gridCell
}

func textColumn(name string, of func(analysis.Cell) string) gridColumn {
	return gridColumn{gridHead{Name: name, Text: true}, func(c analysis.Cell) gridCell { return textCell(of(c)) }}
}

// numberColumn shows a figure that is no metric; field is its path in a cell of summary.json.
func numberColumn(name, unit, field string, print func(analysis.Number) string, of func(analysis.Cell) analysis.Number) gridColumn {
	return gridColumn{gridHead{Name: name, Unit: unit, Field: field}, func(c analysis.Cell) gridCell { return numberCell(of(c), print) }}
}

func countColumn(name, unit, field string, of func(analysis.Cell) int) gridColumn {
	return gridColumn{gridHead{Name: name, Unit: unit, Field: field}, func(c analysis.Cell) gridCell { return countCell(of(c)) }}
}

// counts shows one of a cell's counts.
func counts(key, name, unit string) gridColumn {
	return countColumn(name, unit, "counts."+key, func(c analysis.Cell) int { return c.Counts[key] })
}

// device, clean and change show a metric by its name: of the device, of the clean
// router, and of one against the other.
func device(metric, name, unit string, print func(analysis.Number) string) gridColumn {
	return metricColumn(metric+".device", name, unit, print, func(c analysis.Cell) analysis.Estimate { return c.Device(metric) })
}

func clean(metric, name, unit string, print func(analysis.Number) string) gridColumn {
	return metricColumn(metric+".clean", name, unit, print, func(c analysis.Cell) analysis.Estimate { return c.Clean(metric) })
}

func change(metric, name, unit string, print func(analysis.Number) string) gridColumn {
	return metricColumn(metric+".change", name, unit, print, func(c analysis.Cell) analysis.Estimate { return c.Change(metric) })
}

func metricColumn(path, name, unit string, print func(analysis.Number) string, of func(analysis.Cell) analysis.Estimate) gridColumn {
	return gridColumn{gridHead{Name: name, Unit: unit, Field: "metrics." + path + ".mean"}, func(c analysis.Cell) gridCell { return estimateCell(of(c), print) }}
}

// dimensionColumns name a cell in every table: its device, texts in which cells
// differ, and numbers.
func dimensionColumns(cells []analysis.Cell) []gridColumn {
	cols := []gridColumn{{gridHead{Name: "DUT", Text: true}, func(c analysis.Cell) gridCell {
		return gridCell{Main: c.DUT(), Sort: c.DUT(), Text: true, Header: true}
	}}}
	var numbers []gridColumn
	for _, v := range dimensionsOf(cells) {
		d := v.Dimension
		varies := slices.ContainsFunc(cells, func(c analysis.Cell) bool { return c.Text(d) != v.Text })
		head := dimensionHeads[d]
		switch {
		case v.IsNumber && head.text == nil:
			numbers = append(numbers, numberColumn(words.Or(head.name, words.Capitalised(strings.ReplaceAll(string(d), "_", " "))), head.unit, "dimensions."+string(d),
				numberOr(head.print), func(c analysis.Cell) analysis.Number { return numberOf(c, d) }))
		case v.IsNumber:
			numbers = append(numbers, gridColumn{gridHead{Name: head.name, Text: true}, func(c analysis.Cell) gridCell {
				if !c.Has(d) {
					return textCell(none)
				}
				return gridCell{Main: head.text(c.Number(d)), Sort: numberOf(c, d).String(), Text: true}
			}})
		case varies:
			cols = append(cols, textColumn(words.Or(head.name, words.Capitalised(string(d))), func(c analysis.Cell) string { return c.Text(d) }))
		}
	}
	return append(cols, numbers...)
}

// numberOf is a dimension of a cell, absent where the cell lacks it.
func numberOf(c analysis.Cell, d result.Dimension) analysis.Number {
	if v, ok := c.Value(d); ok {
		return analysis.Number(v.Number)
	}
	return analysis.Absent()
}

// dimensionsOf are all dimensions but the device that cells have, each with the value of the
// first cell that has it. Cells need not have the same.
func dimensionsOf(cells []analysis.Cell) []result.Value {
	all := result.NewCell()
	for _, c := range cells {
		for _, v := range c.Without(result.DUT).Values() {
			switch {
			case all.Has(v.Dimension):
			case v.IsNumber:
				all = all.With(v.Dimension, v.Number)
			default:
				all = all.With(v.Dimension, v.Text)
			}
		}
	}
	return all.Values()
}

// dimensionHeads are the headings of dimensions; others stand under their names.
var dimensionHeads = map[result.Dimension]struct {
	name, unit string
	print      func(analysis.Number) string
	text       func(float64) string // in place of the number
}{
	result.Clients:     {name: "Clients", print: func(n analysis.Number) string { return words.Or(words.Grouped(n.String()), none) }},
	result.OfferedMbps: {name: "Offered", unit: "Mbit/s", print: digits4},
	result.LoginRate:   {name: "They come", text: arrival},
}

func numberOr(print func(analysis.Number) string) func(analysis.Number) string {
	if print != nil {
		return print
	}
	return digits4
}

// build makes a table of cells, each under its name.
func build(caption string, cells []analysis.Cell, columns ...gridColumn) grid {
	g := grid{Caption: caption, Sortable: true}
	columns = append(dimensionColumns(cells), columns...)
	for _, col := range columns {
		g.Head = append(g.Head, col.head)
	}
	for _, c := range cells {
		row := gridRow{Key: markKey(c.Cell)}
		for _, col := range columns {
			row.Cells = append(row.Cells, col.cell(c))
		}
		g.Rows = append(g.Rows, row)
	}
	return g
}

// cellData is the table behind a chart of cells.
func cellData(cells []analysis.Cell, columns ...gridColumn) grid {
	g := build("", cells, columns...)
	g.Sortable = false
	return g
}
