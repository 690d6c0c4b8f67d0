package studies

// PointForm declares a table of one level of a sweep. It has a row for each router and a column for each metric.
type PointForm struct {
	ID, Title, Caption, Reading string
	RowHeading                  string
	Sweep                       *Sweep
	Level                       float64
	Metrics                     []Metric // with headings
}

// points returns the tables of single levels. It leaves out a table if no run has its level.
func (b studyInRuns) points() (out []Table) {
	for _, f := range b.Points {
		x := b.sweeps[f.Sweep].study()
		if !x.hasLevel(f.Level) {
			continue
		}
		t := Table{ID: "table-" + f.ID, Title: f.Title, Caption: f.Caption, Note: x.note(x.Routers, []string{f.Reading}),
			Columns: []Column{{Name: f.RowHeading, Measured: true, Published: true}}}
		for _, m := range f.Metrics {
			t.Columns = append(
				t.Columns, Column{Name: m.Heading, Unit: m.Unit, PublishedUnit: m.PublishedUnit, Measured: true, Published: true})
		}
		for _, r := range x.Routers {
			row := t.row(r.DUT)
			for i, m := range f.Metrics {
				row.Values[i] = Value{
					Here: r.estimate(m, f.Level), Flags: r.flags[f.Level], Published: r.published.estimate(m, f.Level).Mean}
			}
		}
		out = append(out, t)
	}
	return out
}
