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

// criterion judges a claim for one device or one pair by the figures of the claim's sweeps. It sets the outcome, the
// figures, and the sentence with them (Here). The sentence has neither the subject's name nor a full stop.
type criterion func(*judgement)

// judgement is the outcome of a claim for one subject.
type judgement struct {
	analysis.Finding
	claim          string // ID of the claim
	metric         Metric
	why            Why // reasons that may explain the outcome
	subject        subject
	sweeps         []repetitionsOfSweep // sweeps of the claim
	study          string               // study's figures for the same subject; empty when it has none
	figure, detail string               // figures measured here in short form, for the table of answers; empty: none
	least          analysis.Number      // smallest figure; it decides between two claims that answer one question

	x        repetition // the repetition by which the claim is judged
	r        router     // the device, or the first one of a pair
	used     []analysis.Estimate
	figures  []string    // figures used, in words
	sides    [3]int      // number of estimates across, inside and outside
	needed   int         // the claim holds if this number is inside and none is outside
	steps    []levelStep // steps of the figures; they explain why there are fewer than needed
	lacking  string      // reason for fewer figures than needed; empty: the steps give it
	sentence string      // sentence with %s for the figures
	none     string      // replaces that sentence if there are no figures
	unit     string      // unit of the study's figures
}

// boundSide says where an interval is, relative to a range.
type boundSide int

const (
	acrossBound boundSide = iota // contains a bound, or there is no interval
	insideBounds
	outsideBounds
)

// opposite returns the side of an interval for a claim that denies another one.
func (s boundSide) opposite() boundSide {
	return [...]boundSide{acrossBound: acrossBound, insideBounds: outsideBounds, outsideBounds: insideBounds}[s]
}

// placeRatio says where an interval of a ratio is, relative to [1/(1+tolerance), 1+tolerance].
func placeRatio(e analysis.Estimate, tolerance float64) boundSide {
	return place(e, 1/(1+tolerance), 1+tolerance)
}

// placeAgainst says whether an interval is above a bound (inside) or below it (outside).
func placeAgainst(e analysis.Estimate, bound float64) boundSide { return place(e, bound, math.Inf(1)) }

func place(e analysis.Estimate, lo, hi float64) boundSide {
	switch {
	case !e.HasInterval():
		return acrossBound
	case float64(e.Lo) >= lo && float64(e.Hi) <= hi:
		return insideBounds
	case float64(e.Hi) < lo || float64(e.Lo) > hi:
		return outsideBounds
	}
	return acrossBound
}

// decide sets the outcome from the side of the claim's interval.
func (j *judgement) decide(s boundSide) {
	if holds := s == insideBounds; s != acrossBound {
		j.Holds = &holds
	}
	switch s {
	case outsideBounds:
		j.Expect = j.why.Fails
	case acrossBound:
		j.Open, j.Expect = true, "The interval leaves it open; more blocks narrow it (`--set blocks=N`)."
	}
}

func (j *judgement) add(e analysis.Estimate, s boundSide, words string) {
	j.used, j.figures = append(j.used, e), append(j.figures, words)
	j.sides[s]++
}

// listMeans lists estimates without their intervals.
func listMeans(unit string, estimates ...analysis.Estimate) string {
	text := words.ListOf(estimates, func(e analysis.Estimate) string {
		return words.When(e.Mean.Known(), threeDigits(e.Mean))
	})
	return words.When(text != "", text+unit)
}

// ofDevice judges one device by the repetition in which it carried the given levels. Without levels, it must have
// carried the whole sweep. collect adds the figures of a router to a judgement. It is called for the published figures
// too.
func ofDevice(collect func(*judgement), levels ...float64) criterion {
	return func(j *judgement) {
		s, needed := j.sweeps[0], levels
		if len(levels) == 0 {
			needed = s.study().Levels
		}
		j.x = s.judgedAt(needed, j.subject.id)
		if j.r = j.x.router(j.subject.id); !j.r.measured() {
			j.unmeasured(j.x, j.r)
			return
		}
		published := *j
		published.r = router{measuredCourse: j.r.published}
		collect(&published)
		collect(j)
		j.study, j.Here = listMeans(published.unit, published.used...), j.none+" in"
		if len(j.used) > 0 {
			j.Here = strings.Replace(j.sentence, "%s", words.Listed(j.figures), 1) + "; " + blocks(j.used...) + ";"
		}
		j.Here += " run " + j.r.Run + s.otherValueText(j.x, needed, j.r.DUT)
		switch {
		case j.sides[outsideBounds] > 0:
			j.decide(outsideBounds)
		case j.lacking != "":
			j.Expect = j.lacking
		case j.sides[insideBounds] == j.needed:
			j.decide(insideBounds)
			j.Expect = j.why.Beyond
		default:
			if j.Expect = j.x.uncountedReason(j.r, j.steps); j.Expect == "" {
				j.decide(acrossBound)
			}
		}
	}
}

