package analysis

import (
	"math"
	"slices"
)

// span is the possible effect of noise on a figure. On a quiet machine the figure would be lower by at most down, or
// higher by at most up.
type span struct{ down, up float64 }

// plus returns the span of a sum.
func (s span) plus(t span) span { return span{s.down + t.down, s.up + t.up} }

// less returns the span of a difference.
func (s span) less(t span) span { return span{s.down + t.up, s.up + t.down} }

// times returns the span of a figure multiplied by sign, which is 1 or -1.
func (s span) times(sign float64) span {
	if sign < 0 {
		return span{s.up, s.down}
	}
	return s
}

// towards0 returns how much nearer to 0 the mean may be on a quiet machine.
func (s span) towards0(mean float64) float64 {
	if mean > 0 {
		return s.down
	}
	return s.up
}

// moved has the possible effects of noise on the figures of one router under one load, on their logarithms.
type moved struct {
	ratio span // the overhead ratio; zero for the clean router
	cpu   span // the router's CPU
}

// mostRisen is the largest share of a router's CPU, 0 to 1, that noise is assumed to have added.
const mostRisen = 0.95

// seen is a figure of CPU, % of one core, of the router in question and of the clean one, and the logarithm of their
// ratio.
type seen struct{ router, clean, log func(blockMean) float64 }

// moved returns the possible effect of noise on the router's CPU at a level. A level is the blocks of one cell.
func (r router) moved(level []blockMean) moved {
	return r.noise(level, seen{
		func(b blockMean) float64 { return r.side(b)[cpu] }, func(b blockMean) float64 { return b.clean[cpu] },
		func(b blockMean) float64 { return b.logRatio },
	})
}

// noiseAt returns the possible effect of noise on a figure at a level. Stolen time adds the same CPU to both routers,
// and further CPU to a device (Input.Rise). Other programs change the CPU of the device, and the ratio with it.
func (input Input) noiseAt(ofClean bool, level []blockMean, figure seen) (m moved) {
	if input.Bias == nil || input.Rise == nil {
		return m
	}
	var n Noise
	for _, b := range level {
		n.StealPct += b.noise.StealPct / Number(len(level))
		n.OthersPct += b.noise.OthersPct / Number(len(level))
	}
	if n.Quiet() && input.noise.OthersPct <= quietOthers {
		return m
	}
	n.OthersPct = max(n.OthersPct, input.noise.OthersPct) // as for cells
	ofRouter, clean := mean(each(level, figure.router))/100, mean(each(level, figure.clean))/100
	rise, light := input.Rise(n, clean)
	m.cpu.down = -math.Log1p(-min(rise/ofRouter, mostRisen))
	if ofClean {
		return m
	}
	log := mean(each(level, figure.log))
	m.ratio = outwards(input.Bias(n, log, clean), log)
	m.cpu = m.cpu.plus(span{light, light * towards1}).plus(
		outwards(input.Bias(Noise{OthersPct: n.OthersPct}, log, clean), log))
	return m
}

// swing returns the possible effect of noise on a figure that is computed from several levels. At each level it takes
// the end of the span that moves the figure farther, and then applies all these ends together. figure computes the
// figure with the values of each level multiplied by the level's factor.
func swing(moves []span, figure func(factors []float64) float64) span {
	if !slices.ContainsFunc(moves, func(m span) bool { return m != span{} }) {
		return span{}
	}
	return farthest(len(moves), func(choices []int) float64 {
		factors := make([]float64, len(moves))
		for i, c := range choices {
			factors[i] = [...]float64{1, math.Exp(-moves[i].down), math.Exp(moves[i].up)}[c]
		}
		return figure(factors)
	})
}

// farthest returns how much lower and how much higher a figure may be. Each of its inputs has one of three choices: the
// measured value (0), the lowest possible value (1) or the highest possible value (2). A bound is NaN where the
// figure does not exist for these choices.
func farthest(things int, figure func(choices []int) float64) span {
	measured := figure(make([]int, things))
	low, high := make([]int, things), make([]int, things)
	for i := range things {
		alone := make([]int, things)
		for _, c := range []int{1, 2} {
			alone[i] = c
			level := figure(alone)
			alone[i] = low[i]
			if !(level >= figure(alone)) {
				low[i] = c
			}
			alone[i] = high[i]
			if !(level <= figure(alone)) {
				high[i] = c
			}
		}
	}
	return span{max(0, measured-figure(low)), max(0, figure(high)-measured)}
}

// widened returns the estimate with its bounds moved outwards by s, on the estimate's scale. It has no interval if one
// of the bounds is then unknown.
func (e Estimate) widened(s span) Estimate {
	e.Lo, e.Hi = e.Lo-Number(s.down), e.Hi+Number(s.up)
	if !e.HasInterval() {
		e.Lo, e.Hi = Absent(), Absent()
	}
	return e
}

// spansOf returns one span for each level.
func spansOf(levels [][]blockMean, spanAt func([]blockMean) span) []span {
	out := make([]span, len(levels))
	for i, level := range levels {
		out[i] = spanAt(level)
	}
	return out
}
