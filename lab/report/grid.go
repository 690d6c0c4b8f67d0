package report

import (
	"slices"
	"strconv"
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

func countCell(n int) gridCell { return gridCell{Main: number(n), Sort: strconv.Itoa(n)} }

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
	drop int            // in a narrow terminal columns go in this order; 0 stays
	once bool           // the terminal shows the column only where its values differ, else the value is in the heading
	said func(T) string // how the heading says the value; nil: as the column
	// from completes the column from the descriptions of the run's metrics; nil: it is complete.
	from func([]analysis.Metric) column[T]
}

func (c column[T]) dropped(order int) column[T] { c.drop = order; return c }
func (c column[T]) ifDiffers() column[T]        { c.once = true; return c }

// left aligns the terminal's column left: its intervals differ in length.
func (c column[T]) left() column[T] { c.Text = true; return c }

func textColumn[T any](name string, of func(T) string) column[T] {
	return column[T]{gridHead: gridHead{Name: name, Text: true}, cell: func(v T) gridCell { return textCell(of(v)) }}
}

// writtenColumn shows what has no exact figure, aligned right.
func writtenColumn[T any](name string, of func(T) string) column[T] {
	return column[T]{gridHead: gridHead{Name: name}, cell: func(v T) gridCell { return gridCell{Main: of(v)} }}
}

// numberColumn shows a figure that is no metric; field is its path in summary.json, if it has one.
func numberColumn[T any](name, unit, field string, print format, of func(T) analysis.Number) column[T] {
	return column[T]{gridHead: gridHead{Name: name, Unit: unit, Field: field}, cell: func(v T) gridCell {
		return numberCell(of(v), print)
	}}
}

func countColumn[T any](name, unit, field string, of func(T) int) column[T] {
	return column[T]{
		gridHead: gridHead{Name: name, Unit: unit, Field: field}, cell: func(v T) gridCell { return countCell(of(v)) }}
}

func estimateColumn[T any](name, unit string, print format, of func(T) analysis.Estimate) column[T] {
	return column[T]{
		gridHead: gridHead{Name: name, Unit: unit}, cell: func(v T) gridCell { return estimateCell(of(v), print) }}
}

// cellColumn is a column of a table of cells.
type cellColumn = column[analysis.Cell]

// counts shows one of a cell's counts.
func counts(key, name, unit string) cellColumn {
	return countColumn(name, unit, "counts."+key, func(c analysis.Cell) int { return c.Counts[key] })
}

// device, clean and change show a metric by its name: of the device, of the clean router, and of one against
// the other. In the note next to the heading, * is the metric's unit.
func device(metric, name, note string) cellColumn {
	return metricColumn(metric, "device", name, note, analysis.Cell.Device)
}

func clean(metric, name, note string) cellColumn {
	return metricColumn(metric, "clean", name, note, analysis.Cell.Clean)
}

func change(metric, name, note string) cellColumn {
	return metricColumn(metric, "change", name, note, analysis.Cell.Change)
}

// figureOf is one side of a cell's metric: analysis.Cell.Device, Clean or Change.
type figureOf func(c analysis.Cell, metric string) analysis.Estimate

// metricColumn takes unit and form of its figures from the metric's description in the summary.
func metricColumn(metric, side, name, note string, of figureOf) cellColumn {
	return cellColumn{from: func(metrics []analysis.Metric) cellColumn {
		m, print := analysis.MetricNamed(metrics, metric), digits3
		switch {
		case side == "change" && m.Against == analysis.AsRatio:
			m.Unit, print = "×", ratio
		case strings.HasPrefix(m.Unit, "%"):
			print = bare
		case m.Unit == "Mbit/s":
			print = digits4
		case m.Unit == "" && strings.HasPrefix(note, "%"):
			print = percentOf
		case m.Unit == "":
			print = fraction4
		}
		col := estimateColumn(
			name, strings.Replace(note, "*", m.Unit, 1), print, func(c analysis.Cell) analysis.Estimate { return of(c, metric) })
		col.Field = "metrics." + metric + "." + side + ".mean"
		return col
	}}
}

