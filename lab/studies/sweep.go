package studies

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// studyInRuns is a study with its sweeps and claims, as far as the given runs have them.
type studyInRuns struct {
	Study
	sweeps map[*Sweep]repetitionsOfSweep
	judged []judgement // claims whose sweeps the runs have, in the order of the claims
	// emulated is true if the figures are of an emulated CPU.
	emulated bool
}

// repetitionsOfSweep has the repetitions of a sweep in the runs, the preferred one first. Repetition 0 has the study's
// conditions and figures from all runs. Tables and figures show it, and claims about a sweep that does not move are
// judged by it.
//
// A sweep that moves has further repetitions for its claims: first at the study's value of Held, then at other values
// from the highest down, with one repetition for each run at each value. Each comes from a single run, so that compared
// figures are of the same run. At the study's value, a run counts with the levels that it has. At other values, it
// counts only with devices measured at all levels of the study.
type repetitionsOfSweep []repetition

// repetition is a sweep at one value of Held, with the routers measured there.
type repetition struct {
	Sweep
	Levels  []float64 // the study's levels, ascending
	Routers []router  // the study's scenarios, measured here or not, then other devices by name
	CPUs    int       // CPUs of the machine of the first run with the sweep; 0: not known
	Runs    int       // number of runs given, including those without the sweep
	from    run       // run of all figures, if they are from one run
}

// router is a scenario or another device over the levels of a repetition.
type router struct {
	Scenario
	published measuredCourse
	systems   []system // figures of the study's systems in the role of this router
	Run       string   // label of the run that measured it; empty: not measured
	Delta     float64  // the run's relative difference that does not matter
	measuredCourse
}

// system is one of several machines of a study, with its published figures.
type system struct {
	name string
	measuredCourse
}

// judgeStudy finds a study's sweeps in runs and judges its claims.
func judgeStudy(st Study, summaries []analysis.Summary) studyInRuns {
	out := studyInRuns{
		Study: st, sweeps: map[*Sweep]repetitionsOfSweep{}, emulated: len(summaries) > 0 && summaries[0].Mark != ""}
	for _, s := range st.Sweeps {
		runs := labelled(summaries)
		for i := range runs {
			runs[i].held = runs[i].courses(*s)
		}
		x := s.published(st.Scenarios)
		out.sweeps[s] = repetitionsOfSweep{x.repeat(runs...)}
		if s.Moves {
			out.sweeps[s] = append(out.sweeps[s], x.places(runs)...)
		}
	}
	for _, c := range st.Claims {
		if len(out.missingSweeps(c.Sweeps)) == 0 {
			for _, s := range out.subjects(c) {
				out.judged = append(out.judged, out.judge(c, s))
			}
		}
	}
	return out
}

// repeat fills in each router, the study's and others, from the first run that has it.
func (x repetition) repeat(runs ...run) repetition {
	x.Runs, x.Routers = len(runs), slices.Clone(x.Routers)
	ofStudy := len(x.Routers)
	for _, r := range runs {
		for _, c := range r.held {
			dut := c.cell.Text(result.DUT)
			if !x.holds(c.cell) || x.Devices != nil && !slices.Contains(x.Devices, dut) ||
				!x.Free && !slices.ContainsFunc(x.Levels, c.hasLevel) {
				continue
			}
			i := slices.IndexFunc(x.Routers, func(r router) bool { return r.DUT == dut })
			if i < 0 {
				other := router{Scenario: Scenario{DUT: dut, Heading: dut, Name: dut}}
				i, x.Routers = len(x.Routers), append(x.Routers, other)
			}
			if to := &x.Routers[i]; !to.measured() {
				to.Run, to.Delta, to.measuredCourse = r.Label, r.Delta, c
			}
		}
		if x.CPUs == 0 && x.measured() {
			x.CPUs = r.cpus()
		}
	}
	slices.SortFunc(x.Routers[ofStudy:], func(a, b router) int { return cmp.Compare(a.DUT, b.DUT) })
	if x.Free {
		x.Levels = nil
		for _, r := range x.Routers {
			x.Levels = append(x.Levels, r.levels...)
		}
		slices.Sort(x.Levels)
		x.Levels = slices.Compact(x.Levels)
	}
	return x
}

// places repeats the sweep at each value of Held in each run (see repetitionsOfSweep).
func (x repetition) places(runs []run) (out []repetition) {
	values := []float64{}
	for _, r := range runs {
		for _, c := range r.held {
			values = append(values, c.cell.Number(x.Held))
		}
	}
	slices.Sort(values)
	_, others := split(slices.Compact(values), func(v float64) bool { return v == x.heldValue() })
	for _, value := range slices.Backward(append(others, x.heldValue())) {
		for _, r := range runs {
			place := x
			place.Fixed = x.Fixed.With(x.Held, value)
			place = place.repeat(r)
			place.from = r
			for i, router := range place.Routers {
				if _, absent := split(x.Levels, router.hasLevel); place.Fixed != x.Fixed && len(absent) > 0 {
					place.Routers[i] = router.bare()
				}
			}
			if place.measured() {
				out = append(out, place)
			}
		}
	}
	return out
}

// bare returns a router without its measured figures.
func (r router) bare() router {
	return router{Scenario: r.Scenario, published: r.published, systems: r.systems}
}

