package studies

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/words"
)

// criterion judges a claim by the points of its sweeps, for one device or for one
// pair: what it comes to, the numbers, and the sentence that has them.
type criterion func(asked) judgement

// asked is a claim with what it is judged for.
type asked struct {
	beside
	Claim
	subject
}

// judgement is what the runs say of a claim for one subject. In the Here of a criterion,
// the name of the subject and the full stop are still to come.
type judgement struct {
	analysis.Finding
	claim          string // its ID
	subject        subject
	study          string          // the study's figures for the same subject; empty when it has none
	figure, detail string          // the same in short, for a table; empty when there is none
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
	if holds := s == inside; s != across {
		j.Holds = &holds
	}
	switch s {
	case outside:
		j.Expect = fails
	case across:
		j.Open, j.Expect = true, "The interval leaves it open; more blocks narrow it (`--set blocks=N`)."
	}
}

// question is a claim that is put to one router.
type question struct {
	Claim
	x repetition
	r router
}

// tally is what a criterion finds in one course.
type tally struct {
	judgement
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
}

func (t *tally) add(e analysis.Estimate, s side, words string) {
	t.used, t.figures = append(t.used, e), append(t.figures, words)
	t.sides[s]++
}

// means are estimates without their intervals.
func means(unit string, estimates ...analysis.Estimate) string {
	known := slices.DeleteFunc(estimates, func(e analysis.Estimate) bool { return !e.Mean.Known() })
	if len(known) == 0 {
		return ""
	}
	return words.ListOf(known, func(e analysis.Estimate) string { return digits(e.Mean) }) + unit
}

// ofDevice judges one device, at the place where it carried some levels (none: all
// of the sweep). What collects its figures does the same with the study's.
func ofDevice(collect func(question) tally, levels ...float64) criterion {
	return func(k asked) judgement {
		s, needed := k.sweeps[k.Sweeps[0]], levels
		if len(levels) == 0 {
			needed = s.study().Levels
		}
		x := s.judged(needed, k.id)
		r := x.router(k.id)
		if !r.measured() {
			return x.unmeasured(r)
		}
		t, published := collect(question{k.Claim, x, r}), collect(question{k.Claim, x, router{course: r.published}})
		j := t.judgement
		j.study, j.Here = means(published.unit, published.used...), t.none+" in run "+r.Run
		if len(t.used) > 0 {
			j.Here = strings.Replace(t.says, "%s", words.Listed(t.figures), 1) + "; " + blocks(t.used...) + "; run " + r.Run
		}
		j.Here += s.elsewhere(x, needed, r.DUT)
		switch {
		case t.sides[outside] > 0:
			j.settle(outside, t.why.Fails)
		case t.lacking != "":
			j.Expect = t.lacking
		case t.sides[inside] == t.needed:
			j.settle(inside, "")
			j.Expect = t.why.Beyond
		default:
			if j.Expect = x.uncounted(r, t.steps); j.Expect == "" {
				j.settle(across, "")
			}
		}
		return j
	}
}

// above judges whether a metric exceeds a bound at every level. A level at which
// the device could not carry the load counts: what it carried, it paid for.
func above(bound float64) criterion {
	return ofDevice(func(q question) tally {
		t := tally{says: q.Metric.Noun + " is %s", none: "no " + q.Metric.Short, needed: len(q.x.Levels), why: q.Why}
		of := func(at float64) analysis.Estimate { return q.r.estimate(q.Metric, at) }
		known, absent := split(q.x.Levels, func(at float64) bool { return of(at).Mean.Known() })
		for _, at := range known {
			limit := map[bool]string{true: " (at its limit)"}[q.r.atLimit(at)]
			t.add(of(at), beyond(of(at), bound), bracketed(of(at))+" "+q.x.atAll(at)+limit)
		}
		if len(absent) > 0 {
			t.lacking = fmt.Sprintf("Not measured %s; %s has all levels.", q.x.atAll(absent...), q.x.command())
		}
		if len(known) > 0 {
			at := slices.MinFunc(known, func(a, b float64) int { return cmp.Compare(of(a).Mean, of(b).Mean) })
			t.figure, t.least = "least × "+bracketed(of(at)), of(at).Mean
			t.detail = fmt.Sprintf("%s; %s, %s", blocks(of(at)), q.x.at(at), q.x.held())
		}
		if slices.ContainsFunc(q.x.Levels, func(at float64) bool { return !(of(at).Lo > q.r.published.estimate(q.Metric, at).Mean) }) {
			t.why.Beyond = ""
		}
		if q.r.Published == "" && q.Why.New != "" {
			t.why.Fails = q.Why.New
		}
		return t
	})
}

