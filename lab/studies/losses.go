package studies

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gateweigh/gateweigh/lab/words"
)

// The criteria in this file judge claims about lost frames. Their metrics are shares of frames. Nothing is lost while a
// share is between Metric.Least and Metric.Most. A level is a load, or another setting that a run varies. A level
// surely has loss if the whole interval of a share is outside these bounds.

// lossy lists the levels that surely have loss by any of the shares.
func (c measuredCourse) lossy(shares ...Metric) []float64 {
	withLoss, _ := split(c.levels, func(level float64) bool {
		return slices.ContainsFunc(shares, func(m Metric) bool { return c.placeShare(m, level) == outsideBounds })
	})
	return withLoss
}

// lossyOnAverage reports whether the mean of any share is outside its bounds at any level, whatever its interval.
func (c measuredCourse) lossyOnAverage(shares ...Metric) bool {
	return slices.ContainsFunc(shares, func(m Metric) bool {
		_, all := c.limit(m)
		return c.hasMetric(m) && !all
	})
}

// losesNothing judges the claim that nothing is lost at any level up to last. The finding shows the worst level.
func losesNothing(last float64) criterion {
	return ofDevice(func(j *judgement) {
		var levels []float64
		for _, level := range j.r.levels {
			if level <= last && j.r.estimate(j.metric, level).Mean.Known() {
				levels = append(levels, level)
			}
		}
		j.needed, j.none = len(levels), "no "+j.metric.Noun
		if reached := slices.Max(append(levels, 0)); reached < last {
			j.lacking = fmt.Sprintf("Not measured at %s; %s has such levels.", j.x.levelText(last), j.x.command())
		}
		if len(levels) == 0 {
			return
		}
		off := func(level float64) float64 { // distance of the mean from the bounds
			e := float64(j.r.estimate(j.metric, level).Mean)
			return max(j.metric.Least-e, e-j.metric.Most)
		}
		for _, level := range levels {
			j.used = append(j.used, j.r.estimate(j.metric, level))
			j.sides[j.r.placeShare(j.metric, level)]++
		}
		worst := slices.MaxFunc(levels, func(a, b float64) int { return cmp.Compare(off(a), off(b)) })
		j.figures = []string{meanWithInterval(j.r.estimate(j.metric, worst)) + " % " + j.x.atAll(worst)}
		j.sentence = fmt.Sprintf("%s at %s from %g to %s: at worst %%s", j.metric.Noun, words.Counted(len(levels), "level"),
			levels[0], j.x.levelText(levels[len(levels)-1]))
	})
}

// losesWith judges the claim that the metric is between least and most at the levels that surely have loss by shares.
// It must be so at each of them, or, if enough is true, at one of them.
func losesWith(least, most float64, enough bool, shares ...Metric) criterion {
	return ofDevice(func(j *judgement) {
		levels := j.r.lossy(shares...)
		for _, level := range levels {
			e := j.r.estimate(j.metric, level)
			j.add(e, place(e, least, most), meanWithInterval(e)+" % "+j.x.atAll(level))
		}
		j.sentence, j.none = "where frames are lost, "+j.metric.Noun+" is %s", "no frames are lost for sure at any level"
		if j.needed = len(levels); enough && j.sides[insideBounds] > 0 {
			j.needed, j.sides[outsideBounds] = j.sides[insideBounds], 0
		}
		switch {
		case len(levels) > 0:
		case j.r.lossyOnAverage(shares...):
			j.needed = 1 // no level surely has loss, so the claim stays open
		default:
			j.lacking = "Where loss begins only a run with loss can show: `--set router.speed=0.1` slows the capturing host, " +
				"and `--set offered_mbps=…` has higher rates."
		}
	})
}

// losesAtMost judges the claim that the device loses frames at the highest level at which the first device of the sweep
// loses none. The claim's metric shows the loss of the device, and carried that of the first device.
func losesAtMost(carried Metric) criterion {
	return ofDevice(func(j *judgement) {
		base := j.x.Routers[0]
		top, all := base.limit(carried)
		j.none = "no highest rate without loss to judge by"
		switch level := float64(top); {
		case !base.measured() || all || !top.Known():
			j.lacking = fmt.Sprintf("In this run %s loses frames at all rates, at none, or was not measured: "+
				"`--set offered_mbps=…` has other rates, `--set router.speed=0.1` slows the router.", base.DUT)
		case !j.r.estimate(j.metric, level).Mean.Known():
			j.lacking = "Not measured " + j.x.atAll(level) + "."
		default:
			e := j.r.estimate(j.metric, level)
			j.add(e, j.r.placeShare(j.metric, level).opposite(), meanWithInterval(e)+" %")
			j.sentence = fmt.Sprintf(
				"%s, the highest that %s forwards without loss, the %s is %%s", j.x.atAll(level), base.DUT, j.metric.Noun)
			j.needed = 1
		}
	})
}