// alwaysAbove judges whether a metric exceeds a bound at every level. Levels at which the device is at its limit count
// too, because the metric is for each delivered bit.
func alwaysAbove(bound float64) criterion {
	return ofDevice(func(j *judgement) {
		j.sentence, j.none, j.needed = j.metric.Noun+" is %s", "no "+j.metric.Short, len(j.x.Levels)
		estimate := func(level float64) analysis.Estimate { return j.r.estimate(j.metric, level) }
		known, absent := split(j.x.Levels, func(level float64) bool { return estimate(level).Mean.Known() })
		for _, level := range known {
			limit := words.When(j.r.atLimit(level), " (at its limit)")
			j.add(estimate(level), placeAgainst(estimate(level), bound),
				meanWithInterval(estimate(level))+" "+j.x.atAll(level)+limit)
		}
		if len(absent) > 0 {
			j.lacking = fmt.Sprintf("Not measured %s; %s has all levels.", j.x.atAll(absent...), j.x.command())
		}
		if len(known) > 0 {
			level := slices.MinFunc(known, func(a, b float64) int { return cmp.Compare(estimate(a).Mean, estimate(b).Mean) })
			j.figure, j.least = "least × "+meanWithInterval(estimate(level)), estimate(level).Mean
			j.detail = fmt.Sprintf("%s; %s, %s", blocks(estimate(level)), j.x.levelText(level), j.x.held())
		}
		more := func(level float64) bool { return estimate(level).Lo > j.r.published.estimate(j.metric, level).Mean }
		if _, others := split(j.x.Levels, more); len(others) > 0 {
			j.why.Beyond = ""
		}
		if j.r.Published == "" && j.why.New != "" {
			j.why.Fails = j.why.New
		}
	})
}

// rises prepares a judgement of the rise of the metric on each step.
func (j *judgement) rises(unit string, steps ...levelStep) {
	j.steps, j.needed, j.unit = steps, len(steps), unit
	j.sentence, j.none = j.metric.Noun+" rises by %s", "no step that counts"
	if len(steps) == 1 {
		j.none = "no step " + j.x.stepText(steps[0]) + " that counts"
	}
}

// linear judges whether a metric follows a straight line up to a level. The line need not pass through 0. From each
// step to the next, the cost of a further unit of the dimension may change by a factor within the tolerance.
func linear(to, tolerance float64) criterion {
	return ofDevice(func(j *judgement) {
		d := j.x.along()
		j.rises("", j.x.stepsTo(to)...)
		j.needed, j.none = len(j.steps)-1, "no two steps up to "+j.x.levelText(to)+" that count"
		j.sentence = "a further " + d.One + " costs, over one on the step before, %s " + d.Many + j.r.fits
		for i, next := range j.steps[1:] {
			a, ok := j.r.stepRise(j.metric, j.steps[i])
			b, also := j.r.stepRise(j.metric, next)
			if ok && also {
				g := furtherUnitCost(ratioOf(a.Relative), ratioOf(b.Relative), j.steps[i], next)
				j.add(g, placeRatio(g, tolerance), fmt.Sprintf("%s from %g to %g", meanWithInterval(g), next.from, next.to))
			}
		}
	})
}

