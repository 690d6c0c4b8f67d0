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

// beside is a study beside what runs hold of it.
type beside struct {
	Study
	sweeps map[*Sweep]repeated
	judged []judgement // claims whose sweeps the runs hold, in the order of the claims
}

// repeated is a sweep with its repetitions here, in the order in which they count. The
// first is under the study's conditions, from all runs; only tables and figures show it.
// The others, of a sweep that moves, are where its claims can be judged: at the study's
// value of what is held, then at others from the highest down, and at each value in
// every run that has it. Each is of one run alone, so that what is compared there was
// measured in one sitting. At the study's value a run counts with whatever levels it
// has, at others with the devices that it has at all of the study's.
type repeated []repetition

// repetition is a sweep at one value of what is held, with the routers measured there.
type repetition struct {
	Sweep
	Levels  []float64 // the study's, ascending
	Routers []router  // the study's scenarios, measured here or not, then other devices by name
	CPUs    int       // of the machine of the first run that has it; 0: not known
	Runs    int       // given, whether they hold the sweep or not
	from    run       // that all of it is from, where it is of one run
}

// router is a scenario or another device over the levels of a repetition.
type router struct {
	Scenario
	published course
	Run       string  // label of the run it was measured in; empty: it was not
	Delta     float64 // relative difference that does not matter, of that run
	course
}

// hold finds a study's sweeps in runs, and judges its claims by them.
func hold(st Study, summaries []analysis.Summary) beside {
	out := beside{Study: st, sweeps: map[*Sweep]repeated{}}
	for _, s := range st.Sweeps {
		runs := labelled(summaries)
		for i := range runs {
			runs[i].held = runs[i].courses(*s)
		}
		x := s.published(st.Scenarios)
		out.sweeps[s] = repeated{x.repeat(runs...)}
		if s.Moves {
			out.sweeps[s] = append(out.sweeps[s], x.places(runs)...)
		}
	}
	for _, c := range st.Claims {
		if len(out.lacking(c.Sweeps)) == 0 {
			for _, s := range out.subjects(c.Of, c.Sweeps) {
				out.judged = append(out.judged, out.judge(c, s))
			}
		}
	}
	return out
}

// repeat takes each router, the study's and others, from the first run that has it.
func (x repetition) repeat(runs ...run) repetition {
	x.Runs, x.Routers = len(runs), slices.Clone(x.Routers)
	own := len(x.Routers)
	for _, r := range runs {
		for _, c := range r.held {
			dut := c.cell.Text(result.DUT)
			if c.cell.Without(result.DUT, result.Profile) != x.At || !slices.ContainsFunc(x.Levels, c.has) {
				continue
			}
			i := slices.IndexFunc(x.Routers, func(r router) bool { return r.DUT == dut })
			if i < 0 {
				other := router{Scenario: Scenario{DUT: dut, Heading: dut, Name: dut}}
				i, x.Routers = len(x.Routers), append(x.Routers, other)
			}
			if to := &x.Routers[i]; !to.measured() {
				to.Run, to.Delta, to.course = r.Label, r.Delta, c
			}
		}
		if x.CPUs == 0 && x.measured() {
			x.CPUs = r.cpus()
		}
	}
	slices.SortFunc(x.Routers[own:], func(a, b router) int { return cmp.Compare(a.DUT, b.DUT) })
	return x
}

// places repeats the sweep at each value of what it holds, in each run; see repeated.
func (x repetition) places(runs []run) (out []repetition) {
	values := []float64{}
	for _, r := range runs {
		for _, c := range r.held {
			values = append(values, c.cell.Number(x.Held))
		}
	}
	slices.Sort(values)
	_, others := split(slices.Compact(values), func(v float64) bool { return v == x.value() })
	for _, value := range slices.Backward(append(others, x.value())) {
		for _, r := range runs {
			place := x
			place.At = x.At.With(x.Held, value)
			place = place.repeat(r)
			place.from = r
			for i, own := range place.Routers {
				if _, absent := split(x.Levels, own.has); place.At != x.At && len(absent) > 0 {
					place.Routers[i] = own.bare()
				}
			}
			if place.measured() {
				out = append(out, place)
			}
		}
	}
	return out
}

// bare is a router without what was measured of it.
func (r router) bare() router { return router{Scenario: r.Scenario, published: r.published} }

