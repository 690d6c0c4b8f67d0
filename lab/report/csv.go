package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
)

// CSV writes one row a cell: its dimensions, its counts, and its metrics under the
// names of summary.json. A metric takes three columns: its name for the mean,
// NAME_lo and NAME_hi; the clean router's begin with clean_, and what compares the
// two ends in _change. Absent figures are empty.
func CSV(w io.Writer, s analysis.Summary) error {
	out := csv.NewWriter(w)
	columns := csvColumns(s)
	var head []string
	for _, col := range columns {
		head = append(head, col.name)
	}
	if err := out.Write(head); err != nil {
		return err
	}
	for _, c := range s.Cells {
		var row []string
		for _, col := range columns {
			row = append(row, col.value(c))
		}
		if err := out.Write(row); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

type csvColumn struct {
	name  string
	value func(analysis.Cell) string
}

func csvColumns(s analysis.Summary) []csvColumn {
	var columns []csvColumn
	add := func(name string, value func(analysis.Cell) string) { columns = append(columns, csvColumn{name, value}) }
	estimate := func(name string, of func(analysis.Cell) analysis.Estimate) {
		add(name, func(c analysis.Cell) string { return of(c).Mean.String() })
		add(name+"_lo", func(c analysis.Cell) string { return of(c).Lo.String() })
		add(name+"_hi", func(c analysis.Cell) string { return of(c).Hi.String() })
	}
	if len(s.Cells) > 0 {
		for _, v := range s.Cells[0].Values() {
			add(string(v.Dimension), func(c analysis.Cell) string { return c.Text(v.Dimension) })
		}
	}
	for _, count := range []struct {
		name string
		of   func(analysis.Cell) int
	}{
		{"pairs", func(c analysis.Cell) int { return c.Pairs }}, {"blocks", func(c analysis.Cell) int { return c.Blocks }},
		{"rejected", func(c analysis.Cell) int { return c.Rejected }}, {"redone", func(c analysis.Cell) int { return c.Redone }},
	} {
		add(count.name, func(c analysis.Cell) string { return fmt.Sprint(count.of(c)) })
	}
	described := map[string]bool{}
	for _, m := range s.Metrics {
		described[m.Name] = true
		estimate(m.Name, func(c analysis.Cell) analysis.Estimate { return c.Device(m.Name) })
		if m.Both {
			estimate("clean_"+m.Name, func(c analysis.Cell) analysis.Estimate { return c.Clean(m.Name) })
		}
		if m.Against != analysis.NotCompared {
			estimate(m.Name+"_change", func(c analysis.Cell) analysis.Estimate { return c.Change(m.Name) })
		}
	}
	for _, name := range keysOf(s.Cells, func(c analysis.Cell) []string { return slices.Collect(maps.Keys(c.Metrics)) }) {
		if !described[name] { // a device's own number
			estimate(name, func(c analysis.Cell) analysis.Estimate { return c.Device(name) })
		}
	}
	if s.Primary != "" {
		add("verdict", func(c analysis.Cell) string { return c.Verdict })
		add("verdict_note", func(c analysis.Cell) string { return c.VerdictNote })
		add("p_different", func(c analysis.Cell) string { return c.PDifferent.String() })
		add("p_equivalent", func(c analysis.Cell) string { return c.PEquivalent.String() })
		add("sd_log", func(c analysis.Cell) string { return c.SDLog.String() })
		add("blocks_needed", func(c analysis.Cell) string {
			if c.BlocksNeeded == nil {
				return ""
			}
			return fmt.Sprint(*c.BlocksNeeded)
		})
	}
	for _, name := range keysOf(s.Cells, func(c analysis.Cell) []string { return slices.Collect(maps.Keys(c.Counts)) }) {
		add(name, func(c analysis.Cell) string { return fmt.Sprint(c.Counts[name]) })
	}
	for _, name := range keysOf(s.Cells, func(c analysis.Cell) []string { return slices.Collect(maps.Keys(c.Texts)) }) {
		add(name, func(c analysis.Cell) string { return c.Texts[name] })
	}
	add("flags", func(c analysis.Cell) string { return tallies(c.Flags) })
	add("rejects", func(c analysis.Cell) string { return tallies(c.Rejects) })
	for _, name := range keysOf(s.Cells, func(c analysis.Cell) []string { return slices.Collect(maps.Keys(c.Tallies)) }) {
		add(name, func(c analysis.Cell) string { return tallies(c.Tallies[name]) })
	}
	return columns
}

// keysOf are the names that any cell has, in their order.
func keysOf(cells []analysis.Cell, of func(analysis.Cell) []string) []string {
	var all []string
	for _, c := range cells {
		all = append(all, of(c)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func tallies(list []analysis.Tally) string {
	var parts []string
	for _, t := range list {
		parts = append(parts, fmt.Sprintf("%d × %s", t.Count, t.Text))
	}
	return strings.Join(parts, "; ")
}
