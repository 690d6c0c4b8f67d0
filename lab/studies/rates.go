package studies

import (
	"fmt"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/words"
)

// These criteria judge rates and the CPU of routers with several speeds, over the levels that a run has.

// overFirst judges whether the metric of a device divided by that of the first scenario, in the same run, is between
// two bounds. The finding shows the difference from 1. The criterion is judged at every level, or, with lowest, only at
// the lowest, which is the slowest router.
func overFirst(least, most float64, lowest bool) criterion {
	return ofDevice(func(j *judgement) {
		first := j.x.Routers[0]
		base := first.measuredCourse
		if j.r.Run == "" { // the published figures
			base = first.published
		}
		ratio := func(level float64) analysis.Estimate {
			return quotient(j.r.estimate(j.metric, level), base.estimate(j.metric, level))
		}
		levels, _ := split(j.r.levels, func(level float64) bool { return ratio(level).Mean.Known() })
		j.sentence, j.none, j.unit = j.metric.Noun+" is below that of "+first.Name+" by %s", "no level with "+first.Name,
			" % below it"
		if j.r.Run != first.Run && j.r.Run != "" || j.r.Run == "" && sameBound(ratio, levels) {
			levels = nil
		}
		j.judgeAt(levels, lowest, func(level float64) {
			j.add(below(ratio(level)), place(ratio(level), least, most),
				meanWithInterval(below(ratio(level)))+" % "+j.x.atAll(level))
		})
		if len(levels) == 0 {
			j.lacking = j.x.command("duts="+first.DUT+","+j.subject.id) + " measures both in one run."
		}
	})
}

// sameBound reports whether all ratios are 1. The study then gives one bound for both rates, and no ratio.
func sameBound(estimateAt func(level float64) analysis.Estimate, levels []float64) bool {
	return !slices.ContainsFunc(levels, func(level float64) bool { return estimateAt(level).Mean != 1 })
}

// below returns by how much a ratio is below 1, in per cent.
func below(e analysis.Estimate) analysis.Estimate {
	shortfall := func(n analysis.Number) analysis.Number { return 100 * (1 - n) }
	return analysis.Estimate{Mean: shortfall(e.Mean), Lo: shortfall(e.Hi), Hi: shortfall(e.Lo), N: e.N}
}

// onServers judges whether the metric is between two bounds at every level from one on, or, with lowest, at the lowest
// alone.
func onServers(least, most, from float64, lowest bool) criterion {
	return ofDevice(func(j *judgement) {
		levels, _ := split(
			j.r.levels, func(level float64) bool { return level >= from && j.r.estimate(j.metric, level).Mean.Known() })
		j.sentence, j.none = j.metric.Noun+" is %s", "no level that counts"
		j.judgeAt(levels, lowest, func(level float64) {
			e := j.r.estimate(j.metric, level)
			j.add(e, place(e, least, most), meanWithInterval(e)+" "+j.metric.Unit+" "+j.x.atAll(level))
		})
		if len(levels) == 0 {
			j.lacking = j.x.command() + " measures it."
		}
	})
}

// judgeAt adds the figures of all levels, or of the lowest alone.
func (j *judgement) judgeAt(levels []float64, lowest bool, add func(level float64)) {
	if lowest && len(levels) > 0 {
		levels = levels[:1]
	}
	for _, level := range levels {
		add(level)
	}
	j.needed = len(levels)
}

// atMostFactor judges whether the metric at the highest level divided by that at the next one is below a factor.
func atMostFactor(most float64) criterion {
	return ofDevice(func(j *judgement) {
		levels, _ := split(j.r.levels, func(level float64) bool { return j.r.estimate(j.metric, level).Mean.Known() })
		j.sentence, j.none, j.needed, j.unit = j.metric.Noun+" rises by %s", "no two speeds", 1, " %"
		if len(levels) < 2 || j.r.Run == "" { // the study gives bounds of rates alone
			j.lacking = j.x.command() + " has several speeds."
			return
		}
		slices.Sort(levels)
		a, b := levels[len(levels)-2], levels[len(levels)-1]
		factor := quotient(j.r.estimate(j.metric, b), j.r.estimate(j.metric, a))
		j.add(percentOf(factor), place(factor, 0, most),
			fmt.Sprintf("%s %% from %g to %s", meanWithInterval(percentOf(factor)), a, j.x.levelText(b)))
	})
}

// besideOther judges whether the metric of the second of a pair divided by that of the first is between two bounds, at
// the highest level that both have.
func besideOther(least, most float64) criterion {
	return ofTwo(func(j *judgement, a, b router, names [2]string) {
		ratio := func(level float64) analysis.Estimate {
			return quotient(b.estimate(j.metric, level), a.estimate(j.metric, level))
		}
		common, _ := split(a.levels, func(level float64) bool { return ratio(level).Mean.Known() })
		if len(common) == 0 {
			j.Here, j.Expect = "no load with both", j.x.command()+" measures both."
			return
		}
		level := common[len(common)-1]
		j.Here = fmt.Sprintf(
			"the %s of %s is %s %% above that of %s, %s; %s", j.metric.Noun, names[1], meanWithInterval(percentOf(
				ratio(level))), names[0], j.x.atAll(level), blocks(ratio(level)))
		j.decide(place(ratio(level), least, most))
	})
}

// course draws curves over time at the highest level of a sweep.
func (x repetition) course(f FigureForm, units string) Figure {
	p := Panel{YLabel: f.YLabel + ", " + f.Metric.Unit, Reference: analysis.Absent()}
	for _, r := range x.Routers {
		if len(r.levels) == 0 {
			continue
		}
		s := Series{Name: r.Name, DUT: r.DUT, Run: r.Run}
		for _, pt := range r.curves[r.levels[len(r.levels)-1]] {
			s.Points = append(s.Points, Point{X: pt.Ms / 1000, Y: exactEstimate(pt.Value)})
		}
		if s.Points != nil {
			p.Series = append(p.Series, s)
		}
	}
	return Figure{ID: "figure-" + f.Number, Title: "Figure " + f.Number, Caption: f.Caption, XLabel: f.XLabel,
		Panels: []Panel{p}, Note: words.Joined(" ", units, f.Note), Stacked: true, Course: true}
}
