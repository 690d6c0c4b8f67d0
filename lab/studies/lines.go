package studies

import (
	"fmt"

	"github.com/gateweigh/gateweigh/lab/analysis"
)

// besideFirst judges whether a metric divided by the first scenario's is in a range, at one level.
func besideFirst(level, least, most float64) criterion {
	return func(j *judgement) {
		x := j.sweeps[0].study()
		r, first := x.router(j.subject.id), x.Routers[0]
		if !r.measured() || !first.measured() {
			j.unmeasured(x, r)
			return
		}
		if !r.hasLevel(level) || !first.hasLevel(level) {
			j.Here = fmt.Sprintf("nothing of %s and %s %s", first.Name, r.Name, x.levelText(level))
			j.Expect = x.command("duts="+first.DUT+","+r.DUT) + " measures both."
			return
		}
		e := quotient(r.estimate(j.metric, level), first.estimate(j.metric, level))
		j.study = listMeans("", quotient(r.published.estimate(j.metric, level), first.published.estimate(j.metric, level)))
		j.Here = fmt.Sprintf(
			"%s is × %s of %s's %s; %s; run %s", j.metric.Noun, meanWithInterval(e), first.Name, x.atAll(level), blocks(e),
			r.Run)
		j.figure, j.detail = "× "+meanWithInterval(e), fmt.Sprintf("%s; %s", blocks(e), x.levelText(level))
		j.decide(place(e, least, most))
	}
}

// straight judges whether a metric follows a straight line over the payload carried, by the line's R². R² has no
// interval, so it counts only if there are enough blocks for an interval of the slope.
func straight(leastR2 float64) criterion {
	return func(j *judgement) {
		x := j.sweeps[0].study()
		r := x.router(j.subject.id)
		l, fitted := r.lines[j.metric.Name]
		switch {
		case !r.measured():
			j.unmeasured(x, r)
			return
		case !fitted || !l.R2.Known():
			j.Here, j.Expect = "no line: fewer than three loads that it carries", x.command("duts="+r.DUT)+" has the study's."
			return
		}
		j.Here = fmt.Sprintf("R² of %.4f over %d loads; %s = %s + %s %% of a core a Gbit/s%s; %s; run %s", float64(l.R2),
			l.LevelsUsed, j.metric.Noun,
			meanWithInterval(l.Intercept), meanWithInterval(l.Slope), overDirect(l), blocks(l.Slope), r.Run)
		j.figure, j.detail = fmt.Sprintf("R² %.3f", float64(l.R2)), blocks(l.Slope)
		switch {
		case !l.Slope.HasInterval():
			j.decide(acrossBound)
		case float64(l.R2) >= leastR2:
			j.decide(insideBounds)
		default:
			j.decide(outsideBounds)
		}
	}
}

func overDirect(l analysis.Trend) string {
	if !l.OverClean.Mean.Known() {
		return ""
	}
	return ", × " + meanWithInterval(l.OverClean) + " the direct path's slope beside it"
}

// slopes judges the slope of the first of two devices divided by that of the second. Each is first divided by the
// direct path's slope in the same block, so that the machine's drift cancels. The bounds are the widest that both
// intervals allow.
func slopes(least, most float64, study string) criterion {
	return func(j *judgement) {
		x, p := j.sweeps[0].study(), j.subject.pair
		j.study = study
		over := map[string]analysis.Estimate{}
		for _, dut := range []string{p.Second, p.First} {
			r := x.router(dut)
			l, fitted := r.lines[j.metric.Name]
			switch {
			case !r.measured():
				j.unmeasured(x, r)
				j.Here, j.Expect = dut+" "+j.Here, x.command("duts="+p.First+","+p.Second)+" measures it."
				return
			case dut == analysis.Clean:
				over[dut] = unit
			case !fitted:
				j.Here, j.Expect = dut+" carries fewer than three loads, so that it has no slope",
					x.command("duts="+p.First+","+p.Second)+" has the study's."
				return
			default:
				over[dut] = l.OverClean
			}
		}
		e, second := quotient(over[p.First], over[p.Second]), p.Second
		if second == analysis.Clean {
			e, second = over[p.First], "the direct path"
		}
		r := x.router(p.First)
		j.Here = fmt.Sprintf("a further Gbit/s takes × %s of what it takes %s (%s); %s; run %s", meanWithInterval(e), second,
			j.metric.Noun, blocks(e), r.Run)
		j.figure, j.detail, j.why.Fails = "× "+meanWithInterval(e), blocks(e), p.Why
		j.decide(place(e, least, most))
	}
}