func (r router) measured() bool { return r.Run != "" }

func (x repetition) measured() bool { return slices.ContainsFunc(x.Routers, router.measured) }

func (x repetition) has(at float64) bool { return slices.Contains(x.Levels, at) }

// router finds a device; one that is not there was not measured.
func (x repetition) router(dut string) router {
	if i := slices.IndexFunc(x.Routers, func(r router) bool { return r.DUT == dut }); i >= 0 {
		return x.Routers[i]
	}
	return router{Scenario: Scenario{DUT: dut, Name: dut}}
}

func (r repeated) study() repetition { return r[0] }

// of is the first repetition that has figures of a device, the study's where none has.
func (r repeated) of(dut string) repetition {
	return r[max(0, slices.IndexFunc(r, func(x repetition) bool { return x.router(dut).measured() }))]
}

// carrying is the first place at which devices carried some levels, and at another
// value than the study's every level of the study. ok is false where there is none.
func (r repeated) carrying(levels []float64, duts ...string) (x repetition, ok bool) {
	for _, x := range r[1:] {
		needed := levels
		if x.At != r.study().At {
			needed = x.Levels
		}
		if !slices.ContainsFunc(duts, func(dut string) bool { return x.lack(x.router(dut), needed) != "" }) {
			return x, true
		}
	}
	return repetition{}, false
}

// judged is where a claim is judged of a device: where it carried the levels, or
// where it has figures at all.
func (r repeated) judged(levels []float64, dut string) repetition {
	if x, ok := r.carrying(levels, dut); ok {
		return x
	}
	return r.of(dut)
}

// elsewhere says that a claim was not judged under the study's conditions, where it
// was, and why; empty where it was.
func (r repeated) elsewhere(x repetition, levels []float64, duts ...string) string {
	study, lacking := r.study(), map[string][]string{} // devices by what they lack
	if x.At == study.At {
		return ""
	}
	lack := func(dut string) string { return study.lack(study.router(dut), levels) }
	for _, dut := range duts {
		lacking[lack(dut)] = append(lacking[lack(dut)], dut)
	}
	why := words.ListOf(duts, func(dut string) string {
		same := lacking[lack(dut)]
		return words.When(same[0] == dut && lack(dut) != "", strings.Replace(lack(dut), "%s", words.Listed(same), 1))
	})
	return fmt.Sprintf("; judged at %s in total, not at the study's %s, where %s", x.held(), study.held(),
		words.Or(why, "no run has all of them")) + words.When(x.value() < study.value(), x.Lower)
}

// lack says of a router, whose name is left out, why it cannot be judged by some
// levels; empty when it can.
func (x repetition) lack(r router, levels []float64) string {
	limited, absent := x.short(r, levels)
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

// short are the levels of those given at which a router could not carry the load,
// and those at which it was not measured.
func (x repetition) short(r router, levels []float64) (limited, absent []float64) {
	there, absent := split(levels, r.has)
	limited, _ = split(there, r.atLimit)
	return limited, absent
}

// split are the levels for which something is so, and the others.
func split(levels []float64, is func(float64) bool) (these, others []float64) {
	for _, at := range levels {
		if is(at) {
			these = append(these, at)
		} else {
			others = append(others, at)
		}
	}
	return these, others
}

// stepsTo are the study's steps up to a level.
func (x repetition) stepsTo(last float64) (out []step) {
	for i, to := range x.Levels[1:] {
		if to <= last {
			out = append(out, step{x.Levels[i], to})
		}
	}
	return out
}

// ends are the lowest and the highest level.
func (x repetition) ends() step { return step{x.Levels[0], x.Levels[len(x.Levels)-1]} }

// lightLoad is a load that devices can carry which are at their limit: some 60 %
// of the least that they did at any level, in whole hundreds of Mbit/s. 0: none.
func (x repetition) lightLoad(devices ...router) float64 {
	least, limited := x.value(), false
	for _, r := range devices {
		for _, at := range x.Levels {
			limited = limited || r.atLimit(at)
			if carried := float64(r.estimate(Metric{Name: cost.Link}, at).Mean); carried < least {
				least = carried
			}
		}
	}
	if x.Held != result.OfferedMbps || !limited {
		return 0
	}
	return 100 * math.Floor(0.6*least/100)
}
