package studies

import (
	"fmt"
	"math"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"

	"github.com/gateweigh/gateweigh/lab/words"
)

// criterion judges a claim for a device, or for a pair of them.
type criterion func(asked) judgement

// asked is a claim with what it is judged for.
type asked struct {
	beside
	Claim
	subject
}

// judgement is what the runs say of a claim for one subject.
type judgement struct {
	holds  *bool
	open   bool   // the intervals let the claim both hold and fail
	here   string // figures with intervals and n, without a full stop
	study  string // the study's figures for the same subject; empty when it has none
	expect string // see analysis.Finding
	brief
}

// brief is a judgement in short, for a table; empty when there is none.
type brief struct {
	figure, detail string
	least          analysis.Number // decides between two claims that answer one question
}

// side says where an interval lies.
type side int

const (
	across side = iota // on a bound, or without an interval
	inside
	outside
)

// within places an interval of a ratio against [1/(1+tolerance), 1+tolerance].
func within(e analysis.Estimate, tolerance float64) side {
	return place(e, 1/(1+tolerance), 1+tolerance)
}

// beyond places an interval above a bound (inside) or below it (outside).
func beyond(e analysis.Estimate, bound float64) side { return place(e, bound, math.Inf(1)) }

func place(e analysis.Estimate, lo, hi float64) side {
	switch {
	case !e.HasInterval():
		return across
	case float64(e.Lo) >= lo && float64(e.Hi) <= hi:
		return inside
	case float64(e.Hi) < lo || float64(e.Lo) > hi:
		return outside
	}
	return across
}

// settle takes the side on which the claim's interval lies for the outcome.
func (j *judgement) settle(s side, fails string) {
	switch s {
	case inside:
		j.holds = outcome(true)
	case outside:
		j.holds, j.expect = outcome(false), fails
	default:
		j.open, j.expect = true, "The interval leaves it open; more blocks narrow it (`--set blocks=N`)."
	}
}

func outcome(holds bool) *bool { return &holds }

// tally is what a criterion finds in one course.
type tally struct {
	used    []analysis.Estimate
	figures []string // the same in words
	sides   [3]int   // how many lie across, inside and outside
	needed  int      // so many inside, and none outside, for the claim to hold
	steps   []step   // that these are of
	lacking string   // why there are fewer than needed; empty: the steps say so
	says    string   // sentence with %s for the figures
	none    string   // instead, where there are none
	unit    string   // of the study's figures
	why     Why      // the explanations that fit
	brief
}

func (t *tally) add(e analysis.Estimate, s side, format string, args ...any) {
	t.used, t.figures = append(t.used, e), append(t.figures, fmt.Sprintf(format, args...))
	t.sides[s]++
}

