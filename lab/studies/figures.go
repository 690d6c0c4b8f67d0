package studies

import (
	"fmt"

	"github.com/gateweigh/gateweigh/lab/analysis"
)

func figures(s study1) []Figure {
	var out []Figure
	for i, q := range []quantity{normalised, sampled} {
		for _, x := range []experiment{s.load, s.clients} {
			if x.measured() {
				out = append(out, x.figure(x.Figures[i], q, i == 0))
			}
		}
	}
	return out
}

// figure draws one quantity in up to four panels. A percentage of one core here
// and one of the study's machine share no axis, so each has a panel of its own.
// What can be laid over each other is what has no unit left: the ratio to the
// clean router, in which most of the difference between two CPUs cancels, and
// the course of each series relative to its own value at one level, in which all
// of it does. The ratio is that of normalised CPU and left out beside sampled CPU.
func (x experiment) figure(number string, q quantity, ratios bool) Figure {
	kind := "sampled"
	if ratios {
		kind = "normalised"
	}
	f := Figure{
		ID: "figure-" + number, Title: "Figure " + number, XLabel: x.xLabel(),
		Caption: fmt.Sprintf("CPU %s against %s, %s: here, as published, and both without their units", kind, x.word(), x.Place),
		Note:    x.units(),
	}
	published := x.asPublished(func(_ router, p publishedRow) float64 { return q.published(p) })
	f.Panels = []Panel{
		{Title: "Measured here", YLabel: "Router CPU, " + unitHere, Reference: analysis.Absent(), Series: x.here(q.here)},
		{Title: "As published", YLabel: "CPU, " + unitPublished, Reference: analysis.Absent(), Series: published},
	}
	if ratios {
		f.Panels = append(f.Panels, x.overhead())
		f.Note += " Over the clean router, most of what two CPUs differ by cancels; over a series' own value, all of it."
	}
	shape, note := x.shape(q)
	f.Panels = append(f.Panels, shape...)
	f.Note += note
	return f
}

func (x experiment) xLabel() string {
	if x.Along == analysis.AlongLoad {
		return "Bandwidth limit, Mbit/s"
	}
	return "Clients"
}

// here is one series for each router that was measured.
func (x experiment) here(of func(level) analysis.Estimate) []Series {
	var out []Series
	for _, r := range x.Routers {
		s := Series{Name: r.Name, DUT: r.DUT, Run: r.Run}
		if r.DUT == scenarios[2].DUT { // it stands in for what cannot be had
			s.Name = r.DUT
		}
		for _, at := range x.Levels {
			if l, ok := r.levels[at]; ok && of(l).Mean.Known() {
				s.Points = append(s.Points, Point{X: analysis.Number(at), Y: of(l), Flags: l.Flags})
			}
		}
		if len(s.Points) > 0 {
			out = append(out, s)
		}
	}
	return out
}

// asPublished is one series for each scenario of the study.
func (x experiment) asPublished(of func(router, publishedRow) float64) []Series {
	var out []Series
	for _, r := range x.Routers[:len(scenarios)] {
		s := Series{Name: r.Name + ", published", DUT: r.DUT, Published: true}
		for _, p := range r.Published {
			if y := analysis.Number(of(r, p)); y.Known() {
				s.Points = append(s.Points, Point{X: analysis.Number(p.Level), Y: exact(y)})
			}
		}
		if len(s.Points) > 0 {
			out = append(out, s)
		}
	}
	return out
}

// exact is a figure without an interval.
func exact(n analysis.Number) analysis.Estimate {
	return analysis.Estimate{Mean: n, Lo: analysis.Absent(), Hi: analysis.Absent()}
}

// overhead lays the portals' ratios to the clean router over each other.
func (x experiment) overhead() Panel {
	clean := x.Routers[0]
	published := x.asPublished(func(r router, p publishedRow) float64 {
		base, ok := clean.published(p.Level)
		if !ok || r.DUT == analysis.Clean {
			return float64(analysis.Absent())
		}
		return p.CPUNormalised / base.CPUNormalised
	})
	return Panel{
		Title: "Over the clean router", YLabel: "CPU per bit, × clean router", LogY: true, Reference: 1,
		Series: append(x.here(func(l level) analysis.Estimate { return l.Ratio }), published...),
	}
}

// shape lays the courses of all series over each other, each relative to its own
// value at one level: the highest at which all routers measured here carry the
// load, of those that do at any level above the lowest. Without such a level
// there is no panel. The second result is what to say of it.
func (x experiment) shape(q quantity) ([]Panel, string) {
	base, routers := x.base()
	if len(routers) == 0 {
		return nil, " No level above the lowest was carried by every router, so the courses are not compared."
	}
	of := x
	of.Routers = routers
	series := of.here(q.here)
	for i := range series {
		series[i].Points = relative(series[i].Points, base)
	}
	published := x.asPublished(func(r router, p publishedRow) float64 {
		own, _ := r.published(base)
		return q.published(p) / q.published(own)
	})
	p := Panel{
		Title:     fmt.Sprintf("Over its own value %s %s", x.by(), x.at(base)),
		YLabel:    fmt.Sprintf("CPU, × that %s %s", x.by(), x.at(base)),
		Reference: analysis.Absent(),
		Series:    append(series, published...),
	}
	if x.Along == analysis.AlongLoad {
		p.Series = append(p.Series, x.proportional(base))
	}
	return []Panel{p}, fmt.Sprintf(" Courses are relative to %s, the highest level at which every router drawn there carries the load; "+
		"their intervals are those of the level, without that of the reference.", x.at(base))
}

// base is the level the courses refer to, and the routers that have it.
func (x experiment) base() (float64, []router) {
	var routers []router
	for _, r := range x.Routers {
		if r.carriesAbove(x.Levels[0]) {
			routers = append(routers, r)
		}
	}
	for i := len(x.Levels) - 1; i > 0 && len(routers) > 0; i-- {
		all := true
		for _, r := range routers {
			all = all && r.carries(x.Levels[i])
		}
		if all {
			return x.Levels[i], routers
		}
	}
	return 0, nil
}

// carries reports whether the router was measured at a level and carried the load.
func (r router) carries(at float64) bool {
	l, ok := r.levels[at]
	return ok && !l.atLimit()
}

func (r router) carriesAbove(lowest float64) bool {
	for at := range r.levels {
		if at > lowest && r.carries(at) {
			return true
		}
	}
	return false
}

// relative divides a series by its own mean at one level.
func relative(points []Point, base float64) []Point {
	unit := analysis.Absent()
	for _, p := range points {
		if float64(p.X) == base {
			unit = p.Y.Mean
		}
	}
	out := make([]Point, 0, len(points))
	for _, p := range points {
		y := p.Y
		y.Mean, y.Lo, y.Hi = y.Mean/unit, y.Lo/unit, y.Hi/unit
		out = append(out, Point{X: p.X, Y: y, Flags: p.Flags})
	}
	return out
}

// proportional is the course of a cost that follows the bandwidth.
func (x experiment) proportional(base float64) Series {
	s := Series{Name: "proportional to bandwidth", Guide: true}
	for _, at := range x.Levels {
		s.Points = append(s.Points, Point{X: analysis.Number(at), Y: exact(analysis.Number(at / base))})
	}
	return s
}
