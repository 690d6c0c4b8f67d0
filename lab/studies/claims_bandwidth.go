package studies

import (
	"fmt"

	"github.com/gateweigh/gateweigh/lab/analysis"
)

func doublesOverLoad(s study1, dut string) judgement { return s.load.doubles(dut) }

func doublesOverClients(s study1, dut string) judgement {
	x := s.forClients(s.clients.Levels, dut)
	j := x.doubles(dut)
	j.here += s.elsewhere(x, x.Levels, dut)
	return j
}

// doubles judges whether a portal costs more than twice the clean router. It
// does when the lower bound of its overhead ratio is above 2 at every level of
// the study, and does not when an upper bound is below 2 at any. A level at
// which it could not carry the load counts: what it carried, it paid for.
func (x experiment) doubles(dut string) judgement {
	r := x.router(dut)
	if !r.measured() {
		return x.unmeasured(r)
	}
	below, open := 0, 0
	var absent, figures []string
	var ratios []analysis.Estimate
	least, leastAt := nothing(), 0.0
	for _, at := range x.Levels {
		l, ok := r.levels[at]
		if !ok || !l.Ratio.Mean.Known() {
			absent = append(absent, x.at(at))
			continue
		}
		ratios = append(ratios, l.Ratio)
		if !least.Mean.Known() || l.Ratio.Mean < least.Mean {
			least, leastAt = l.Ratio, at
		}
		limit := ""
		if l.atLimit() {
			limit = " (at its limit)"
		}
		figures = append(figures, fmt.Sprintf("%s %s %s%s", bracketed(l.Ratio), x.by(), x.at(at), limit))
		switch {
		case l.Ratio.HasInterval() && l.Ratio.Hi < 2:
			below++
		case !l.Ratio.HasInterval() || l.Ratio.Lo <= 2:
			open++
		}
	}
	j := judgement{here: "no ratio in run " + r.Run, study: x.publishedRatios(r)}
	if len(figures) > 0 {
		j.here = fmt.Sprintf("CPU per bit over the clean router's is %s; %s; run %s", listed(figures), blocks(ratios...), r.Run)
		j.figure, j.least = "least × "+bracketed(least), least
		j.detail = fmt.Sprintf("%s; %s, %s", blocks(least), x.at(leastAt), x.held())
	}
	switch {
	case below > 0:
		j.holds, j.expect = no(), cheaperPortal(r)
	case len(absent) > 0:
		j.expect = fmt.Sprintf("Not measured %s %s; `gateweigh run %s` has all levels.", x.by(), listed(absent), x.Run)
	case open > 0:
		j.leaveOpen()
	default:
		j.holds, j.expect = yes(), x.beyondPublished(r)
	}
	return j
}

// beyondPublished explains ratios that are all larger than the study's.
func (x experiment) beyondPublished(r router) string {
	for _, at := range x.Levels {
		p, ok := r.published(at)
		base, known := x.Routers[0].published(at)
		if !ok || !known || float64(r.levels[at].Ratio.Lo) <= p.CPUNormalised/base.CPUNormalised {
			return ""
		}
	}
	return cheaperClean
}

// cheaperPortal explains a portal that does not double CPU: one of the study's,
// or one the study does not have.
func cheaperPortal(r router) string {
	if len(r.Published) > 0 {
		return asLab + " A clean router that is dearer here makes a portal look cheaper beside it."
	}
	return "Both portals of the study hand every packet to user space; a gateway that decides in the kernel need not cost as much."
}

