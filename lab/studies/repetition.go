package studies

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// beside is a study beside what runs hold of it.
type beside struct {
	Study
	sweeps map[*Sweep]repeated
}

// repeated is a sweep with its repetitions here.
type repeated struct {
	study repetition // under the study's conditions, from all runs
	// places are where claims on a sweep that moves can be judged, best first: the
	// study's value of what is held, then others from the highest down, and of each
	// value every run that has it in the order given. Each is of one run alone, so
	// that what is compared there was measured in one sitting. At the study's value a
	// run counts with whatever levels it has, at others with the devices that it has
	// at all of the study's.
	places []repetition
}

// repetition is a sweep at one value of what is held, with the routers measured there.
type repetition struct {
	Sweep
	Levels []float64 // the study's, ascending
	// Routers are the study's scenarios, measured here or not, then the other
	// devices that were, by name.
	Routers []router
	CPUs    int // of the machine of the first run that has it; 0: not known
	Runs    int // given, whether they hold the sweep or not
	from    run // of a place: the run that all of it is from
}

// router is a scenario or another device over the levels of a repetition.
type router struct {
	Scenario
	published course
	Run       string    // label of the run it was measured in; empty: it was not
	Delta     float64   // relative difference that does not matter, of that run
	Extra     []float64 // levels measured that the study does not have
	course
}

func hold(st Study, summaries []analysis.Summary) beside {
	out := beside{st, map[*Sweep]repeated{}}
	for _, s := range st.Sweeps {
		runs := labelled(summaries)
		for i := range runs {
			runs[i].held = runs[i].courses(*s)
		}
		blank := repetition{Sweep: *s}
		published := s.published(st.Scenarios)
		for i, sc := range st.Scenarios {
			p := published[sc.Published]
			for at, figures := range p.figures {
				if first := published[st.Scenarios[0].Published].figures[at]; i > 0 && st.Ratio.Over != "" {
					figures[st.Ratio.Name] = exact(figures[st.Ratio.Over].Mean / first[st.Ratio.Over].Mean)
				}
			}
			blank.Routers = append(blank.Routers, router{Scenario: sc, published: p})
		}
		blank.Levels = blank.Routers[0].published.levels
		r := repeated{study: blank.repeat(runs)}
		if s.Moves {
			r.places = places(blank, runs)
		}
		out.sweeps[s] = r
	}
	return out
}

// repeat takes each router, the study's and others, from the first run that has it.
func (x repetition) repeat(runs []run) repetition {
	x.Runs, x.Routers = len(runs), slices.Clone(x.Routers)
	own := len(x.Routers)
	for _, r := range runs {
		for _, c := range r.held {
			levels, extra := c.split(x.Levels)
			if c.at != x.At {
				continue
			}
			i := slices.IndexFunc(x.Routers, func(r router) bool { return r.DUT == c.dut })
			if i < 0 {
				i, x.Routers = len(x.Routers), append(x.Routers, router{Scenario: Scenario{DUT: c.dut, Heading: c.dut, Name: c.dut}})
			}
			if to := &x.Routers[i]; !to.measured() && len(levels) > 0 {
				to.Run, to.Delta, to.Extra, to.course, to.course.levels = r.Label, r.Delta, extra, c, levels
			}
		}
		if x.CPUs == 0 && x.measured() {
			x.CPUs = r.cpus()
		}
	}
	slices.SortFunc(x.Routers[own:], func(a, b router) int { return strings.Compare(a.DUT, b.DUT) })
	return x
}

func places(blank repetition, runs []run) []repetition {
	var values []float64
	for _, r := range runs {
		for _, c := range r.held {
			values = append(values, c.at.Number(blank.Held))
		}
	}
	values = slices.DeleteFunc(values, func(v float64) bool { return v == blank.value() || math.IsNaN(v) })
	slices.Sort(values)
	values = append(slices.Compact(values), blank.value())
	var out []repetition
	for _, value := range slices.Backward(values) {
		at := blank
		at.At = blank.At.With(blank.Held, value)
		for _, r := range runs {
			x := at.repeat([]run{r})
			x.from = r
			for i, own := range x.Routers {
				if at.At != blank.At && len(own.levels) < len(x.Levels) {
					x.Routers[i] = own.bare()
				}
			}
			if x.measured() {
				out = append(out, x)
			}
		}
	}
	return out
}

// bare is a router without what was measured of it.
func (r router) bare() router { return router{Scenario: r.Scenario, published: r.published} }

func (r router) measured() bool { return r.Run != "" }

func (x repetition) measured() bool { return slices.ContainsFunc(x.Routers, router.measured) }

// all are the repetitions in the order in which they count.
func (r repeated) all() []repetition { return append([]repetition{r.study}, r.places...) }

// measured reports whether a claim on the sweep can be judged of any router.
func (r repeated) measured() bool { return slices.ContainsFunc(r.all(), repetition.measured) }

// router finds a device; one that is not there was not measured.
func (x repetition) router(dut string) router {
	if i := slices.IndexFunc(x.Routers, func(r router) bool { return r.DUT == dut }); i >= 0 {
		return x.Routers[i]
	}
	return router{Scenario: Scenario{DUT: dut, Name: dut}}
}

// of is the first repetition that has figures of a device, the study's where none has.
func (r repeated) of(dut string) repetition {
	all := r.all()
	return all[max(0, slices.IndexFunc(all, func(x repetition) bool { return x.router(dut).measured() }))]
}

// carrying is the first place at which devices carried some levels, and at another
// value than the study's every level of the study. ok is false where there is none.
func (r repeated) carrying(levels []float64, duts ...string) (x repetition, ok bool) {
	for _, x := range r.places {
		needed := levels
		if x.value() != r.study.value() {
			needed = x.Levels
		}
		lacks := func(dut string) bool { return x.lack(x.router(dut), needed) != "" }
		if !slices.ContainsFunc(duts, lacks) {
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
	if x.value() == r.study.value() {
		return ""
	}
	var why []string
	lacking := map[string][]string{} // devices by what they lack
	for _, dut := range duts {
		if text := r.study.lack(r.study.router(dut), levels); text != "" {
			why, lacking[text] = append(why, text), append(lacking[text], dut)
		}
	}
	why = slices.Compact(why)
	for i, text := range why {
		why[i] = fmt.Sprintf(text, words.Listed(lacking[text]))
	}
	if len(why) == 0 {
		why = append(why, "no run has all of them")
	}
	text := fmt.Sprintf("; judged at %s in total, not at the study's %s, where %s", x.held(), r.study.held(), words.Listed(why))
	if x.value() < r.study.value() {
		text += x.Lower
	}
	return text
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
		return "%s could not carry the load " + x.atAll(limited)
	case len(absent) > 0:
		return "%s was not measured " + x.atAll(absent)
	}
	return ""
}

// short are the levels of those given at which a router could not carry the load,
// and those at which it was not measured.
func (x repetition) short(r router, levels []float64) (limited, absent []float64) {
	for _, at := range levels {
		switch {
		case !r.has(at):
			absent = append(absent, at)
		case r.atLimit(at):
			limited = append(limited, at)
		}
	}
	return limited, absent
}

// stepsTo are the study's steps up to a level.
func (x repetition) stepsTo(last float64) []step {
	var out []step
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
		for _, at := range r.levels {
			limited = limited || r.atLimit(at)
			if link := float64(r.figures[at]["link_mbps"].Mean); link < least {
				least = link
			}
		}
	}
	if x.Held != result.OfferedMbps || !limited {
		return 0
	}
	return 100 * math.Floor(0.6*least/100)
}
