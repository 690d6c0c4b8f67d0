package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// CSV writes one row for each cell: its dimensions, its counts, and its metrics under the names of summary.json. A
// metric has three columns: NAME for the mean, NAME_lo and NAME_hi. The clean router's names begin with clean_. The
// names of the comparison of the two end in _change. Absent figures are empty.
func CSV(w io.Writer, s analysis.Summary) error {
	rows := make([][]string, 1+len(s.Cells))
	for _, col := range csvColumns(s) {
		rows[0] = append(rows[0], col.Name)
		for i, c := range s.Cells {
			rows[1+i] = append(rows[1+i], result.PrintablePage(col.cell(c).Sort))
		}
	}
	return csv.NewWriter(w).WriteAll(rows)
}

// csvColumns returns the columns of the CSV, in their order. Long: one part for each kind of column.
func csvColumns(s analysis.Summary) (columns []cellColumn) {
	number := func(name string, figure func(analysis.Cell) analysis.Number) {
		columns = append(columns, numberColumn(name, "", "", digits3, figure))
	}
	text := func(name string, value func(analysis.Cell) string) {
		columns = append(columns, textColumn(name, value))
	}
	estimate := func(name string, side figureOf, metric string) {
		number(name, func(c analysis.Cell) analysis.Number { return side(c, metric).Mean })
		number(name+"_lo", func(c analysis.Cell) analysis.Number { return side(c, metric).Lo })
		number(name+"_hi", func(c analysis.Cell) analysis.Number { return side(c, metric).Hi })
	}
	if len(s.Cells) > 0 {
		for _, v := range s.Cells[0].Values() {
			text(string(v.Dimension), func(c analysis.Cell) string { return c.Text(v.Dimension) })
		}
	}
	columns = append(
		columns, pairsColumn("pairs"), blocksColumn("blocks"), rejectedColumn("rejected"), redoneColumn("redone"))
	if s.Until != nil {
		text("ended", func(c analysis.Cell) string { return endedText(s, c.Ended) })
		number("ended_blocks", func(c analysis.Cell) analysis.Number {
			if c.Ended == nil {
				return analysis.Absent()
			}
			return analysis.Number(c.Ended.Blocks)
		})
		number("ended_width_pct", func(c analysis.Cell) analysis.Number {
			if c.Ended == nil {
				return analysis.Absent()
			}
			return c.Ended.WidthPct
		})
	}
	if s.Slowed != nil {
		text("router_slowed", func(analysis.Cell) string { return s.Slowed.String() })
	}
	if s.Noise != nil {
		noise := func(figure func(analysis.Noise) analysis.Number) func(analysis.Cell) analysis.Number {
			return func(c analysis.Cell) analysis.Number {
				if c.Noise == nil {
					return 0
				}
				return figure(*c.Noise)
			}
		}
		number("noise_steal_pct", noise(func(n analysis.Noise) analysis.Number { return n.StealPct }))
		number("noise_others_pct", noise(func(n analysis.Noise) analysis.Number { return n.OthersPct }))
		number("noise_widened_pct", noise(func(n analysis.Noise) analysis.Number { return n.WidenedPct }))
	}
	if s.Mark != "" {
		text("mark", func(analysis.Cell) string { return s.Mark })
	}
	described := map[string]bool{}
	for _, m := range s.Metrics {
		described[m.Name] = true
		estimate(m.Name, analysis.Cell.Device, m.Name)
		if m.Both {
			estimate("clean_"+m.Name, analysis.Cell.Clean, m.Name)
		}
		if m.Against != analysis.NotCompared {
			estimate(m.Name+"_change", analysis.Cell.Change, m.Name)
		}
	}
	for _, name := range keysOf(s, func(c analysis.Cell) analysis.Figures { return c.Metrics }) {
		if !described[name] { // a count that only this device has
			estimate(name, analysis.Cell.Device, name)
		}
	}
	if s.Primary != "" {
		text("verdict", func(c analysis.Cell) string { return c.Verdict })
		text("verdict_note", func(c analysis.Cell) string { return c.VerdictNote })
		number("p_different", func(c analysis.Cell) analysis.Number { return c.PDifferent })
		number("p_equivalent", func(c analysis.Cell) analysis.Number { return c.PEquivalent })
		number("sd_log", func(c analysis.Cell) analysis.Number { return c.SDLog })
		text("blocks_needed", func(c analysis.Cell) string {
			if c.BlocksNeeded == nil {
				return ""
			}
			return fmt.Sprint(*c.BlocksNeeded)
		})
	}
	for _, name := range keysOf(s, func(c analysis.Cell) map[string]int { return c.Counts }) {
		columns = append(columns, counts(name, name, ""))
	}
	for _, name := range keysOf(s, func(c analysis.Cell) map[string]string { return c.Texts }) {
		text(name, func(c analysis.Cell) string { return c.Texts[name] })
	}
	text("flags", func(c analysis.Cell) string { return csvTallies(c.Flags) })
	text("rejects", func(c analysis.Cell) string { return csvTallies(c.Rejects) })
	for _, name := range keysOf(s, func(c analysis.Cell) map[string][]analysis.Tally { return c.Tallies }) {
		text(name, func(c analysis.Cell) string { return csvTallies(c.Tallies[name]) })
	}
	return columns
}

// keysOf returns the keys that a map has in any cell, sorted.
func keysOf[M ~map[string]V, V any](s analysis.Summary, mapOf func(analysis.Cell) M) []string {
	all := map[string]V{}
	for _, c := range s.Cells {
		maps.Copy(all, mapOf(c))
	}
	return slices.Sorted(maps.Keys(all))
}

func csvTallies(list []analysis.Tally) string {
	var parts []string
	for _, t := range list {
		parts = append(parts, fmt.Sprintf("%d × %s", t.Count, t.Text))
	}
	return strings.Join(parts, "; ")
}