// ofTwo makes a criterion that compares two routers: the two of a pair in one sweep, or the same device in two sweeps.
// Both must be from one run, because machines differ between runs. judge gets the names of both.
func ofTwo(judge func(j *judgement, a, b router, names [2]string)) criterion {
	return func(j *judgement) {
		x, y := j.sweeps[0].study(), j.sweeps[len(j.sweeps)-1].study()
		a, b, names := x.router(j.subject.id), y.router(j.subject.id), [2]string{x.Place, y.Place}
		if p := j.subject.pair; p.First != "" {
			a, b, names = x.router(p.First), x.router(p.Second), [2]string{p.First, p.Second}
		}
		j.x, j.r = x, a
		switch {
		case !a.measured() || !b.measured() || a.cell == b.cell: // equal cells: the run has only one of the sweeps
			j.Here, j.Expect = "not measured both "+names[0]+" and "+names[1], y.command()+" measures both."
		case a.Run != b.Run:
			j.Here, j.Expect = "not measured in one run "+names[0]+" and "+names[1], y.command()+" measures both."
		default:
			judge(j, a, b, names)
			j.Here += "; run " + a.Run
		}
	}
}

// losesLess judges the claim that the second of two routers loses fewer frames than the first, at the levels at which
// the first surely has loss. It holds if the second is surely better at one level and surely worse at none.
func losesLess() criterion {
	return ofTwo(func(j *judgement, a, b router, names [2]string) {
		levels, _ := split(a.lossy(j.metric), func(level float64) bool { return b.estimate(j.metric, level).Mean.Known() })
		for _, level := range levels {
			one, other := a.estimate(j.metric, level), b.estimate(j.metric, level)
			j.add(other, placeAgainst(quotient(other, one), 1),
				fmt.Sprintf("%s %% instead of %s %% %s", meanWithInterval(other), meanWithInterval(one), j.x.atAll(level)))
		}
		if len(levels) == 0 {
			if j.Here = names[0] + " loses no frames for sure"; a.lossyOnAverage(j.metric) {
				j.decide(acrossBound)
				return
			}
			j.Expect = "Only a run with loss can show what lessens loss: `--set router.speed=0.1` slows the capturing host, " +
				"and `--set offered_mbps=…` has higher rates."
			return
		}
		j.Here = fmt.Sprintf(
			"%s with %s instead of %s: %s; %s", j.metric.Noun, names[1], names[0], words.Listed(j.figures), blocks(j.used...))
		switch {
		case j.sides[insideBounds] > 0 && j.sides[outsideBounds] == 0:
			j.decide(insideBounds)
		case j.sides[outsideBounds] > 0 && j.sides[insideBounds] == 0:
			j.decide(outsideBounds)
		default:
			j.decide(acrossBound)
		}
	})
}

// multiplies judges the claim that the second router's metric divided by the first's is between least and most, at the
// highest level that both have. The claim stays open if one of them loses frames there (shares), because its CPU is
// then for fewer frames than the other's.
func multiplies(least, most float64, shares ...Metric) criterion {
	return ofTwo(func(j *judgement, a, b router, names [2]string) {
		common, _ := split(a.levels, func(level float64) bool {
			return quotient(b.estimate(j.metric, level), a.estimate(j.metric, level)).Mean.Known()
		})
		if len(common) == 0 {
			j.Here, j.Expect = "no rate with both", j.sweeps[len(j.sweeps)-1].study().command()+" measures both."
			return
		}
		level := common[len(common)-1]
		factor := quotient(b.estimate(j.metric, level), a.estimate(j.metric, level))
		j.Here = fmt.Sprintf(
			"%s takes × %s of the %s that %s takes, %s; %s", names[1], meanWithInterval(factor), j.metric.Noun,
			names[0], j.x.atAll(level), blocks(factor))
		if slices.Contains(a.lossy(shares...), level) || slices.Contains(b.lossy(shares...), level) {
			j.Here += "; frames were lost"
			j.Expect = "CPU of frames that were lost is not known: `--set offered_mbps=…` has a lower rate."
			return
		}
		j.decide(place(factor, least, most))
	})
}
