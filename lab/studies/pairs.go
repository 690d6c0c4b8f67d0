package studies

import (
	"fmt"
	"math"

	"github.com/gateweigh/gateweigh/lab/analysis"

	"github.com/gateweigh/gateweigh/lab/words"
)

// compared is a pair at the place where a claim on it is judged.
type compared struct {
	repetition
	ratio func(level float64) (ratio, widening analysis.Estimate)
	delta float64
	run   string // with what to know of the place, for the end of a sentence
}

// ofPair judges a pair at the place where both devices carried the levels that a
// claim needs.
func ofPair(levels func(step) []float64, judge func(asked, compared, *judgement)) criterion {
	return func(k asked) judgement {
		s, p := k.sweeps[k.Sweeps[0]], k.pair
		needed := levels(s.study.ends())
		c, here, expect := s.compare(p, needed)
		j := judgement{here: here, expect: expect, study: s.study.publishedApart(p, k.Metric, needed)}
		if here == "" {
			judge(k, c, &j)
		}
		return j
	}
}

// compare finds the place. Where there is none, it says what is lacking here and
// what to expect.
func (s repeated) compare(p Pair, levels []float64) (c compared, here, expect string) {
	for _, dut := range []string{p.Second, p.First} {
		if x := s.of(dut); !x.router(dut).measured() {
			j := x.unmeasured(x.router(dut))
			return c, dut + " " + j.here, x.router(dut).StandsIn + j.expect
		}
	}
	x, ok := s.carrying(levels, p.First, p.Second)
	if !ok {
		here, expect = s.notTogether(p, levels)
		return c, here, expect
	}
	a, b := x.router(p.First), x.router(p.Second)
	ratio, ok := x.from.between(a, b, x.Sweep)
	if !ok {
		return c, "measured in different profiles in run " + a.Run, x.together(a, b)
	}
	return compared{x, ratio, a.Delta, "run " + a.Run + s.elsewhere(x, levels, p.First, p.Second)}, "", ""
}

// notTogether says of a pair that carried the levels in no run together what kept
// it from that in the first run that has both.
func (s repeated) notTogether(p Pair, levels []float64) (here, expect string) {
	for _, x := range s.places {
		a, b := x.router(p.First), x.router(p.Second)
		if !a.measured() || !b.measured() {
			continue
		}
		here = "no factors that count in run " + a.Run
		for _, r := range []router{a, b} {
			if limited, _ := x.short(r, levels); len(limited) > 0 {
				return here, opening(r.Name) + " could not carry the load " + x.atAll(limited) + notKnown + ". " + x.together(a, b)
			}
			if expect = x.blocked(r, levels...); expect != "" {
				return here, expect
			}
		}
	}
	return "not measured in the same run", s.study.together(s.study.router(p.First).bare(), s.study.router(p.Second).bare())
}

// together is how to measure two devices in one run.
func (x repetition) together(a, b router) string {
	duts := "duts=" + a.DUT + "," + b.DUT
	text := x.command(duts) + " measures both"
	if load := x.lightLoad(a, b); load > 0 {
		text = x.command(duts, fmt.Sprintf("%s=%g", x.Held, load)) + " has a load both can carry"
	}
	return text + "; " + bothRuns
}

// converges judges whether what two devices cost comes nearer to each other from
// the lowest level to the highest, by how the distance from 1 of the quotient of
// their overhead ratios changes: it must shrink by more than δ. The claim does not
// hold when it shrinks by less, or grows.
func converges() criterion {
	both := func(ends step) []float64 { return []float64{ends.from, ends.to} }
	return ofPair(both, func(k asked, c compared, j *judgement) {
		ends, p := c.ends(), k.pair
		before, _ := c.ratio(ends.from)
		after, change := c.ratio(ends.to)
		n, few, many := blocks(before, after, change), c.atAll([]float64{ends.from}), c.atAll([]float64{ends.to})
		j.here = fmt.Sprintf("%s costs × %s of %s %s, × %s %s; the factor between the dearer and the cheaper becomes × %s as large; %s; %s",
			p.First, bracketed(before), p.Second, few, bracketed(after), many, bracketed(change), n, c.run)
		j.figure = fmt.Sprintf("× %s, then × %s: factor between them × %s", bracketed(before), bracketed(after), bracketed(change))
		j.detail = fmt.Sprintf("%s; %s over %s; %g and %s, %s", n, p.First, p.Second, ends.from, c.at(ends.to), c.held())
		fails := p.Why + p.Apart
		if within(before, c.delta) == inside && change.Lo <= 1 {
			fails = fmt.Sprintf("They cost the same %s already, so there is no difference that could shrink.", few)
		}
		nearer := analysis.Estimate{Mean: 1 / change.Mean, Lo: 1 / change.Hi, Hi: 1 / change.Lo, N: change.N}
		j.settle(beyond(nearer, 1+c.delta), fails)
	})
}

// alike judges whether two devices cost the same at the highest level: whether the
// quotient of their overhead ratios lies within δ.
func alike() criterion { return atHighest(within) }

// larger judges whether the first of two devices costs more at the highest level:
// whether the quotient of their overhead ratios lies above 1.
func larger() criterion {
	return atHighest(func(e analysis.Estimate, _ float64) side { return beyond(e, 1) })
}

func atHighest(place func(e analysis.Estimate, delta float64) side) criterion {
	highest := func(ends step) []float64 { return []float64{ends.to} }
	return ofPair(highest, func(k asked, c compared, j *judgement) {
		most := c.ends().to
		factor, _ := c.ratio(most)
		j.here = fmt.Sprintf("%s costs × %s of %s %s; %s; %s", k.pair.First, bracketed(factor), k.pair.Second, c.atAll([]float64{most}), blocks(factor), c.run)
		j.settle(place(factor, c.delta), k.pair.Why)
	})
}

// publishedApart is the factor between the dearer and the cheaper of the pair in
// the study.
func (x repetition) publishedApart(p Pair, m Metric, levels []float64) string {
	var parts []string
	for _, at := range levels {
		quotient := x.router(p.First).published.estimate(m, at).Mean / x.router(p.Second).published.estimate(m, at).Mean
		if quotient.Known() {
			factor := math.Exp(math.Abs(math.Log(float64(quotient))))
			parts = append(parts, "× "+digits(analysis.Number(factor))+" "+x.atAll([]float64{at}))
		}
	}
	return words.Listed(parts)
}