// furtherUnitCost returns the cost of a further unit of the dimension on a step, divided by that on the step before. a
// is the factor by which the metric rises on the step before, b that on the step. The result is a(b-1)/(a-1), scaled by
// the steps' lengths. Factors are computed block by block, so they are free of the machine's drift. Differences are
// not. The result falls with a and rises with b, so Lo uses a.Hi and b.Lo, and Hi uses a.Lo and b.Hi. It is absent for
// an a of at most 1.
func furtherUnitCost(a, b analysis.Estimate, before, next levelStep) analysis.Estimate {
	lengths := analysis.Number((before.to - before.from) / (next.to - next.from))
	cost := func(a, b analysis.Number) analysis.Number {
		if !(a > 1) {
			return analysis.Absent()
		}
		return a * (b - 1) / (a - 1) * lengths
	}
	return analysis.Estimate{Mean: cost(a.Mean, b.Mean), Lo: cost(a.Hi, b.Lo), Hi: cost(a.Lo, b.Hi), N: min(a.N, b.N)}
}

// monotone judges whether a metric rises on every step.
func monotone() criterion {
	return ofDevice(func(j *judgement) {
		j.rises(" %", j.x.stepsTo(math.Inf(1))...)
		for _, st := range j.steps {
			if inc, ok := j.r.stepRise(j.metric, st); ok {
				j.add(inc.Relative, placeAgainst(inc.Relative, 0), meanWithInterval(inc.Relative)+" % "+j.x.stepText(st))
			}
		}
	})
}

// beyondProportion judges whether a metric rises on a step by a larger factor than the level does. The claim holds if
// the interval of the quotient of the two factors is above 1. It fails if that interval is below 1 + δ, even if it is
// above 1, because such a rise does not matter.
func beyondProportion(from, to float64) criterion {
	st := levelStep{from, to}
	return ofDevice(func(j *judgement) {
		j.rises("", st)
		j.sentence = "where proportional is 1, " + j.sentence
		if inc, ok := j.r.stepRise(j.metric, st); ok {
			p := mapEstimate(
				ratioOf(inc.Relative), func(n analysis.Number) analysis.Number { return n * analysis.Number(from/to) })
			side := placeAgainst(p, 1)
			if p.HasInterval() && float64(p.Hi) <= 1+j.r.Delta {
				side = outsideBounds
			}
			j.add(p, side, meanWithInterval(p)+" "+j.x.stepText(st))
		}
	}, from, to)
}

// negligible judges whether the relative increase between two levels is within δ. There may be levels in between.
func negligible(from, to float64) criterion {
	st := levelStep{from, to}
	return ofDevice(func(j *judgement) {
		j.rises(" %", st)
		inc, ok := j.r.increaseOn(j.metric, st)
		if !ok || !j.r.carries(from) || !j.r.carries(to) {
			return
		}
		rise := inc.Relative
		j.steps = nil
		j.add(rise, placeRatio(ratioOf(rise), j.r.Delta), meanWithInterval(rise)+" % "+j.x.stepText(st)+besideClean(inc))
		j.figure = j.metric.Noun + " rises by " + meanWithInterval(rise) + " %"
		j.detail = fmt.Sprintf("%s; %g to %s, %s", blocks(rise), from, j.x.levelText(to), j.x.held())
		j.figure += words.When(inc.Beside.HasInterval(), ", over the clean router's by "+meanWithInterval(inc.Beside)+" %")
		if rise.Hi < 0 {
			j.why.Fails = j.why.Other
		}
	}, from, to)
}

// besideClean says by how much the device's overhead ratio rises.
func besideClean(increases ...increase) string {
	text := words.ListOf(increases, func(inc increase) string {
		return words.When(inc.Beside.HasInterval(), meanWithInterval(inc.Beside)+" %")
	})
	return words.When(text != "", "; over the clean router beside it, by "+text)
}