// rises is a tally of how much a metric rises on steps.
func (q question) rises(unit string, steps ...step) tally {
	return tally{steps: steps, needed: len(steps), unit: unit, none: "no step that counts", says: q.Metric.Noun + " rises by %s", why: q.Why}
}

// linear judges how straight a metric runs up to a level, a constant share allowed:
// from each step to the next, what a further unit of the dimension costs may change
// by a factor within a tolerance.
func linear(to, tolerance float64) criterion {
	return ofDevice(func(q question) tally {
		d, t := q.x.along(), q.rises("", q.x.stepsTo(to)...)
		t.needed, t.none = len(t.steps)-1, "no two steps up to "+q.x.at(to)+" that count"
		t.says = "a further " + d.One + " costs, over one on the step before, %s " + d.Many + q.r.fits
		for i, next := range t.steps[1:] {
			a, ok := q.r.taken(q.Metric, t.steps[i])
			b, also := q.r.taken(q.Metric, next)
			if ok && also {
				g := marginal(ratioOf(a.Relative), ratioOf(b.Relative), t.steps[i], next)
				t.add(g, within(g, tolerance), fmt.Sprintf("%s from %g to %g", bracketed(g), next.from, next.to))
			}
		}
		return t
	})
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
	return ofDevice(func(q question) tally {
		t := q.rises(" %", q.x.stepsTo(math.Inf(1))...)
		for _, st := range t.steps {
			if inc, ok := q.r.taken(q.Metric, st); ok {
				t.add(inc.Relative, beyond(inc.Relative, 0), bracketed(inc.Relative)+" % "+q.x.span(st))
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
	st := step{from, to}
	return ofDevice(func(q question) tally {
		t := q.rises("", st)
		t.says, t.none = "where proportional is 1, "+t.says, "no step "+q.x.span(st)+" that counts"
		if inc, ok := q.r.taken(q.Metric, st); ok {
			p := each(ratioOf(inc.Relative), func(n analysis.Number) analysis.Number { return n * analysis.Number(from/to) })
			where := beyond(p, 1)
			if p.HasInterval() && float64(p.Hi) <= 1+q.r.Delta {
				where = outside
			}
			t.add(p, where, bracketed(p)+" "+q.x.span(st))
		}
		return t
	}, from, to)
}

// negligible judges whether the relative increase between two levels lies within δ,
// whatever levels are between them.
func negligible(from, to float64) criterion {
	st := step{from, to}
	return ofDevice(func(q question) tally {
		t := q.rises(" %", st)
		t.none = "no step " + q.x.span(st) + " that counts"
		inc, ok := q.r.rise(q.Metric, st)
		if !ok || !q.r.carries(from) || !q.r.carries(to) {
			return t
		}
		rise := inc.Relative
		t.steps = nil
		t.add(rise, within(ratioOf(rise), q.r.Delta), bracketed(rise)+" % "+q.x.span(st)+besideClean(inc))
		t.figure = q.Metric.Noun + " rises by " + bracketed(rise) + " %"
		t.detail = fmt.Sprintf("%s; %g to %s, %s", blocks(rise), from, q.x.at(to), q.x.held())
		if inc.Beside.HasInterval() {
			t.figure += ", over the clean router's by " + bracketed(inc.Beside) + " %"
		}
		if rise.Hi < 0 {
			t.why.Fails = q.Why.Other
		}
		return t
	}, from, to)
}

// besideClean is by how much the device's overhead ratio rises.
func besideClean(increases ...increase) string {
	text := words.ListOf(increases, func(inc increase) string {
		if inc.Beside.HasInterval() {
			return bracketed(inc.Beside) + " %"
		}
		return ""
	})
	if text == "" {
		return ""
	}
	return "; over the clean router beside it, by " + text
}

// largestFirst judges whether the first step has the largest net increase: its lower
// bound must lie above 0 and above the upper bounds of the others. The claim does
// not hold when another's lower bound is above its upper bound, or when the relative
// increase on it stays below δ, where there is no rise to speak of.
func largestFirst() criterion {
	return ofDevice(func(q question) tally {
		t := q.rises(" "+q.Metric.Short, q.x.stepsTo(math.Inf(1))...)
		var increases []increase
		first, taken := q.r.taken(q.Metric, t.steps[0])
		largest := beyond(first.Net, 0) == inside
		for i, st := range t.steps {
			inc, ok := q.r.taken(q.Metric, st)
			largest = largest && ok && (i == 0 || first.Net.Lo > inc.Net.Hi)
			if !ok {
				continue
			}
			increases = append(increases, inc)
			t.add(inc.Net, across, fmt.Sprintf("%s %s (%s %%) %s", bracketed(inc.Net), q.Metric.Short, bracketed(inc.Relative), q.x.span(st)))
			if increases[0].Net.Mean < inc.Net.Mean {
				t.unit = " " + q.Metric.Short + ", so that its own table does not show what its text says"
			}
			if taken && inc.Net.Lo > first.Net.Hi {
				t.sides[outside]++
			}
		}
		if t.sides[outside] == 0 && taken && first.Net.HasInterval() && float64(first.Relative.Hi) <= 100*q.r.Delta {
			t.sides[outside], t.why.Fails = 1, q.Why.Other
		}
		if t.needed = 1; largest {
			t.sides[inside] = 1
		}
		t.says += besideClean(increases...)
		return t
	})
}

// weighed is one of two sweeps that are held against each other, up to where the
// device carried the load.
type weighed struct {
	repetition
	r  router
	st step
}

// dominates weighs all of one sweep against all of another. The claim holds when
// the lower bound of the factor by which the first raises the metric is above the
// upper bound of that of the second, and does not when it is the other way round.
// Where the device cannot carry the first to its end, the highest level it carries
// is taken, which can prove the claim, but not disprove it. Nor can the second at
// another value of what it holds.
func dominates() criterion {
	return func(k asked) judgement {
		first, s := k.sweeps[k.Sweeps[0]].study(), k.sweeps[k.Sweeps[1]]
		ends := s.study().ends()
		second := s.judged(ends.levels(), k.id)
		a, b := weighed{first, first.router(k.id), first.ends()}, weighed{second, second.router(k.id), ends}
		for _, w := range []weighed{a, b} {
			if !w.r.measured() {
				return w.unmeasured(w.r)
			}
		}
		j := judgement{study: means(" times", a.r.published.factor(k.Metric, a.st), b.r.published.factor(k.Metric, ends))}
		j.Here = "no factors to compare in runs " + a.r.Run + " and " + b.r.Run
		carried, missed := split(first.Levels, a.r.carries)
		short, none := "", len(carried) < 2 || carried[0] != a.st.from
		if none || carried[len(carried)-1] < a.st.to {
			short = first.blocked(a.r, missed...)
		}
		if j.Expect = second.blocked(b.r, ends.levels()...); none {
			j.Expect = short
		}
		if j.Expect != "" {
			return j
		}
		a.st.to = carried[len(carried)-1]
		one, other := j.weigh(k.Metric, a, b)
		j.Here += s.elsewhere(second, ends.levels(), k.id)
		switch less := one.Hi < other.Lo; {
		case one.Lo > other.Hi:
			j.settle(inside, "")
		case short != "":
			j.Expect = short
		case less && second.At != s.study().At:
			j.Expect = fmt.Sprintf(k.Why.Moved, second.held(), s.study().held())
		case less:
			j.settle(outside, k.Why.Fails)
		default:
			j.settle(across, "")
		}
		return j
	}
}

// weigh says by what factors two sweeps raise a metric.
func (j *judgement) weigh(m Metric, a, b weighed) (one, other analysis.Estimate) {
	one, other = a.r.factor(m, a.st), b.r.factor(m, b.st)
	n, reach := blocks(one, other), fmt.Sprintf("%g to %s", a.st.from, a.at(a.st.to))
	times, otherTimes, noun, otherNoun := a.st.to/a.st.from, b.st.to/b.st.from, a.along().Noun, b.along().Noun
	j.Here = fmt.Sprintf("%g times the %s takes %s times the %s (%s; run %s), %g times the %s %s times (%g to %g; run %s); %s",
		times, noun, bracketed(one), m.Noun, reach, a.r.Run, otherTimes, otherNoun, bracketed(other), b.st.from, b.st.to, b.r.Run, n)
	j.figure = fmt.Sprintf("× %s by %g × the %s, × %s by %g × the %s", bracketed(one), times, noun, bracketed(other), otherTimes, otherNoun)
	j.detail = fmt.Sprintf("%s; %s, %s at %s", n, reach, otherNoun, b.held())
	return one, other
}
