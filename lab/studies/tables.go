package studies

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

func (b beside) tables() []Table {
	var out []Table
	for _, f := range b.Tables {
		if x := b.sweeps[f.Sweep].study(); x.measured() {
			out = append(out, b.form(f, x)...)
		}
	}
	return out
}

// form fills a form: one table of all routers, or one for each.
func (b beside) form(f TableForm, x repetition) []Table {
	if len(f.Numbers) == 1 {
		// The study's routers share each kind of column, as it prints them.
		columns := x.columns(f, x.Routers[:len(b.Scenarios)]...)
		for _, r := range x.Routers[len(b.Scenarios):] {
			columns = append(columns, x.columns(f, r)...)
		}
		t := x.table(f, columns, x.Routers, b.Units(x.CPUs), f.Said)
		t.ID, t.Title, t.Caption = "table-"+f.Numbers[0], "Table "+f.Numbers[0], f.Caption
		return []Table{t}
	}
	var out []Table
	for i, r := range x.Routers {
		t := x.table(f, x.columns(f, r), []router{r})
		t.ID, t.Title, t.Caption = "table-"+f.Numbers[1]+"-"+r.DUT, "As table "+f.Numbers[1], opening(r.Name)+": "+f.Caption
		if i < len(b.Scenarios) {
			t.ID, t.Title = "table-"+f.Numbers[i], "Table "+f.Numbers[i]
		}
		out = append(out, t)
	}
	return out
}

// column is a Column with what fills it.
type column struct {
	Column
	value func(at float64) Value
}

// columns are those of a form for some routers.
func (x repetition) columns(f TableForm, routers ...router) []column {
	var out []column
	for _, form := range f.Columns {
		for _, r := range routers {
			if form.Metric.Change != "" && r.DUT == x.Routers[0].DUT {
				continue
			}
			c := Column{Name: form.Name, Unit: form.Unit, PublishedUnit: form.PublishedUnit, DUT: r.DUT, Measured: r.measured(), Published: r.published.points != nil, Run: r.Run}
			if strings.Contains(c.Name, "%s") {
				c.Name = fmt.Sprintf(form.Name, r.Heading)
			}
			if c.Unit == "" {
				c.Unit, c.PublishedUnit = form.Metric.Unit, form.Metric.PublishedUnit
			}
			out = append(out, column{c, func(at float64) Value {
				here, flags := form.Derive(x, r.course, form.Metric, at)
				study, _ := form.Derive(x, r.published, form.Metric, at)
				return Value{Here: here, Flags: flags, Published: published(study)}
			}})
		}
	}
	return out
}

// published is a figure with the two decimals that a study prints.
func published(e analysis.Estimate) analysis.Number {
	return analysis.Number(math.Round(100*float64(e.Mean)) / 100)
}

// table puts the columns' values in rows, one a level of the study whether it was
// measured here or not, so that every table has the study's shape.
func (x repetition) table(f TableForm, columns []column, routers []router, said ...string) Table {
	d := x.along()
	t := Table{Fold: f.Fold, Note: x.note(routers, said...), Columns: []Column{{Name: d.Heading, Unit: d.Unit, PublishedUnit: d.Unit, Measured: true, Published: true}}}
	for _, c := range columns {
		t.Columns = append(t.Columns, c.Column)
	}
	for _, at := range x.Levels {
		row := Row{Level: analysis.Number(at)}
		for _, c := range columns {
			row.Values = append(row.Values, c.value(at))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// derivation makes a figure of a table from a metric of a course, at a level, with
// the flags of the levels that it is from.
type derivation func(repetition, course, Metric, float64) (analysis.Estimate, []string)

// asIs is the metric itself.
func asIs(_ repetition, c course, m Metric, at float64) (analysis.Estimate, []string) {
	return c.estimate(m, at), c.at(at).flags
}

// asIncrease is a ratio as an increase in per cent.
func asIncrease(_ repetition, c course, m Metric, at float64) (analysis.Estimate, []string) {
	return each(c.estimate(m, at), func(n analysis.Number) analysis.Number { return 100 * (n - 1) }), c.at(at).flags
}

// netStep and relativeStep are the increase that leads to a level.
var (
	netStep      = onStep(func(inc increase) analysis.Estimate { return inc.Net })
	relativeStep = onStep(func(inc increase) analysis.Estimate { return inc.Relative })
)

// onStep is of the step that leads to a level. The first level has none, and a run
// that lacks the level before took another step, which is not shown.
func onStep(of func(increase) analysis.Estimate) derivation {
	return func(x repetition, c course, m Metric, at float64) (analysis.Estimate, []string) {
		i := slices.Index(x.Levels, at)
		if i == 0 {
			return analysis.Unknown(), nil
		}
		st := step{x.Levels[i-1], at}
		inc, ok := c.rise(m, st)
		if !ok || c.divides(st) {
			return analysis.Unknown(), nil
		}
		return of(inc), slices.Compact(slices.Sorted(slices.Values(slices.Concat(c.at(st.from).flags, c.at(at).flags))))
	}
}

// note says what must be known to read a table of these routers, after what is
// given to say first.
func (x repetition) note(routers []router, said ...string) string {
	byRun, order := map[string][]string{}, []string{}
	for _, r := range routers {
		if !r.measured() {
			said = append(said, fmt.Sprintf("%s is not measured here: published values only.", opening(r.Name)))
			continue
		}
		said = append(said, x.caveats(r)...)
		if byRun[r.Run] == nil {
			order = append(order, r.Run)
		}
		byRun[r.Run] = append(byRun[r.Run], r.Name)
	}
	said = append(said, x.marks(routers)...)
	if x.Runs > 1 {
		for _, run := range order {
			said = append(said, fmt.Sprintf("Of run %s: %s.", run, words.Listed(byRun[run])))
		}
	}
	return strings.Join(said, " ")
}

// caveats say what of a router's figures differs from what the table's head promises.
func (x repetition) caveats(r router) []string {
	var said []string
	if r.profile() != x.Prefer {
		said = append(said, fmt.Sprintf("%s was measured in profile %s.", opening(r.Name), r.profile()))
	}
	if _, absent := x.short(r, x.Levels); len(absent) > 0 {
		said = append(said, fmt.Sprintf("%s was not measured %s.", opening(r.Name), x.atAll(absent...)))
	}
	if extra := slices.DeleteFunc(r.levels(), x.has); len(extra) > 0 {
		said = append(said, fmt.Sprintf("The run also has %s %s, which the study does not.", r.Name, x.atAll(extra...)))
	}
	return said
}

// marks explain the flags that the routers' values carry.
func (x repetition) marks(routers []router) []string {
	var said []string
	for _, mark := range []struct{ flag, text string }{
		{cost.FlagShortfall, "the device carried less than 90 % of the limit, so normalised CPU there is CPU that was never spent"},
		{result.FlagSaturated, "the device could not carry the load"},
		{result.FlagLossy, "clients had to send more than 1 % of the segments again, or lost so many datagrams"},
	} {
		marked := func(r router) bool {
			return slices.ContainsFunc(x.Levels, func(at float64) bool { return slices.Contains(r.at(at).flags, mark.flag) })
		}
		if slices.ContainsFunc(routers, marked) {
			said = append(said, fmt.Sprintf("Marked %s: %s.", mark.flag, mark.text))
		}
	}
	return said
}
