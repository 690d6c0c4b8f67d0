package studies

import (
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
)

// hasMetric reports whether the course has a metric at any level.
func (c measuredCourse) hasMetric(m Metric) bool {
	return slices.ContainsFunc(c.levels, func(level float64) bool { return c.estimate(m, level).Mean.Known() })
}

// placeShare places a share of frames at a level: inside where nothing is lost.
func (c measuredCourse) placeShare(m Metric, level float64) boundSide {
	return place(c.estimate(m, level), m.Least, m.Most)
}

// limit is the highest level up to which, by its means, a share of frames says that nothing is lost. all: the
// measuredCourse has no level above it. Absent where something is lost at the lowest level, or nothing is known.
func (c measuredCourse) limit(m Metric) (limit analysis.Number, all bool) {
	limit = analysis.Absent()
	for _, level := range c.levels {
		switch e := float64(c.estimate(m, level).Mean); {
		case e >= m.Least && e <= m.Most:
			limit = analysis.Number(level)
		case analysis.Number(e).Known():
			return limit, false
		}
	}
	return limit, limit.Known()
}

// limits has the tables of the highest levels without loss. A table without any device is left out.
func (b studyInRuns) limits() (out []Table) {
	for _, f := range b.Limits {
		t := Table{ID: "table-" + f.ID, Title: f.Title, Caption: f.Caption, Note: f.Said,
			Columns: []Column{{Name: f.RowHeading, Measured: true}}}
		for _, c := range f.Columns {
			unit := c.Sweep.along().Unit
			t.Columns = append(
				t.Columns, Column{Name: c.Name, Unit: unit, PublishedUnit: unit, Measured: true, Published: c.Sweep.Systems != nil})
		}
		for i, c := range f.Columns {
			for _, name := range c.Sweep.Systems {
				t.row(name)
			}
			for _, r := range b.sweeps[c.Sweep].study().Routers {
				for _, s := range r.systems {
					t.row(s.name).Values[i].Published, _ = s.limit(c.Metric)
				}
			}
		}
		systems := len(t.Rows)
		for i, c := range f.Columns {
			for _, r := range b.sweeps[c.Sweep].study().Routers {
				if !r.measured() || !r.hasMetric(c.Metric) {
					continue
				}
				limit, all := r.limit(c.Metric)
				v := &t.row(r.DUT).Values[i]
				if v.Here = exactEstimate(limit); all {
					v.Flags = []string{FlagAtLeast}
				}
			}
		}
		if len(t.Rows) > systems {
			out = append(out, t)
		}
	}
	return out
}

// row is the row of a name, which it adds where there is none.
func (t *Table) row(name string) *Row {
	i := slices.IndexFunc(t.Rows, func(r Row) bool { return r.Name == name })
	if i < 0 {
		i = len(t.Rows)
		t.Rows = append(t.Rows, Row{Level: analysis.Absent(), Name: name})
		for range t.Columns[1:] {
			t.Rows[i].Values = append(t.Rows[i].Values, Value{Here: analysis.Unknown(), Published: analysis.Absent()})
		}
	}
	return &t.Rows[i]
}