// means are the figures without their intervals.
func (t tally) means() string {
	var parts []string
	for _, e := range t.used {
		if e.Mean.Known() {
			parts = append(parts, digits(e.Mean))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return words.Listed(parts) + t.unit
}

// ofDevice judges one device, at the place where it carried some levels (none: all
// of the sweep). What collects its figures does the same with the study's.
func ofDevice(collect func(asked, repetition, router) tally, levels ...float64) criterion {
	return func(k asked) judgement {
		s := k.sweeps[k.Sweeps[0]]
		needed := levels
		if len(needed) == 0 {
			needed = s.study.Levels
		}
		x := s.judged(needed, k.id)
		r := x.router(k.id)
		if !r.measured() {
			return x.unmeasured(r)
		}
		t := collect(k, x, r)
		j := judgement{here: t.none + " in run " + r.Run, study: collect(k, x, router{course: r.published}).means(), brief: t.brief}
		if len(t.used) > 0 {
			j.here = strings.Replace(t.says, "%s", words.Listed(t.figures), 1) + "; " + blocks(t.used...) + "; run " + r.Run
		}
		j.here += s.elsewhere(x, needed, r.DUT)
		switch {
		case t.sides[outside] > 0:
			j.settle(outside, t.why.Fails)
		case t.lacking != "":
			j.expect = t.lacking
		case t.sides[inside] == t.needed:
			j.settle(inside, "")
			j.expect = t.why.Beyond
		default:
			j.unsettled(x, r, t.steps)
		}
		return j
	}
}

// above judges whether a metric exceeds a bound at every level. A level at which
// the device could not carry the load counts: what it carried, it paid for.
func above(bound float64) criterion {
	return ofDevice(func(k asked, x repetition, r router) tally {
		t := tally{says: k.Metric.Noun + " is %s", none: "no " + k.Metric.Short, needed: len(x.Levels), why: k.Why}
		least, leastAt := nothing(), 0.0
		var absent []float64
		for _, at := range x.Levels {
			e, limit := r.estimate(k.Metric, at), ""
			if !(e.Lo > r.published.estimate(k.Metric, at).Mean) {
				t.why.Beyond = ""
			}
			if !e.Mean.Known() {
				absent = append(absent, at)
				continue
			}
			if !(least.Mean <= e.Mean) {
				least, leastAt = e, at
			}
			if r.atLimit(at) {
				limit = " (at its limit)"
			}
			t.add(e, beyond(e, bound), "%s %s%s", bracketed(e), x.atAll([]float64{at}), limit)
		}
		if len(absent) > 0 {
			t.lacking = fmt.Sprintf("Not measured %s; %s has all levels.", x.atAll(absent), x.command())
		}
		if len(t.used) > 0 {
			t.brief = brief{"least × " + bracketed(least), fmt.Sprintf("%s; %s, %s", blocks(least), x.at(leastAt), x.held()), least.Mean}
		}
		if r.Published == "" && k.Why.New != "" {
			t.why.Fails = k.Why.New
		}
		return t
	})
}

// linear judges how straight a metric runs up to a level, a constant share allowed:
// from each step to the next, what a further unit of the dimension costs may change
// by a factor within a tolerance.
func linear(to, tolerance float64) criterion {
	return ofDevice(func(k asked, x repetition, r router) tally {
		steps, d := x.stepsTo(to), x.along()
		t := tally{steps: steps, needed: len(steps) - 1, none: "no two steps up to " + x.at(to) + " that count", why: k.Why,
			says: "a further " + d.One + " costs, over one on the step before, %s " + d.Many + r.fits}
		for i, next := range steps[1:] {
			a, ok := r.taken(k.Metric, steps[i])
			b, also := r.taken(k.Metric, next)
			if ok && also {
				g := marginal(ratioOf(a.Relative), ratioOf(b.Relative), steps[i], next)
				t.add(g, within(g, tolerance), "%s from %g to %g", bracketed(g), next.from, next.to)
			}
		}
		return t
	})
}

// ratioOf is the factor that an increase of so many per cent is.
func ratioOf(e analysis.Estimate) analysis.Estimate {
	return each(e, func(n analysis.Number) analysis.Number { return 1 + n/100 })
}

// marginal is what a further unit of the dimension costs on a step over that on
// the step before, from the factors a and b by which the metric rises on them:
// a(b-1)/(a-1), by the steps' lengths. Factors are taken block by block and are
// free of the machine's drift, which differences are not. It falls with a and
// rises with b, so its bounds are those of a and b crosswise. Absent where the
// metric may not rise at all.
func marginal(a, b analysis.Estimate, before, next step) analysis.Estimate {
	lengths := analysis.Number((before.to - before.from) / (next.to - next.from))
	of := func(a, b analysis.Number) analysis.Number {
		if !(a > 1) {
			return analysis.Absent()
		}
		return a * (b - 1) / (a - 1) * lengths
	}
	return analysis.Estimate{Mean: of(a.Mean, b.Mean), Lo: of(a.Hi, b.Lo), Hi: of(a.Lo, b.Hi), N: min(a.N, b.N)}
}

// monotone judges whether a metric rises on every step.
func monotone() criterion {
	return ofDevice(func(k asked, x repetition, r router) tally {
		steps := x.stepsTo(math.Inf(1))
		t := tally{steps: steps, needed: len(steps), none: "no step that counts", says: k.Metric.Noun + " rises by %s", unit: " %", why: k.Why}
		for _, st := range steps {
			if inc, ok := r.taken(k.Metric, st); ok {
				t.add(inc.Relative, beyond(inc.Relative, 0), "%s %% from %g to %s", bracketed(inc.Relative), st.from, x.at(st.to))
			}
		}
		return t
	})
}

// beyondProportion judges whether a metric rises on a step by a larger factor than
// the level does. The claim holds when the interval of the one factor over the other
// lies above 1, and does not when it lies below 1 + δ, where a rise would not
// matter. Where both are so, the latter decides.
func beyondProportion(from, to float64) criterion {
	return ofDevice(func(k asked, x repetition, r router) tally {
		st := step{from, to}
		t := tally{steps: []step{st}, needed: 1, none: x.noStep(st), says: "where proportional is 1, " + k.Metric.Noun + " rises by %s", why: k.Why}
		if inc, ok := r.taken(k.Metric, st); ok {
			p := each(ratioOf(inc.Relative), func(n analysis.Number) analysis.Number { return n * analysis.Number(from/to) })
			where := beyond(p, 1)
			if p.HasInterval() && float64(p.Hi) <= 1+r.Delta {
				where = outside
			}
			t.add(p, where, "%s from %g to %s", bracketed(p), from, x.at(to))
		}
		return t
	}, from, to)
}

func (x repetition) noStep(st step) string {
	return fmt.Sprintf("no step from %g to %s that counts", st.from, x.at(st.to))
}

// negligible judges whether the relative increase between two levels lies within δ.
func negligible(from, to float64) criterion {
	return ofDevice(func(k asked, x repetition, r router) tally {
		st := step{from, to}
		t := tally{steps: []step{st}, needed: 1, none: x.noStep(st), says: k.Metric.Noun + " rises by %s", unit: " %", why: k.Why}
		inc, ok := r.rise(k.Metric, st)
		if !ok || !r.carries(from) || !r.carries(to) {
			return t
		}
		rise := inc.Relative
		t.steps = nil // the levels between do not matter
		t.add(rise, within(ratioOf(rise), r.Delta), "%s %% from %g to %s%s", bracketed(rise), from, x.at(to), besideClean(inc))
		t.figure, t.detail = k.Metric.Noun+" rises by "+bracketed(rise)+" %", fmt.Sprintf("%s; %g to %s, %s", blocks(rise), from, x.at(to), x.held())
		if inc.Beside.HasInterval() {
			t.figure += ", over the clean router's by " + bracketed(inc.Beside) + " %"
		}
		if rise.Hi < 0 {
			t.why.Fails = k.Why.Other
		}
		return t
	}, from, to)
}

// besideClean is by how much the device's overhead ratio rises.
func besideClean(increases ...increase) string {
	var figures []string
	for _, inc := range increases {
		if inc.Beside.HasInterval() {
			figures = append(figures, bracketed(inc.Beside)+" %")
		}
	}
	if len(figures) == 0 {
		return ""
	}
	return "; over the clean router beside it, by " + words.Listed(figures)
}

// largestFirst judges whether the first step has the largest net increase: its lower
// bound must lie above 0 and above the upper bounds of the others. The claim does
// not hold when another's lower bound is above its upper bound, or when the relative
// increase on it stays below δ, where there is no rise to speak of.
func largestFirst() criterion {
	return ofDevice(func(k asked, x repetition, r router) tally {
		t := tally{steps: x.stepsTo(math.Inf(1)), needed: 1, none: "no step that counts", unit: " " + k.Metric.Short, why: k.Why}
		var increases []increase
		first, taken := r.taken(k.Metric, t.steps[0])
		where, complete := beyond(first.Net, 0), true
		for i, st := range t.steps {
			inc, ok := r.taken(k.Metric, st)
			if !ok {
				complete = false
				continue
			}
			increases = append(increases, inc)
			t.add(inc.Net, across, "%s %s (%s %%) from %g to %s", bracketed(inc.Net), k.Metric.Short, bracketed(inc.Relative), st.from, x.at(st.to))
			complete = complete && (i == 0 || first.Net.Lo > inc.Net.Hi)
			if increases[0].Net.Mean < inc.Net.Mean {
				t.unit = " " + k.Metric.Short + ", so that its own table does not show what its text says"
			}
			if taken && inc.Net.Lo > first.Net.Hi {
				t.sides[outside]++
			}
		}
		if t.sides[outside] == 0 && taken && first.Net.HasInterval() && float64(first.Relative.Hi) <= 100*r.Delta {
			t.sides[outside], t.why.Fails = 1, k.Why.Other
		}
		if complete && where == inside {
			t.sides[inside] = 1
		}
		t.says = k.Metric.Noun + " rises by %s" + besideClean(increases...)
		return t
	})
}

// dominates weighs all of one sweep against all of another. The claim holds when
// the lower bound of the factor by which the first raises the metric is above the
// upper bound of that of the second, and does not when it is the other way round.
// Where the device cannot carry the first to its end, the highest level it carries
// is taken, which can prove the claim, but not disprove it. Nor can the second at
// another value of what it holds.
func dominates() criterion {
	return func(k asked) judgement {
		first, s := k.sweeps[k.Sweeps[0]].study, k.sweeps[k.Sweeps[1]]
		all, ends := first.ends(), s.study.ends()
		levels := []float64{ends.from, ends.to}
		second := s.judged(levels, k.id)
		a, b := first.router(k.id), second.router(k.id)
		if !a.measured() {
			return first.unmeasured(a)
		} else if !b.measured() {
			return second.unmeasured(b)
		}
		j := judgement{here: "no factors to compare in runs " + a.Run + " and " + b.Run,
			study: tally{used: []analysis.Estimate{a.published.factor(k.Metric, all), b.published.factor(k.Metric, ends)}, unit: " times"}.means()}
		st := step{all.from, 0}
		for _, at := range first.Levels {
			if a.carries(at) && a.carries(all.from) {
				st.to = at
			}
		}
		short := ""
		if st.to < all.to {
			short = first.blocked(a, first.Levels...)
		}
		if j.expect = second.blocked(b, levels...); st.to <= st.from {
			j.expect = short
		}
		if j.expect != "" {
			return j
		}
		one, other := a.factor(k.Metric, st), b.factor(k.Metric, ends)
		j.weigh(k.Metric, one, other, weighed{first, a, st}, weighed{second, b, ends}, s.elsewhere(second, levels, k.id))
		switch less := one.Hi < other.Lo; {
		case one.Lo > other.Hi:
			j.settle(inside, "")
		case short != "":
			j.expect = short
		case less && second.At != s.study.At:
			j.expect = fmt.Sprintf(k.Why.Moved, second.held(), s.study.held())
		case less:
			j.settle(outside, k.Why.Fails)
		default:
			j.settle(across, "")
		}
		return j
	}
}

// factor is that by which a metric rises between two levels.
func (c course) factor(m Metric, st step) analysis.Estimate {
	if inc, ok := c.rise(m, st); ok {
		return ratioOf(inc.Relative)
	}
	return nothing()
}

// weighed is one of two sweeps that are held against each other.
type weighed struct {
	x  repetition
	r  router
	st step
}

// weigh says by what factors two sweeps raise a metric.
func (j *judgement) weigh(m Metric, one, other analysis.Estimate, a, b weighed, elsewhere string) {
	times, otherTimes, n := a.st.to/a.st.from, b.st.to/b.st.from, blocks(one, other)
	noun, otherNoun, reach := a.x.along().Noun, b.x.along().Noun, fmt.Sprintf("%g to %s", a.st.from, a.x.at(a.st.to))
	j.here = fmt.Sprintf("%g times the %s takes %s times the %s (%s; run %s), %g times the %s %s times (%g to %g; run %s); %s%s",
		times, noun, bracketed(one), m.Noun, reach, a.r.Run, otherTimes, otherNoun, bracketed(other), b.st.from, b.st.to, b.r.Run, n, elsewhere)
	j.figure = fmt.Sprintf("× %s by %g × the %s, × %s by %g × the %s", bracketed(one), times, noun, bracketed(other), otherTimes, otherNoun)
	j.detail = fmt.Sprintf("%s; %s, %s at %s", n, reach, otherNoun, b.x.held())
}
