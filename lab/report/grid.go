package report

import (
	"strconv"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// grid is a table of texts, ready for the page.
type grid struct {
	Caption  string
	Head     []gridHead
	Rows     []gridRow
	Note     string
	Sortable bool
}

// newGrid returns a table without rows. A head is "name|unit". A head that begins with < is aligned left.
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

// gridHead is the heading of a column. Field is the name of its figure in summary.json.
type gridHead struct {
	Name, Unit string
	Text       bool // aligned left
	Field      string
}

// gridRow is one row. Key names its cell or device, for programs that read the page.
type gridRow struct {
	Key   string
	Cells []gridCell
}

// gridCell is one value. Sort is its exact figure, by which the rows are sorted. Small is its interval.
type gridCell struct {
	Main, Small, Sort string
	Text, Header      bool
	Badge             string // CSS class of a verdict
}

func textCell(s string) gridCell { return gridCell{Main: s, Sort: s, Text: true} }

// nameCell is the first cell of a row, with a name.
func nameCell(name, sort string) gridCell {
	return gridCell{Main: name, Sort: sort, Text: true, Header: true}
}

// routerCell is the first cell of a row, with a router's name.
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

// badgeCell shows a verdict with its note.
func badgeCell(verdict, note string) gridCell {
	return gridCell{Main: verdict, Small: note, Sort: verdict, Text: true, Badge: verdict}
}

// column is one column of a table with rows of type T, on the page and in the terminal.
type column[T any] struct {
	gridHead
	cell func(T) gridCell
	drop int // a narrow terminal leaves out columns in this order; 0: never
	// the terminal shows the column only where its values differ; otherwise the value is in the heading
	onlyIfDiffers bool
	valueText     func(T) string // value as the heading writes it; nil: as in the column
	// from completes the column with the descriptions of the run's metrics. nil: it is complete.
	from func([]analysis.Metric) column[T]
}

func (c column[T]) dropFirst(order int) column[T] { c.drop = order; return c }

func (c column[T]) ifDiffers() column[T] { c.onlyIfDiffers = true; return c }

// alignLeft aligns the terminal's column left, because its intervals differ in length.
func (c column[T]) alignLeft() column[T] { c.Text = true; return c }

func textColumn[T any](name string, textOf func(T) string) column[T] {
	return column[T]{gridHead: gridHead{Name: name, Text: true}, cell: func(v T) gridCell { return textCell(textOf(v)) }}
}

// writtenColumn shows texts without exact figures, aligned right.
func writtenColumn[T any](name string, textOf func(T) string) column[T] {
	return column[T]{gridHead: gridHead{Name: name}, cell: func(v T) gridCell { return gridCell{Main: textOf(v)} }}
}

// numberColumn shows a figure that is not a metric. field is its path in summary.json, if it has one.
func numberColumn[T any](name, unit, field string, print format, figure func(T) analysis.Number) column[T] {
	return column[T]{gridHead: gridHead{Name: name, Unit: unit, Field: field}, cell: func(v T) gridCell {
		return numberCell(figure(v), print)
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
