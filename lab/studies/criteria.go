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
type criterion func(*judgement)

// judgement is what the runs say of a claim for one subject. A criterion leaves the name
// of the subject and the full stop out of Here.
type judgement struct {
	analysis.Finding
	claim          string // its ID
	metric         Metric
	why            Why // the explanations that fit
	subject        subject
	sweeps         []repeated      // the claim's
	study          string          // the study's figures for the same subject; empty when it has none
	figure, detail string          // the same in short, for a table; empty when there is none
	least          analysis.Number // decides between two claims that answer one question

	x       repetition // where the claim is judged
	r       router     // of what: the device, or the first of a pair
	used    []analysis.Estimate
	figures []string // the same in words
	sides   [3]int   // how many lie across, inside and outside
	needed  int      // so many inside, and none outside, for the claim to hold
	steps   []step   // that these are of
	lacking string   // why there are fewer than needed; empty: the steps say so
	says    string   // sentence with %s for the figures
	none    string   // instead, where there are none
	unit    string   // of the study's figures
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
func (j *judgement) settle(s side) {
	if holds := s == inside; s != across {
		j.Holds = &holds
	}
	switch s {
	case outside:
		j.Expect = j.why.Fails
	case across:
		j.Open, j.Expect = true, "The interval leaves it open; more blocks narrow it (`--set blocks=N`)."
	}
}

func (j *judgement) add(e analysis.Estimate, s side, words string) {
	j.used, j.figures = append(j.used, e), append(j.figures, words)
	j.sides[s]++
}

// means are estimates without their intervals.
func means(unit string, estimates ...analysis.Estimate) string {
	text := words.ListOf(estimates, func(e analysis.Estimate) string {
		return words.When(e.Mean.Known(), digits(e.Mean))
	})
	return words.When(text != "", text+unit)
}

// ofDevice judges one device, at the place where it carried some levels (none: all
// of the sweep). What collects its figures does the same with the study's.
func ofDevice(collect func(*judgement), levels ...float64) criterion {
	return func(j *judgement) {
		s, needed := j.sweeps[0], levels
		if len(levels) == 0 {
			needed = s.study().Levels
		}
		j.x = s.judged(needed, j.subject.id)
		if j.r = j.x.router(j.subject.id); !j.r.measured() {
			j.unmeasured(j.x, j.r)
			return
		}
		published := *j
		published.r = router{course: j.r.published}
		collect(&published)
		collect(j)
		j.study, j.Here = means(published.unit, published.used...), j.none+" in"
		if len(j.used) > 0 {
			j.Here = strings.Replace(j.says, "%s", words.Listed(j.figures), 1) + "; " + blocks(j.used...) + ";"
		}
		j.Here += " run " + j.r.Run + s.elsewhere(j.x, needed, j.r.DUT)
		switch {
		case j.sides[outside] > 0:
			j.settle(outside)
		case j.lacking != "":
			j.Expect = j.lacking
		case j.sides[inside] == j.needed:
			j.settle(inside)
			j.Expect = j.why.Beyond
		default:
			if j.Expect = j.x.uncounted(j.r, j.steps); j.Expect == "" {
				j.settle(across)
			}
		}
	}
}

// above judges whether a metric exceeds a bound at every level. A level at which
// the device could not carry the load counts: what it carried, it paid for.
func above(bound float64) criterion {
	return ofDevice(func(j *judgement) {
		j.says, j.none, j.needed = j.metric.Noun+" is %s", "no "+j.metric.Short, len(j.x.Levels)
		of := func(at float64) analysis.Estimate { return j.r.estimate(j.metric, at) }
		known, absent := split(j.x.Levels, func(at float64) bool { return of(at).Mean.Known() })
		for _, at := range known {
			limit := words.When(j.r.atLimit(at), " (at its limit)")
			j.add(of(at), beyond(of(at), bound), bracketed(of(at))+" "+j.x.atAll(at)+limit)
		}
		if len(absent) > 0 {
			j.lacking = fmt.Sprintf("Not measured %s; %s has all levels.", j.x.atAll(absent...), j.x.command())
		}
		if len(known) > 0 {
			at := slices.MinFunc(known, func(a, b float64) int { return cmp.Compare(of(a).Mean, of(b).Mean) })
			j.figure, j.least = "least × "+bracketed(of(at)), of(at).Mean
			j.detail = fmt.Sprintf("%s; %s, %s", blocks(of(at)), j.x.at(at), j.x.held())
		}
		more := func(at float64) bool { return of(at).Lo > j.r.published.estimate(j.metric, at).Mean }
		if _, others := split(j.x.Levels, more); len(others) > 0 {
			j.why.Beyond = ""
		}
		if j.r.Published == "" && j.why.New != "" {
			j.why.Fails = j.why.New
		}
	})
}

// rises asks by how much the metric rises on each of some steps.
func (j *judgement) rises(unit string, steps ...step) {
	j.steps, j.needed, j.unit = steps, len(steps), unit
	j.says, j.none = j.metric.Noun+" rises by %s", "no step that counts"
	if len(steps) == 1 {
		j.none = "no step " + j.x.span(steps[0]) + " that counts"
	}
}

// linear judges how straight a metric runs up to a level, a constant share allowed:
// from each step to the next, what a further unit of the dimension costs may change
// by a factor within a tolerance.
func linear(to, tolerance float64) criterion {
	return ofDevice(func(j *judgement) {
		d := j.x.along()
		j.rises("", j.x.stepsTo(to)...)
		j.needed, j.none = len(j.steps)-1, "no two steps up to "+j.x.at(to)+" that count"
		j.says = "a further " + d.One + " costs, over one on the step before, %s " + d.Many + j.r.fits
		for i, next := range j.steps[1:] {
			a, ok := j.r.taken(j.metric, j.steps[i])
			b, also := j.r.taken(j.metric, next)
			if ok && also {
				g := marginal(ratioOf(a.Relative), ratioOf(b.Relative), j.steps[i], next)
				j.add(g, within(g, tolerance), fmt.Sprintf("%s from %g to %g", bracketed(g), next.from, next.to))
			}
		}
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
	return ofDevice(func(j *judgement) {
		j.rises(" %", j.x.stepsTo(math.Inf(1))...)
		for _, st := range j.steps {
			if inc, ok := j.r.taken(j.metric, st); ok {
				j.add(inc.Relative, beyond(inc.Relative, 0), bracketed(inc.Relative)+" % "+j.x.span(st))
			}
		}
	})
}

// beyondProportion judges whether a metric rises on a step by a larger factor than
// the level does. The claim holds when the interval of the one factor over the other
// lies above 1, and does not when it lies below 1 + δ, where a rise would not
// matter. Where both are so, the latter decides.
func beyondProportion(from, to float64) criterion {
	st := step{from, to}
	return ofDevice(func(j *judgement) {
		j.rises("", st)
		j.says = "where proportional is 1, " + j.says
		if inc, ok := j.r.taken(j.metric, st); ok {
			p := each(ratioOf(inc.Relative), func(n analysis.Number) analysis.Number { return n * analysis.Number(from/to) })
			where := beyond(p, 1)
			if p.HasInterval() && float64(p.Hi) <= 1+j.r.Delta {
				where = outside
			}
			j.add(p, where, bracketed(p)+" "+j.x.span(st))
		}
	}, from, to)
}

// negligible judges whether the relative increase between two levels lies within δ,
// whatever levels are between them.
func negligible(from, to float64) criterion {
	st := step{from, to}
	return ofDevice(func(j *judgement) {
		j.rises(" %", st)
		inc, ok := j.r.rise(j.metric, st)
		if !ok || !j.r.carries(from) || !j.r.carries(to) {
			return
		}
		rise := inc.Relative
		j.steps = nil
		j.add(rise, within(ratioOf(rise), j.r.Delta), bracketed(rise)+" % "+j.x.span(st)+besideClean(inc))
		j.figure = j.metric.Noun + " rises by " + bracketed(rise) + " %"
		j.detail = fmt.Sprintf("%s; %g to %s, %s", blocks(rise), from, j.x.at(to), j.x.held())
		j.figure += words.When(inc.Beside.HasInterval(), ", over the clean router's by "+bracketed(inc.Beside)+" %")
		if rise.Hi < 0 {
			j.why.Fails = j.why.Other
		}
	}, from, to)
}

// besideClean is by how much the device's overhead ratio rises.
func besideClean(increases ...increase) string {
	text := words.ListOf(increases, func(inc increase) string {
		return words.When(inc.Beside.HasInterval(), bracketed(inc.Beside)+" %")
	})
	return words.When(text != "", "; over the clean router beside it, by "+text)
}

// largestFirst judges whether the first step has the largest net increase: its lower
// bound must lie above 0 and above the upper bounds of the others. The claim does
// not hold when another's lower bound is above its upper bound, or when the relative
// increase on it stays below δ, where there is no rise to speak of.
func largestFirst() criterion {
	return ofDevice(func(j *judgement) {
		j.rises(" "+j.metric.Short, j.x.stepsTo(math.Inf(1))...)
		var increases []increase
		first, taken := j.r.taken(j.metric, j.steps[0])
		largest := beyond(first.Net, 0) == inside
		for i, st := range j.steps {
			inc, ok := j.r.taken(j.metric, st)
			largest = largest && ok && (i == 0 || first.Net.Lo > inc.Net.Hi)
			if !ok {
				continue
			}
			increases = append(increases, inc)
			j.add(inc.Net, across, fmt.Sprintf("%s %s (%s %%) %s",
				bracketed(inc.Net), j.metric.Short, bracketed(inc.Relative), j.x.span(st)))
			if increases[0].Net.Mean < inc.Net.Mean {
				j.unit = " " + j.metric.Short + ", so that its own table does not show what its text says"
			}
			if taken && inc.Net.Lo > first.Net.Hi {
				j.sides[outside]++
			}
		}
		if j.sides[outside] == 0 && taken && first.Net.HasInterval() && float64(first.Relative.Hi) <= 100*j.r.Delta {
			j.sides[outside], j.why.Fails = 1, j.why.Other
		}
		if j.needed = 1; largest {
			j.sides[inside] = 1
		}
		j.says += besideClean(increases...)
	})
}

// dominates weighs all of one sweep against all of another. The claim holds when
// the lower bound of the factor by which the first raises the metric is above the
// upper bound of that of the second, and does not when it is the other way round.
// Where the device cannot carry the first to its end, the highest level it carries
// is taken, which can prove the claim, but not disprove it. Nor can the second at
// another value of what it holds.
func dominates() criterion {
	return func(j *judgement) {
		s, dut := j.sweeps[1], j.subject.id
		all, ends := j.sweeps[0].study().ends(), s.study().ends()
		first, second := j.sweeps[0].study(), s.judged(ends.levels(), dut)
		a, b := first.router(dut), second.router(dut)
		if !a.measured() {
			j.unmeasured(first, a)
			return
		} else if !b.measured() {
			j.unmeasured(second, b)
			return
		}
		j.study = means(" times", a.published.factor(j.metric, all), b.published.factor(j.metric, ends))
		j.Here = "no factors to compare in runs " + a.Run + " and " + b.Run
		carried, missed := split(first.Levels, a.carries)
		none, short := len(carried) < 2 || carried[0] != all.from, first.blocked(a, missed...)
		if j.Expect = second.blocked(b, ends.levels()...); none {
			j.Expect = short
		}
		if j.Expect != "" {
			return
		}
		reached := step{all.from, carried[len(carried)-1]}
		if reached == all {
			short = ""
		}
		one, other := a.factor(j.metric, reached), b.factor(j.metric, ends)
		j.weigh(weighed{first, a.Run, reached, one}, weighed{second, b.Run, ends, other})
		j.Here += s.elsewhere(second, ends.levels(), dut)
		switch less := one.Hi < other.Lo; {
		case one.Lo > other.Hi:
			j.settle(inside)
		case short != "":
			j.Expect = short
		case less && second.At != s.study().At:
			j.Expect = fmt.Sprintf(j.why.Moved, second.held(), s.study().held())
		case less:
			j.settle(outside)
		default:
			j.settle(across)
		}
	}
}

// weighed is the factor by which one of two sweeps raises a metric.
type weighed struct {
	repetition
	run    string
	st     step
	factor analysis.Estimate
}

// weigh says by what factors two sweeps raise the metric.
func (j *judgement) weigh(a, b weighed) {
	n, reach := blocks(a.factor, b.factor), fmt.Sprintf("%g to %s", a.st.from, a.at(a.st.to))
	times, otherTimes, noun, otherNoun := a.st.to/a.st.from, b.st.to/b.st.from, a.along().Noun, b.along().Noun
	one, other := bracketed(a.factor), bracketed(b.factor)
	j.Here = fmt.Sprintf("%g times the %s takes %s times the %s (%s; run %s), %g times the %s %s times (%g to %g; run %s); %s",
		times, noun, one, j.metric.Noun, reach, a.run, otherTimes, otherNoun, other, b.st.from, b.st.to, b.run, n)
	j.figure = fmt.Sprintf("× %s by %g × the %s, × %s by %g × the %s", one, times, noun, other, otherTimes, otherNoun)
	j.detail = fmt.Sprintf("%s; %s, %s at %s", n, reach, otherNoun, b.held())
}