// largestFirst judges whether the first step has the largest net increase. The claim holds if the lower bound of this
// increase is above 0 and above the upper bounds of the other steps. It fails if the lower bound of another step is
// above the first step's upper bound, or if the upper bound of the relative increase on the first step is at most δ.
func largestFirst() criterion {
	return ofDevice(func(j *judgement) {
		j.rises(" "+j.metric.Short, j.x.stepsTo(math.Inf(1))...)
		var increases []increase
		first, taken := j.r.stepRise(j.metric, j.steps[0])
		largest := placeAgainst(first.Net, 0) == insideBounds
		for i, st := range j.steps {
			inc, ok := j.r.stepRise(j.metric, st)
			largest = largest && ok && (i == 0 || first.Net.Lo > inc.Net.Hi)
			if !ok {
				continue
			}
			increases = append(increases, inc)
			j.add(inc.Net, acrossBound, fmt.Sprintf("%s %s (%s %%) %s",
				meanWithInterval(inc.Net), j.metric.Short, meanWithInterval(inc.Relative), j.x.stepText(st)))
			if increases[0].Net.Mean < inc.Net.Mean {
				j.unit = " " + j.metric.Short + ", so that its own table does not show what its text says"
			}
			if taken && inc.Net.Lo > first.Net.Hi {
				j.sides[outsideBounds]++
			}
		}
		if j.sides[outsideBounds] == 0 && taken && first.Net.HasInterval() && float64(first.Relative.Hi) <= 100*j.r.Delta {
			j.sides[outsideBounds], j.why.Fails = 1, j.why.Other
		}
		if j.needed = 1; largest {
			j.sides[insideBounds] = 1
		}
		j.sentence += besideClean(increases...)
	})
}

// dominates compares the factors by which two whole sweeps raise the metric. The claim holds if the lower bound of the
// first factor is above the upper bound of the second. It fails in the reverse case. If the device cannot carry the
// first sweep to its end, the first factor is the one up to the highest level that it carries. Then the claim can hold
// but not fail. The same is true if the second sweep is judged at another value of Held.
func dominates() criterion {
	return func(j *judgement) {
		s, dut := j.sweeps[1], j.subject.id
		all, ends := j.sweeps[0].study().lowestToHighest(), s.study().lowestToHighest()
		first, second := j.sweeps[0].study(), s.judgedAt(ends.levels(), dut)
		a, b := first.router(dut), second.router(dut)
		if !a.measured() {
			j.unmeasured(first, a)
			return
		} else if !b.measured() {
			j.unmeasured(second, b)
			return
		}
		j.study = listMeans(" times", a.published.factor(j.metric, all), b.published.factor(j.metric, ends))
		j.Here = "no factors to compare in runs " + a.Run + " and " + b.Run
		carried, missed := split(first.Levels, a.carries)
		none, short := len(carried) < 2 || carried[0] != all.from, first.blocked(a, missed...)
		if j.Expect = second.blocked(b, ends.levels()...); none {
			j.Expect = short
		}
		if j.Expect != "" {
			return
		}
		reached := levelStep{all.from, carried[len(carried)-1]}
		if reached == all {
			short = ""
		}
		one, other := a.factor(j.metric, reached), b.factor(j.metric, ends)
		j.writeFactors(sweepFactor{first, a.Run, reached, one}, sweepFactor{second, b.Run, ends, other})
		j.Here += s.otherValueText(second, ends.levels(), dut)
		switch less := one.Hi < other.Lo; {
		case one.Lo > other.Hi:
			j.decide(insideBounds)
		case short != "":
			j.Expect = short
		case less && second.Fixed != s.study().Fixed:
			j.Expect = fmt.Sprintf(j.why.Moved, second.held(), s.study().held())
		case less:
			j.decide(outsideBounds)
		default:
			j.decide(acrossBound)
		}
	}
}

// sweepFactor is the factor by which a sweep raises a metric.
type sweepFactor struct {
	repetition
	run    string
	st     levelStep
	factor analysis.Estimate
}

// writeFactors writes the sentence, figure and detail for the factors of two sweeps.
func (j *judgement) writeFactors(a, b sweepFactor) {
	n, reach := blocks(a.factor, b.factor), fmt.Sprintf("%g to %s", a.st.from, a.levelText(a.st.to))
	times, otherTimes, noun, otherNoun := a.st.to/a.st.from, b.st.to/b.st.from, a.along().Noun, b.along().Noun
	one, other := meanWithInterval(a.factor), meanWithInterval(b.factor)
	j.Here = fmt.Sprintf(
		"%g times the %s takes %s times the %s (%s; run %s), %g times the %s %s times (%g to %g; run %s); %s",
		times, noun, one, j.metric.Noun, reach, a.run, otherTimes, otherNoun, other, b.st.from, b.st.to, b.run, n)
	j.figure = fmt.Sprintf("× %s by %g × the %s, × %s by %g × the %s", one, times, noun, other, otherTimes, otherNoun)
	j.detail = fmt.Sprintf("%s; %s, %s at %s", n, reach, otherNoun, b.held())
}