// meanColumn is a metric with its unit, as the terminal shows it.
func meanColumn(metrics []analysis.Metric, metric, name string, of figureOf) cellColumn {
	print, ok := withUnits[analysis.MetricNamed(metrics, metric).Unit]
	if !ok {
		print = digits3
	}
	return numberColumn(name, "", "", print, func(c analysis.Cell) analysis.Number { return of(c, metric).Mean })
}

// dimensionColumns name a cell in every table: its device, texts in which cells differ, and numbers.
func dimensionColumns(cells []analysis.Cell) []cellColumn {
	cols := []cellColumn{{gridHead: gridHead{Name: "DUT", Text: true}, cell: func(c analysis.Cell) gridCell {
		return nameCell(c.DUT(), c.DUT())
	}}}
	var numbers []cellColumn
	for _, v := range everyDimension(cells) {
		d, head := v.Dimension, dimensionHeads[v.Dimension]
		name := words.Or(head.name, words.Capitalised(strings.ReplaceAll(string(d), "_", " ")))
		switch {
		case head.text != nil:
			numbers = append(numbers, cellColumn{gridHead: gridHead{Name: name, Unit: head.unit, Text: true}, cell: func(
				c analysis.Cell) gridCell {
				if !c.Has(d) {
					return gridCell{Main: none, Text: true}
				}
				return gridCell{Main: head.text(c.Number(d)), Sort: c.Text(d), Text: true}
			}})
		case v.IsNumber:
			if head.print == nil {
				head.print = digits4
			}
			numbers = append(numbers, numberColumn(name, head.unit, "dimensions."+string(d), head.print,
				func(c analysis.Cell) analysis.Number {
					if !c.Has(d) {
						return analysis.Absent()
					}
					return analysis.Number(c.Number(d))
				}))
		case slices.ContainsFunc(cells, func(c analysis.Cell) bool { return c.Text(d) != v.Text }):
			cols = append(cols, textColumn(name, func(c analysis.Cell) string { return c.Text(d) }))
		}
	}
	return append(cols, numbers...)
}

// everyDimension lists all dimensions but the device that cells have, each with the value of the
// first cell that has it. Cells need not have the same.
func everyDimension(cells []analysis.Cell) []result.Value {
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
	print      format
	text       func(float64) string // replaces the number
}{
	result.Clients: {
		name: "Clients", print: func(n analysis.Number) string { return words.Or(words.Grouped(n.String()), none) }},
	result.OfferedMbps: {name: "Offered", unit: "Mbit/s"},
	result.LinkMbps:    {name: "Link", unit: "Mbit/s", text: zeroAs("no limit")},
	result.LoginRate:   {name: "They come", text: arrival},
	result.RouterSpeed: {name: "Router speed", unit: "of its CPU"},

	result.CPUs:          {name: "CPUs"},
	result.BufferKiB:     {name: "Buffer", unit: "KiB", text: zeroAs("own")},
	result.SnapLength:    {name: "Snap length", unit: "bytes", text: zeroAs("all")},
	result.BackgroundPct: {name: "Other work", unit: "% of a CPU"},

	result.BackgroundKind: {name: "Its kind"},
}

// zeroAs writes a number, and 0, which leaves it to the program, as a word.
func zeroAs(word string) func(float64) string {
	return func(n float64) string {
		if n == 0 {
			return word
		}
		return digits4(analysis.Number(n))
	}
}

// anyFigure reports whether a column of a metric has a figure of any cell: a device without logins or leases needs no
// column of these.
func anyFigure(cells []analysis.Cell, col cellColumn) bool {
	return slices.ContainsFunc(cells, func(c analysis.Cell) bool { return col.cell(c).Sort != "" })
}

// build makes a table of cells of a run, each under its name.
func build(caption string, s analysis.Summary, cells []analysis.Cell, columns ...cellColumn) grid {
	g := grid{Caption: caption, Sortable: caption != ""}
	all := dimensionColumns(cells)
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
