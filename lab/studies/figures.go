package studies

import (
	"fmt"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/words"
)

// figures draws the figures of the sweeps that the runs have. Each shows one metric in up to four panels. Values here
// and in the study have different units, so each has a panel. Two further panels show both without units. One has the
// ratio to the first scenario, in which most of the difference between two machines cancels. The other has each series
// relative to its own value at one level, in which all of that difference cancels.
func (b studyInRuns) figures() []Figure {
	var out []Figure
	for _, f := range b.Figures {
		x, none := b.sweeps[f.Sweep].study(), analysis.Absent()
		if !x.measured() {
			continue
		}
		if f.Course != "" {
			out = append(out, x.course(f, b.Units(x.CPUs)))
			continue
		}
		if f.Stack != nil {
			out = append(out, x.stack(f, b.Units(x.CPUs)))
			continue
		}
		fig := Figure{
			ID: "figure-" + f.Number, Title: "Figure " + f.Number, Caption: f.Caption, Fold: f.Fold,
			XLabel: words.Joined(", ", x.along().Heading, x.along().Unit), Note: b.Units(x.CPUs),
			Panels: []Panel{
				{"Measured here", f.YLabel + ", " + f.Metric.Unit, false, none, x.series(f.Metric, false)},
				{"As published", f.PublishedYLabel + ", " + f.Metric.PublishedUnit, false, none, x.series(f.Metric, true)},
			},
		}
		if f.Over != nil {
			both := append(x.series(*f.Over, false), x.series(*f.Over, true)...)
			fig.Panels = append(fig.Panels, Panel{"Over " + b.Scenarios[0].Name, f.OverYLabel, true, 1, both})
			fig.Note += f.OverNote
		}
		if base, ok := x.base(); ok {
			fig.Panels = append(fig.Panels, x.relativePanel(f, base))
			fig.Note += fmt.Sprintf(" Courses are relative to %s, the highest level at which every router drawn there "+
				"carries the load; their intervals are those of the level, without that of the reference.", x.levelText(base))
		} else {
			fig.Note += " No level above the lowest was carried by every router, so the courses are not compared."
		}
		out = append(out, fig)
	}
	return out
}

// stack draws one panel for each metric, with the runs' figures and the published single figures.
func (x repetition) stack(f FigureForm, units string) Figure {
	drawn := x
	if f.Device != "" {
		drawn.Routers = []router{x.router(f.Device)}
	}
	if f.Only != nil {
		drawn.Routers = slices.DeleteFunc(
			slices.Clone(x.Routers), func(r router) bool { return !slices.Contains(f.Only, r.DUT) })
	}
	fig := Figure{ID: "figure-" + f.Number, Title: "Figure " + f.Number, Caption: f.Caption, Fold: f.Fold, Stacked: true,
		LogX:   f.LogX,
		XLabel: words.Joined(", ", f.XLabel, x.along().Unit), Note: words.Joined(" ", units, f.Note)}
	for _, p := range f.Stack {
		fitting := drawn
		if p.Needs != "" {
			fitting.Routers = slices.DeleteFunc(
				slices.Clone(drawn.Routers), func(r router) bool { return r.measured() && !r.cell.HasDimension(p.Needs) })
		}
		series := fitting.series(p.Metric, false)
		for _, r := range fitting.Routers {
			if line := seriesOf(Series{Name: r.Name + ", published", DUT: r.DUT, Published: true}, r.published,
				r.published.levels, p.Metric); line.Points != nil {
				series = append(series, line)
			}
			for _, s := range r.systems {
				if line := seriesOf(Series{Name: s.name + ", published", DUT: s.name, Published: true}, s.measuredCourse, s.levels,
					p.Metric); line.Points != nil {
					series = append(series, line)
				}
			}
		}
		fig.Panels = append(fig.Panels, Panel{p.Title, p.YLabel + ", " + p.Metric.Unit, false, analysis.Absent(), series})
	}
	return fig
}

// seriesOf adds the points of a course's metric at levels to a series.
func seriesOf(s Series, c measuredCourse, levels []float64, m Metric) Series {
	for _, level := range levels {
		if e := c.estimate(m, level); e.Mean.Known() {
			s.Points = append(s.Points, Point{X: analysis.Number(level), Y: e, Flags: c.flags[level]})
		}
	}
	return s
}

// series returns one series for each router with the metric, measured here or published.
func (x repetition) series(m Metric, published bool) []Series {
	var out []Series
	for _, r := range x.Routers {
		s, c := Series{Name: r.Name, DUT: r.DUT, Run: r.Run}, r.measuredCourse
		if published {
			s, c = Series{Name: r.Name + ", published", DUT: r.DUT, Published: true}, r.published
		} else if r.StandsIn != "" {
			s.Name = r.DUT
		}
		if s = seriesOf(s, c, x.Levels, m); s.Points != nil {
			out = append(out, s)
		}
	}
	return out
}

// relativePanel draws all series in one panel, each relative to its own value at one level.
func (x repetition) relativePanel(f FigureForm, base float64) Panel {
	shaped := x
	shaped.Routers = slices.DeleteFunc(slices.Clone(x.Routers), func(r router) bool { return !x.rises(r) })
	atBase := x.atAll(base)
	p := Panel{"Over its own value " + atBase, f.Metric.Noun + ", × that " + atBase, false, analysis.Absent(),
		append(shaped.series(f.Metric, false), x.series(f.Metric, true)...)}
	for _, s := range p.Series {
		baseValue := analysis.Absent()
		if i := slices.IndexFunc(s.Points, func(p Point) bool { return float64(p.X) == base }); i >= 0 {
			baseValue = s.Points[i].Y.Mean
		}
		for i := range s.Points {
			s.Points[i].Y = mapEstimate(s.Points[i].Y, func(n analysis.Number) analysis.Number { return n / baseValue })
		}
	}
	if f.Proportional != "" {
		s := Series{Name: f.Proportional, Guide: true}
		for _, level := range x.Levels {
			s.Points = append(s.Points, Point{X: analysis.Number(level), Y: exactEstimate(analysis.Number(level / base))})
		}
		p.Series = append(p.Series, s)
	}
	return p
}

// rises reports whether a router carries the load at any level above the lowest.
func (x repetition) rises(r router) bool { return slices.ContainsFunc(x.Levels[1:], r.carries) }

// base returns the reference level of the relative panel. It is the highest level, above the lowest, at which all those
// routers carry the load that carry it at any such level.
func (x repetition) base() (level float64, ok bool) {
	for _, level := range slices.Backward(x.Levels[1:]) {
		short := func(r router) bool { return x.rises(r) && !r.carries(level) }
		if slices.ContainsFunc(x.Routers, x.rises) && !slices.ContainsFunc(x.Routers, short) {
			return level, true
		}
	}
	return 0, false
}
