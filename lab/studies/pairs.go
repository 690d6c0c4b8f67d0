package studies

import (
	"fmt"
	"math"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// ofPair judges a pair by the first repetition in which both devices carried the highest level. With lowest, they must
// also have carried the lowest level. Without such a repetition the finding says what is missing. judge gets the second
// device and the end of the sentence in Here.
func ofPair(lowest bool, judge func(j *judgement, second router, end string)) criterion {
	return func(j *judgement) {
		s, p := j.sweeps[0], j.subject.pair
		levels := s.study().lowestToHighest().levels()
		if !lowest {
			levels = levels[1:]
		}
		j.study = s.study().publishedApart(p, j.metric, levels)
		for _, dut := range []string{p.Second, p.First} {
			if x := s.firstWith(dut); !x.router(dut).measured() {
				j.unmeasured(x, x.router(dut))
				j.Here, j.Expect = dut+" "+j.Here, x.router(dut).StandsIn+j.Expect
				return
			}
		}
		x, ok := s.carrying(levels, p.First, p.Second)
		a, b := x.router(p.First), x.router(p.Second)
		switch {
		case !ok:
			j.Here, j.Expect = s.notTogetherReason(p, levels)
		case a.profile() != b.profile():
			j.Here, j.Expect = "measured in different profiles in run "+a.Run, x.togetherRemedy(a, b)
		default:
			j.x, j.r, j.why.Fails = x, a, p.Why
			judge(j, b, "; run "+a.Run+s.otherValueText(x, levels, p.First, p.Second))
		}
	}
}

// notTogetherReason says why in no run both devices of a pair carried the levels. It gives the reason in the first run
// that has both, or says that no run has both.
func (s repetitionsOfSweep) notTogetherReason(p Pair, levels []float64) (here, expect string) {
	for _, x := range s[1:] {
		a, b := x.router(p.First), x.router(p.Second)
		if !a.measured() || !b.measured() {
			continue
		}
		here = "no factors that count in run " + a.Run
		for _, r := range []router{a, b} {
			if limited, _ := x.limitedAndAbsent(r, levels); len(limited) > 0 {
				expect = atSentenceStart(r.Name) + " could not carry the load " + x.atAll(limited...) + notKnown + ". "
				return here, expect + x.togetherRemedy(a, b)
			}
			if expect = x.blocked(r, levels...); expect != "" {
				return here, expect
			}
		}
	}
	x := s.study()
	return "not measured in the same run", x.togetherRemedy(x.router(p.First).bare(), x.router(p.Second).bare())
}

// togetherRemedy says how to measure two devices in one run.
func (x repetition) togetherRemedy(a, b router) string {
	sets, ending := []string{"duts=" + a.DUT + "," + b.DUT}, " measures both"
	if load := x.lightLoad(a, b); load > 0 {
		sets, ending = append(sets, fmt.Sprintf("%s=%g", x.Held, load)), " has a load both can carry"
	}
	return x.command(sets...) + ending + "; " + bothRuns
}

// unit is an exact estimate of 1.
var unit = analysis.Estimate{Mean: 1, Lo: 1, Hi: 1, N: math.MaxInt}

// factorBetween returns the factor between the costs of the more and the less expensive of two devices, from their
// quotient.
func factorBetween(e analysis.Estimate) analysis.Estimate {
	if e.Mean < 1 {
		return quotient(unit, e)
	}
	return e
}

// factors returns the metric of the first device divided by that of the second at a level. widening is the factor
// between the more and the less expensive there, divided by the same factor at the lowest level. For overhead ratios
// over clients, the run compares the devices round by round. For other metrics the bounds are the widest that both
// devices' bounds allow.
func (j *judgement) factors(b router, level float64) (ratio, widening analysis.Estimate) {
	q, ok := j.x.from.Between(j.r.DUT, b.DUT, j.x.Fixed.With(result.Profile, b.profile()))
	if ok && j.metric.Change == cost.PerBit && j.x.Along == result.Clients {
		for _, l := range q.Levels {
			if float64(l.Clients) == level {
				return l.Ratio, l.Widening
			}
		}
	}
	over := func(level float64) analysis.Estimate {
		return quotient(j.r.estimate(j.metric, level), b.estimate(j.metric, level))
	}
	return over(level), quotient(factorBetween(over(level)), factorBetween(over(j.x.lowestToHighest().from)))
}

// converges judges whether the costs of two devices converge from the lowest level to the highest. The factor between
// the more and the less expensive must shrink by more than δ. The claim fails if that factor shrinks by less, or grows.
func converges() criterion {
	return ofPair(true, func(j *judgement, b router, end string) {
		x, p, ends := j.x, j.subject.pair, j.x.lowestToHighest()
		before, _ := j.factors(b, ends.from)
		after, change := j.factors(b, ends.to)
		first, last, factor := meanWithInterval(before), meanWithInterval(after), meanWithInterval(change)
		n, few := blocks(before, after, change), x.atAll(ends.from)
		j.Here = fmt.Sprintf("%s costs × %s of %s %s, × %s %s; the factor between the more and the less expensive "+
			"becomes × %s as large; %s%s", p.First, first, p.Second, few, last, x.atAll(ends.to), factor, n, end)
		j.figure = fmt.Sprintf("× %s, then × %s: factor between them × %s", first, last, factor)
		j.detail = fmt.Sprintf(
			"%s; %s over %s; %g and %s, %s", n, p.First, p.Second, ends.from, x.levelText(ends.to), x.held())
		j.why.Fails += p.Apart
		if placeRatio(before, j.r.Delta) == insideBounds && change.Lo <= 1 {
			j.why.Fails = fmt.Sprintf("They cost the same %s already, so there is no difference that could shrink.", few)
		}
		j.decide(placeAgainst(quotient(unit, change), 1+j.r.Delta))
	})
}

// costsAlike judges whether two devices cost the same at the highest level. The quotient of their costs must be within
// δ.
func costsAlike() criterion { return atHighest(placeRatio) }

// costsMore judges whether the first of two devices costs more at the highest level. The quotient must be above 1.
func costsMore() criterion {
	return atHighest(func(e analysis.Estimate, _ float64) boundSide { return placeAgainst(e, 1) })
}

func atHighest(place func(e analysis.Estimate, delta float64) boundSide) criterion {
	return ofPair(false, func(j *judgement, b router, end string) {
		most := j.x.lowestToHighest().to
		factor, _ := j.factors(b, most)
		j.Here = fmt.Sprintf("%s costs × %s of %s %s; %s%s",
			j.r.DUT, meanWithInterval(factor), b.DUT, j.x.atAll(most), blocks(factor), end)
		j.decide(place(factor, j.r.Delta))
	})
}

// publishedApart says by what factor the costs of the pair differ in the study.
func (x repetition) publishedApart(p Pair, m Metric, levels []float64) string {
	a, b := x.router(p.First).published, x.router(p.Second).published
	return words.ListOf(levels, func(level float64) string {
		factor := factorBetween(quotient(a.estimate(m, level), b.estimate(m, level))).Mean
		return words.When(factor.Known(), "× "+threeDigits(factor)+" "+x.atAll(level))
	})
}