func (r router) measured() bool { return r.Run != "" }

func (x repetition) measured() bool { return slices.ContainsFunc(x.Routers, router.measured) }

func (x repetition) hasLevel(level float64) bool { return slices.Contains(x.Levels, level) }

// router finds a device. If the repetition lacks it, the result is a router that is not measured.
func (x repetition) router(dut string) router {
	if i := slices.IndexFunc(x.Routers, func(r router) bool { return r.DUT == dut }); i >= 0 {
		return x.Routers[i]
	}
	return router{Scenario: Scenario{DUT: dut, Name: dut}}
}

func (r repetitionsOfSweep) study() repetition { return r[0] }

// firstWith returns the first repetition with figures of a device, or repetition 0.
func (r repetitionsOfSweep) firstWith(dut string) repetition {
	return r[max(0, slices.IndexFunc(r, func(x repetition) bool { return x.router(dut).measured() }))]
}

// carrying finds the first repetition of a single run in which all devices carried the load at the given levels. At
// another value of Held than the study's, they must have carried all levels.
func (r repetitionsOfSweep) carrying(levels []float64, duts ...string) (x repetition, ok bool) {
	for _, x := range r[1:] {
		needed := levels
		if x.Fixed != r.study().Fixed {
			needed = x.Levels
		}
		if !slices.ContainsFunc(duts, func(dut string) bool { return x.unfitReason(x.router(dut), needed) != "" }) {
			return x, true
		}
	}
	return repetition{}, false
}

// judgedAt returns the repetition by which a claim is judged for a device. It is the first in which the device carried
// the levels, or else the first with figures of it.
func (r repetitionsOfSweep) judgedAt(levels []float64, dut string) repetition {
	if x, ok := r.carrying(levels, dut); ok {
		return x
	}
	return r.firstWith(dut)
}

// otherValueText says at which value other than the study's a claim is judged, and why. It is empty for a claim judged
// at the study's value.
func (r repetitionsOfSweep) otherValueText(x repetition, levels []float64, duts ...string) string {
	study, lacking := r.study(), map[string][]string{} // devices by reason
	if x.Fixed == study.Fixed {
		return ""
	}
	lack := func(dut string) string { return study.unfitReason(study.router(dut), levels) }
	for _, dut := range duts {
		lacking[lack(dut)] = append(lacking[lack(dut)], dut)
	}
	reason := words.ListOf(duts, func(dut string) string {
		same := lacking[lack(dut)]
		return words.When(same[0] == dut && lack(dut) != "", strings.Replace(lack(dut), "%s", words.Listed(same), 1))
	})
	return fmt.Sprintf("; judged at %s in total, not at the study's %s, where %s", x.held(), study.held(),
		words.Or(reason, "no run has all of them")) + words.When(x.heldValue() < study.heldValue(), x.Lower)
}

// unfitReason says why a router cannot be judged by some levels, with %s for its name. It is empty when it can.
func (x repetition) unfitReason(r router, levels []float64) string {
	limited, absent := x.limitedAndAbsent(r, levels)
	switch {
	case !r.measured():
		return "no run has %s"
	case len(limited) == len(x.Levels):
		return "%s could not carry the load with any " + x.along().Count
	case len(limited) > 0:
		return "%s could not carry the load " + x.atAll(limited...)
	case len(absent) > 0:
		return "%s was not measured " + x.atAll(absent...)
	}
	return ""
}

// limitedAndAbsent returns the levels at which a router could not carry the load, and those at which it was not
// measured.
func (x repetition) limitedAndAbsent(r router, levels []float64) (limited, absent []float64) {
	measured, absent := split(levels, r.hasLevel)
	limited, _ = split(measured, r.atLimit)
	return limited, absent
}

// split separates the levels for which matches is true from the others.
func split(levels []float64, matches func(float64) bool) (matching, others []float64) {
	for _, level := range levels {
		if matches(level) {
			matching = append(matching, level)
		} else {
			others = append(others, level)
		}
	}
	return matching, others
}

// stepsTo lists the steps between the study's levels up to a level.
func (x repetition) stepsTo(last float64) (out []levelStep) {
	for i, to := range x.Levels[1:] {
		if to <= last {
			out = append(out, levelStep{x.Levels[i], to})
		}
	}
	return out
}

// lowestToHighest is the step from the lowest to the highest level.
func (x repetition) lowestToHighest() levelStep {
	return levelStep{x.Levels[0], x.Levels[len(x.Levels)-1]}
}

// lightLoad returns an offered load that devices at their limit can carry. It is 60 % of the smallest bandwidth they
// carried at any level, rounded down to whole hundreds of Mbit/s. 0: there is no such load, or no device is at its
// limit.
func (x repetition) lightLoad(devices ...router) float64 {
	least, limited := x.heldValue(), false
	for _, r := range devices {
		for _, level := range x.Levels {
			limited = limited || r.atLimit(level)
			if carried := float64(r.estimate(Metric{Name: cost.Link}, level).Mean); carried < least {
				least = carried
			}
		}
	}
	if x.Held != result.OfferedMbps || !limited {
		return 0
	}
	return 100 * math.Floor(0.6*least/100)
}
