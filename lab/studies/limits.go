package studies

import (
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
)

// hasMetric reports whether the course has a metric at any level.
func (c measuredCourse) hasMetric(m Metric) bool {
	return slices.ContainsFunc(c.levels, func(level float64) bool { return c.estimate(m, level).Mean.Known() })
}

// placeShare says whether a share of frames at a level is in the range in which nothing is lost (inside).
func (c measuredCourse) placeShare(m Metric, level float64) boundSide {
	return place(c.estimate(m, level), m.Least, m.Most)
}

// limit returns the highest level up to which the mean of a share of frames shows no loss. all is true if the course
// has no level above it. The limit is absent if frames are lost at the lowest level, or if nothing is known.
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

// limits returns the tables of the highest levels without loss. It leaves out a table without devices.
func (b studyInRuns) limits() (out []Table) {
	for _, f := range b.Limits {
		t := Table{ID: "table-" + f.ID, Title: f.Title, Caption: f.Caption, Note: f.Reading,
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

// row returns the row with a name. It adds the row if there is none.
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
