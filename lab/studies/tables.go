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

// tables fills in the table forms. A form has one table for all routers, or one for each.
func (b studyInRuns) tables() []Table {
	var out []Table
	for _, f := range b.Tables {
		x, ofStudy := b.sweeps[f.Sweep].study(), len(b.Scenarios)
		if !x.measured() {
			continue
		}
		if len(f.Numbers) == 1 {
			// The study's routers share each kind of column, in the study's order.
			groups := append([][]router{x.Routers[:ofStudy]}, slices.Collect(slices.Chunk(x.Routers[ofStudy:], 1))...)
			out = append(out, x.table(f, f.Numbers[0], f.Caption, groups, b.Units(x.CPUs), f.Reading))
			continue
		}
		for i, r := range x.Routers {
			t := x.table(f, f.Numbers[min(i, ofStudy-1)], atSentenceStart(r.Name)+": "+f.Caption, [][]router{{r}})
			if i >= ofStudy {
				t.ID, t.Title = "table-"+f.Numbers[1]+"-"+r.DUT, "As table "+f.Numbers[1]
			}
			out = append(out, t)
		}
	}
	return out
}

// table makes a table with a form's columns for each group of routers. It has one row for each level of the study,
// measured here or not, so every table has the study's shape.
func (x repetition) table(f TableForm, number, caption string, groups [][]router, messages ...string) Table {
	d := x.along()
	t := Table{ID: "table-" + number, Title: "Table " + number, Caption: caption, Fold: f.Fold,
		Note: x.note(slices.Concat(groups...), messages), Rows: make([]Row, len(x.Levels)),
		Columns: []Column{{Name: d.Heading, Unit: d.Unit, PublishedUnit: d.Unit, Measured: true, Published: true}}}
	for _, routers := range groups {
		for _, form := range f.Columns {
			for _, r := range routers {
				if form.Metric.Change != "" && isRouter(r.DUT, x.Routers[0].DUT) {
					continue
				}
				c := Column{strings.Replace(form.Name, "%s", r.Heading, 1), form.Unit, form.PublishedUnit,
					r.DUT, r.measured(), r.published.levels != nil, r.Run}
				if c.Unit == "" {
					c.Unit, c.PublishedUnit = form.Metric.Unit, form.Metric.PublishedUnit
				}
				t.Columns = append(t.Columns, c)
				for i, level := range x.Levels {
					measured, flags := form.Derive(x, r.measuredCourse, form.Metric, level)
					study, _ := form.Derive(x, r.published, form.Metric, level)
					t.Rows[i].Level = analysis.Number(level)
					t.Rows[i].Values = append(t.Rows[i].Values, Value{Here: measured, Flags: flags, Published: published(study)})
				}
			}
		}
	}
	return t
}

// published formats a figure with the two decimals of a study.
func published(e analysis.Estimate) analysis.Number {
	return analysis.Number(math.Round(100*float64(e.Mean)) / 100)
}

// derivation computes a figure of a table from a metric of a course at a level. It also returns the flags of the levels
// used.
type derivation func(repetition, measuredCourse, Metric, float64) (analysis.Estimate, []string)

// metricItself returns the metric without any derivation.
func metricItself(_ repetition, c measuredCourse, m Metric, level float64) (analysis.Estimate, []string) {
	return c.estimate(m, level), c.flags[level]
}

// asIncrease returns a ratio as an increase in per cent.
func asIncrease(_ repetition, c measuredCourse, m Metric, level float64) (analysis.Estimate, []string) {
	return percentOf(c.estimate(m, level)), c.flags[level]
}

// netStep and relativeStep derive the increase from the level before.
var (
	netStep      = onStep(func(inc increase) analysis.Estimate { return inc.Net })
	relativeStep = onStep(func(inc increase) analysis.Estimate { return inc.Relative })
)

// onStep derives a figure from the increase on the step that ends at a level. There is no such step for the first
// level, if the run lacks the level before, or if the run has levels in between.
func onStep(figure func(increase) analysis.Estimate) derivation {
	return func(x repetition, c measuredCourse, m Metric, level float64) (analysis.Estimate, []string) {
		if i := slices.Index(x.Levels, level); i > 0 {
			st := levelStep{x.Levels[i-1], level}
			if inc, ok := c.increaseOn(m, st); ok && !c.hasLevelsWithin(st) {
				return figure(inc), slices.Compact(slices.Sorted(slices.Values(slices.Concat(c.flags[st.from], c.flags[level]))))
			}
		}
		return analysis.Unknown(), nil
	}
}

// marks has the texts for the flags of values.
var marks = []struct{ flag, text string }{
	{cost.FlagShortfall,
		"the device carried less than 90 % of the limit, so normalised CPU there is CPU that was never spent"},
	{result.FlagSaturated, "the device could not carry the load"},
	{result.FlagLossy, "clients had to send more than 1 % of the segments again, or lost so many datagrams"},
}

// note adds to the messages what a reader of a table must know of its routers: profiles and levels that differ from the
// table's head, marks, and the runs.
func (x repetition) note(routers []router, messages []string) string {
	byRun, order := map[string][]string{}, []string{}
	for _, r := range routers {
		if !r.measured() {
			messages = append(messages, atSentenceStart(r.Name)+" is not measured here: published values only.")
			continue
		}
		_, absent := split(x.Levels, r.hasLevel)
		_, extra := split(r.levels, x.hasLevel)
		messages = append(messages,
			words.When(r.profile() != x.Prefer,
				fmt.Sprintf("%s was measured in profile %s.", atSentenceStart(r.Name), r.profile())),
			words.When(len(absent) > 0, fmt.Sprintf("%s was not measured %s.", atSentenceStart(r.Name), x.atAll(absent...))),
			words.When(len(extra) > 0, "The run also has "+r.Name+" "+x.atAll(extra...)+", which the study does not."))
		if byRun[r.Run] == nil {
			order = append(order, r.Run)
		}
		byRun[r.Run] = append(byRun[r.Run], r.Name)
	}
	for _, mark := range marks {
		if slices.ContainsFunc(routers, func(r router) bool { return slices.ContainsFunc(x.Levels, r.flagged(mark.flag)) }) {
			messages = append(messages, fmt.Sprintf("Marked %s: %s.", mark.flag, mark.text))
		}
	}
	if x.Runs > 1 {
		for _, run := range order {
			messages = append(messages, fmt.Sprintf("Of run %s: %s.", run, words.Listed(byRun[run])))
		}
	}
	return words.Joined(" ", messages...)
}