// publishedRatios is the study's CPU over the clean router's, level by level.
func (x experiment) publishedRatios(r router) string {
	var parts []string
	for _, at := range x.Levels {
		p, ok := r.published(at)
		base, known := x.Routers[0].published(at)
		if ok && known {
			parts = append(parts, digits(analysis.Number(p.CPUNormalised/base.CPUNormalised)))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return listed(parts)
}

// nearly is how far the CPU of a further Mbit/s may change from one step of
// bandwidth to the next while CPU still follows bandwidth almost linearly. The
// study says so of changes down to 0.81 (its proprietary portal, table 5.4:
// 2.42 points for the step of 100 Mbit/s, 3.90 for the next of 200).
const nearly = 0.25

// nearlyLinear judges how straight CPU runs over bandwidth up to 800 Mbit/s, a
// constant share allowed. The claim holds when from each step to the next the
// interval of the CPU of a further Mbit/s, over that on the step before, lies
// within a factor of 1.25, and does not when any lies wholly outside.
func nearlyLinear(s study1, dut string) judgement {
	x := s.load
	r := x.router(dut)
	if !r.measured() {
		return x.unmeasured(r)
	}
	steps := x.stepsTo(800)
	even, bent := 0, 0
	var figures []string
	var used []analysis.Estimate
	for i, next := range steps[1:] {
		before := steps[i]
		first, ok := r.step(before.from, before.to)
		second, also := r.step(next.from, next.to)
		if !ok || !also || x.blocked(r, before.from, next.from, next.to) != "" {
			continue
		}
		g := marginal(ratioOf(first.RelativePct), ratioOf(second.RelativePct), before, next)
		used = append(used, g)
		figures = append(figures, fmt.Sprintf("%s from %g to %g", bracketed(g), next.from, next.to))
		switch within(g, nearly) {
		case inside:
			even++
		case outside:
			bent++
		}
	}
	j := judgement{here: "no two steps up to 800 Mbit/s that count in run " + r.Run, study: x.publishedMarginals(r, steps)}
	if len(figures) > 0 {
		j.here = fmt.Sprintf("a further Mbit/s costs, over one on the step before, %s Mbit/s%s; %s; run %s",
			listed(figures), straight(r), blocks(used...), r.Run)
	}
	switch {
	case bent > 0:
		j.holds = no()
		j.expect = asLab + " At higher load a router finds more packets waiting when it wakes, and each costs less."
	case even == len(steps)-1:
		j.holds = yes()
	default:
		j.unsettled(x, r, steps)
	}
	return j
}

// ratioOf is the factor that an increase of so many per cent is.
func ratioOf(e analysis.Estimate) analysis.Estimate {
	of := func(n analysis.Number) analysis.Number { return 1 + n/100 }
	return analysis.Estimate{Mean: of(e.Mean), Lo: of(e.Lo), Hi: of(e.Hi), N: e.N}
}

// marginal is the CPU of a further Mbit/s on a step over that on the step before,
// from the factors a and b by which CPU rises on them: a(b-1)/(a-1), by the
// steps' lengths. Factors are taken block by block and are free of the machine's
// drift, which differences of CPU are not. It falls with a and rises with b, so
// its bounds are those of a and b crosswise. Absent where CPU may not rise at all.
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

// publishedMarginals are the same of the study's figures.
func (x experiment) publishedMarginals(r router, steps []step) string {
	var parts []string
	for i, next := range steps[1:] {
		a, ok := r.publishedFactor(steps[i])
		b, also := r.publishedFactor(next)
		if ok && also {
			parts = append(parts, digits(marginal(exact(a), exact(b), steps[i], next).Mean))
		}
	}
	return listed(parts)
}

// publishedFactor is by how much the study's CPU rises on a step.
func (r router) publishedFactor(st step) (analysis.Number, bool) {
	from, hasFrom := r.published(st.from)
	to, hasTo := r.published(st.to)
	return analysis.Number(to.CPUNormalised / from.CPUNormalised), hasFrom && hasTo
}

// straight is what the fits over all levels say.
func straight(r router) string {
	if r.linearity == nil {
		return ""
	}
	l := r.linearity
	text := fmt.Sprintf("; over %d levels, R² of the straight line is %.4f and the exponent of bandwidth %s",
		l.LevelsUsed, float64(l.R2), bracketed(l.Exponent))
	if l.BendAt.Known() {
		text += fmt.Sprintf("; at %g Mbit/s it departs from the line below by %s %%", float64(l.BendAt), bracketed(l.BendPct))
	}
	return text
}

// moreThanProportional judges the step to 1 Gbit/s: the claim holds when CPU over
// bandwidth rises and its interval leaves out 1, and does not when it lies below
// 1 + δ, where a rise would not matter. Where both are so, the latter decides.
func moreThanProportional(s study1, dut string) judgement {
	x := s.load
	r := x.router(dut)
	if !r.measured() {
		return x.unmeasured(r)
	}
	last := step{800, 1000}
	inc, ok := r.step(last.from, last.to)
	j := judgement{here: "no step from 800 to 1000 Mbit/s that counts in run " + r.Run}
	if factor, known := r.publishedFactor(last); known {
		j.study = digits(factor / analysis.Number(last.to/last.from))
	}
	if !ok || x.blocked(r, last.from, last.to) != "" {
		j.unsettled(x, r, []step{last})
		return j
	}
	p := inc.Proportion
	j.here = fmt.Sprintf("where proportional is 1, CPU rises by %s from 800 to 1000 Mbit/s; %s; run %s", bracketed(p), blocks(p), r.Run)
	switch {
	case !p.HasInterval():
		j.leaveOpen()
	case float64(p.Hi) <= 1+r.Delta:
		j.holds = no()
		j.expect = "In the study 1 Gbit/s is the line rate of the NICs and its client machine was near 100 % CPU (5.2.2), " +
			"and a full link has effects of its own; links here have no line rate."
	case p.Lo > 1:
		j.holds = yes()
	default:
		j.leaveOpen()
	}
	return j
}

// step is from one level of the study to the next.
type step struct{ from, to float64 }

// stepsTo are the study's steps up to a level.
func (x experiment) stepsTo(last float64) []step {
	var out []step
	for i, to := range x.Levels[1:] {
		if to <= last {
			out = append(out, step{x.Levels[i], to})
		}
	}
	return out
}

func levelsOf(steps []step) []float64 {
	out := []float64{steps[0].from}
	for _, st := range steps {
		out = append(out, st.to)
	}
	return out
}
