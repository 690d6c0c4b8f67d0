package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/measure/logins"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// view is how the runs of one measure are shown. Everything else of a report is the
// same for all measures.
type view struct {
	how     func(analysis.Summary) string // beside the date: "duet"
	columns func(analysis.Summary) []column[analysis.Cell]
	remarks func(analysis.Summary) []string // lines below the terminal's table
	reading func(analysis.Summary) string   // how to read it
	// first is the picture on the page's first screen and the sentence above it.
	first func(*drawing) (lead string, r ranking)
	// fill adds the sections of the page that only this measure has.
	fill func(*pageData, *drawing, analysis.Summary)
}

// views is the table of measures that have a view of their own; others are shown by
// their list of metrics.
var views = map[string]view{
	cost.Name:   costView,
	logins.Name: loginsView,
}

func viewOf(s analysis.Summary) view {
	if v, ok := views[s.Measure]; ok {
		return v
	}
	return plainView
}

// plainView shows any measure: a table of all metrics, the first of them as the picture.
var plainView = view{
	how: func(s analysis.Summary) string { return s.Measure },
	columns: func(s analysis.Summary) []column[analysis.Cell] {
		cols := []column[analysis.Cell]{{head: "DUT", left: true, value: func(c analysis.Cell) string { return result.OneLine(c.DUT()) }}}
		if len(s.Cells) > 0 {
			for _, v := range s.Cells[0].Without(result.DUT).Values() {
				cols = append(cols, column[analysis.Cell]{head: result.OneLine(string(v.Dimension)), once: true, value: func(c analysis.Cell) string { return result.OneLine(c.Text(v.Dimension)) }})
			}
		}
		for i, m := range s.Metrics {
			cols = append(cols, column[analysis.Cell]{head: result.OneLine(m.Name), drop: len(s.Metrics) - i, value: func(c analysis.Cell) string {
				return strings.TrimSpace(digits3(c.Device(m.Name).Mean) + " " + bounds(c.Device(m.Name), digits3))
			}})
		}
		return cols
	},
	remarks: func(analysis.Summary) []string { return nil },
	reading: func(s analysis.Summary) string {
		var parts []string
		for _, m := range s.Metrics {
			parts = append(parts, strings.TrimSpace(m.Name+" is "+words.Or(m.Text, "as named")+", "+words.Or(m.Unit, "a ratio")))
		}
		return strings.Join(parts, "; ") + "."
	},
	first: func(d *drawing) (string, ranking) {
		if len(d.summary.Metrics) == 0 || len(d.summary.Cells) == 0 {
			return "", ranking{}
		}
		m := d.summary.Metrics[0]
		what := words.Or(m.Text, m.Name)
		r := ranking{Title: words.Capitalised(words.Joined(", ", what, m.Unit)), Order: "the least first", ReachText: intervalText(d.summary)}
		least, sign := "least", analysis.Number(1)
		if m.Better == analysis.More {
			r.Order, least, sign = "the most first", "most", -1
		}
		cells := slices.Clone(d.summary.Cells)
		rank(cells, func(c analysis.Cell) analysis.Number { return sign * c.Device(m.Name).Mean })
		for _, c := range cells {
			e := c.Device(m.Name)
			r.Rows = append(r.Rows, ranked{DUT: c.DUT(), Key: markKey(c.Cell), Style: d.style(c.DUT()).Class(), At: e,
				Value: digits3(e.Mean), Interval: bounds(e, digits3), Note: c.Without(result.DUT).String()})
		}
		first := cells[0].Device(m.Name)
		if !first.Mean.Known() {
			return "", r
		}
		return fmt.Sprintf("The %s %s: %s with %s.", least, what, cells[0].DUT(), words.Joined(" ", digits3(first.Mean), bounds(first, digits3), m.Unit)), r
	},
	fill: func(data *pageData, _ *drawing, s analysis.Summary) {
		data.Question = "What was measured"
		var columns []gridColumn
		for _, m := range s.Metrics {
			columns = append(columns, device(m.Name, words.Or(words.Capitalised(m.Text), m.Name), m.Unit, digits3))
			if m.Both {
				columns = append(columns, clean(m.Name, "Clean router's", m.Unit, digits3))
			}
		}
		data.Results = build("Every cell: means over blocks, their intervals in brackets", s.Cells, columns...)
	},
}
