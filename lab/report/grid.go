package report

import (
	"strconv"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// grid is a table ready to print.
type grid struct {
	Caption  string
	Head     []gridHead
	Rows     []gridRow
	Note     string
	Sortable bool
}

// newGrid is a table without rows. A head is "name|unit"; one that begins with < is aligned left.
func newGrid(caption string, heads ...string) grid {
	g := grid{Caption: caption, Sortable: caption != ""}
	for _, head := range heads {
		name, text := strings.CutPrefix(head, "<")
		name, unit, _ := strings.Cut(name, "|")
		g.Head = append(g.Head, gridHead{Name: name, Unit: unit, Text: text})
	}
	return g
}

func (g *grid) add(key string, cells ...gridCell) { g.Rows = append(g.Rows, gridRow{key, cells}) }

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

// gridCell is one value; Sort is its exact figure and what it is ordered by, Small its interval.
type gridCell struct {
	Main, Small, Sort string
	Text, Header      bool
	Badge             string // class of a verdict
}

func textCell(s string) gridCell { return gridCell{Main: s, Sort: s, Text: true} }

// nameCell heads a row.
func nameCell(name, sort string) gridCell {
	return gridCell{Main: name, Sort: sort, Text: true, Header: true}
}

// routerCell heads a row with the router that it is of.
func routerCell(c result.Cell) gridCell {
	dut := c.Text(result.DUT)
	return nameCell(routerName(dut), dut)
}

func numberCell(n analysis.Number, print format) gridCell {
	return gridCell{Main: print(n), Sort: n.String()}
}

func countCell(n int) gridCell { return gridCell{Main: groupedCount(n), Sort: strconv.Itoa(n)} }

func estimateCell(e analysis.Estimate, print format) gridCell {
	return gridCell{Main: print(e.Mean), Small: bounds(e, print), Sort: e.Mean.String()}
}

// badgeCell is a verdict with what it lacks.
func badgeCell(verdict, note string) gridCell {
	return gridCell{Main: verdict, Small: note, Sort: verdict, Text: true, Badge: verdict}
}

// column is one column of a table whose rows are values of type T, on the page and in the terminal.
type column[T any] struct {
	gridHead
	cell func(T) gridCell
	drop int // in a narrow terminal columns go in this order; 0 stays
	// the terminal shows the column only where its values differ, else the value is in the heading
	onlyIfDiffers bool
	valueText     func(T) string // how the heading says the value; nil: as the column
	// from completes the column from the descriptions of the run's metrics; nil: it is complete.
	from func([]analysis.Metric) column[T]
}

func (c column[T]) dropFirst(order int) column[T] { c.drop = order; return c }

func (c column[T]) ifDiffers() column[T] { c.onlyIfDiffers = true; return c }

// alignLeft aligns the terminal's column left: its intervals differ in length.
func (c column[T]) alignLeft() column[T] { c.Text = true; return c }

func textColumn[T any](name string, textOf func(T) string) column[T] {
	return column[T]{gridHead: gridHead{Name: name, Text: true}, cell: func(v T) gridCell { return textCell(textOf(v)) }}
}

// writtenColumn shows what has no exact figure, aligned right.
func writtenColumn[T any](name string, textOf func(T) string) column[T] {
	return column[T]{gridHead: gridHead{Name: name}, cell: func(v T) gridCell { return gridCell{Main: textOf(v)} }}
}

// numberColumn shows a figure that is no metric; field is its path in summary.json, if it has one.
func numberColumn[T any](name, unit, field string, print format, of func(T) analysis.Number) column[T] {
	return column[T]{gridHead: gridHead{Name: name, Unit: unit, Field: field}, cell: func(v T) gridCell {
		return numberCell(of(v), print)
	}}
}

func countColumn[T any](name, unit, field string, countOf func(T) int) column[T] {
	return column[T]{
		gridHead: gridHead{Name: name, Unit: unit, Field: field}, cell: func(v T) gridCell { return countCell(countOf(v)) }}
}

func estimateColumn[T any](name, unit string, print format, estimateOf func(T) analysis.Estimate) column[T] {
	return column[T]{
		gridHead: gridHead{Name: name, Unit: unit}, cell: func(v T) gridCell { return estimateCell(estimateOf(v), print) }}
}
