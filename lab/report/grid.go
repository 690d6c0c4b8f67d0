package report

import (
	"fmt"

	"github.com/gateweigh/gateweigh/lab/analysis"
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
	return numberCell(analysis.Number(n), func(analysis.Number) string { return grouped(fmt.Sprint(n)) })
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

// field says which figure of summary.json a column shows.
func (col gridColumn) field(name string) gridColumn {
	col.head.Field = name
	return col
}

func textColumn(name string, of func(analysis.Cell) string) gridColumn {
	return gridColumn{gridHead{Name: name, Text: true}, func(c analysis.Cell) gridCell { return textCell(of(c)) }}
}

func numberColumn(name, unit string, print func(analysis.Number) string, of func(analysis.Cell) analysis.Number) gridColumn {
	return gridColumn{gridHead{Name: name, Unit: unit}, func(c analysis.Cell) gridCell { return numberCell(of(c), print) }}
}

func countColumn(name string, of func(analysis.Cell) int) gridColumn {
	return gridColumn{gridHead{Name: name}, func(c analysis.Cell) gridCell { return countCell(of(c)) }}
}

func estimateColumn(name, unit string, print func(analysis.Number) string, of func(analysis.Cell) analysis.Estimate) gridColumn {
	return gridColumn{gridHead{Name: name, Unit: unit}, func(c analysis.Cell) gridCell { return estimateCell(of(c), print) }}
}

// build makes a table of cells.
func build(caption string, cells []analysis.Cell, cols []gridColumn) grid {
	g := grid{Caption: caption, Sortable: true}
	for _, col := range cols {
		g.Head = append(g.Head, col.head)
	}
	for _, c := range cells {
		row := gridRow{Key: markKey(keyOf(c))}
		for _, col := range cols {
			row.Cells = append(row.Cells, col.cell(c))
		}
		g.Rows = append(g.Rows, row)
	}
	return g
}

// cellData is the table behind a chart of cells.
func cellData(cells []analysis.Cell, cols ...gridColumn) grid {
	g := build("", cells, append(identity(cells), cols...))
	g.Sortable = false
	return g
}
