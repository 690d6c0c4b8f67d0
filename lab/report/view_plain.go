package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// plainView shows any measure: a table of all metrics, and a picture of the first one.
var plainView = view{
	mode:    measureOf,
	columns: plainColumns,
	remarks: func(analysis.Summary) []string { return nil },
	reading: func(s analysis.Summary) string {
		var parts []string
		for _, m := range s.Metrics {
			parts = append(parts, strings.TrimSpace(m.Name+" is "+words.Or(m.Text, "as named")+", "+words.Or(m.Unit, "a ratio")))
		}
		return strings.Join(parts, "; ") + "."
	},
	first: plainScreen,
	fill: func(data *pageData, _ *drawing, s analysis.Summary) {
		data.Question = "What was measured"
		var columns []cellColumn
		for _, m := range s.Metrics {
			columns = append(columns, device(m.Name, words.Or(words.Capitalised(m.Text), m.Name), "*"))
			if m.Both {
				columns = append(columns, cleanColumn(m.Name, "Clean router's", "*"))
			}
		}
		data.Results = build("Every cell: means over blocks, their intervals in brackets", s, s.Cells, columns...)
	},
}

func plainColumns(s analysis.Summary) []cellColumn {
	cols := []cellColumn{textColumn("DUT", analysis.Cell.DUT)}
	if len(s.Cells) > 0 {
		for _, v := range s.Cells[0].Without(result.DUT).Values() {
			col := textColumn(
				result.OneLine(s.Dimensions.Named(v.Dimension).TerminalHead()),
				func(c analysis.Cell) string { return c.Text(v.Dimension) }).ifDiffers()
			col.Text = false
			cols = append(cols, col)
		}
	}
	for i, m := range s.Metrics {
		cols = append(cols, estimateColumn(result.OneLine(m.Name), "", digits3,
			func(c analysis.Cell) analysis.Estimate { return c.Device(m.Name) }).dropFirst(len(s.Metrics)-i))
	}
	return cols
}

// plainScreen ranks the devices by the first metric.
func plainScreen(d *drawing) (lead string, r ranking) {
	if len(d.summary.Metrics) == 0 || len(d.summary.Cells) == 0 {
		return "", ranking{}
	}
	m := d.summary.Metrics[0]
	figure, least, sign := words.Or(m.Text, m.Name), "least", analysis.Number(1)
	if m.Better == analysis.More {
		least, sign = "most", -1
	}
	r = ranking{Title: words.Capitalised(words.Joined(", ", figure, m.Unit)), Order: "the " + least + " first",
		ReachText: intervalText(d.summary)}
	cells := slices.Clone(d.summary.Cells)
	rankBy(cells, func(c analysis.Cell) analysis.Number { return sign * c.Device(m.Name).Mean })
	for _, c := range cells {
		row, e := d.ranked(c), c.Device(m.Name)
		row.Figure, row.Value, row.Interval, row.Note = e, digits3(e.Mean), bounds(e, digits3), c.Without(result.DUT).String()
		r.Rows = append(r.Rows, row)
	}
	first := cells[0].Device(m.Name)
	if !first.Mean.Known() {
		return "", r
	}
	lead = fmt.Sprintf(
		"%s %s: %s with %s", least, figure, cells[0].DUT(), words.Joined(" ", withBounds(first, digits3), m.Unit))
	if n := len(maybeFirst(withFigure(cells, deviceOf(m.Name)), deviceOf(m.Name))); n > 1 {
		return fmt.Sprintf(
			"As estimated, the %s; whether it is before %s, this run leaves open.", lead, words.Counted(n-1, "other")), r
	}
	return "The " + lead + ".", r
}
