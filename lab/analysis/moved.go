package analysis

import (
	"math"
	"slices"
)

// span is by how much what a quiet machine shows may lie below and above what was measured.
type span struct{ down, up float64 }

// plus is the span of a sum, less that of a difference.
func (s span) plus(t span) span { return span{s.down + t.down, s.up + t.up} }
func (s span) less(t span) span { return span{s.down + t.up, s.up + t.down} }

// times is the span of a sum in which a term is taken with a sign, 1 or -1.
func (s span) times(sign float64) span {
	if sign < 0 {
		return span{s.up, s.down}
	}
	return s
}

// towards0 is how far a mean may lie nearer to 0.
func (s span) towards0(mean float64) float64 {
	if mean > 0 {
		return s.down
	}
	return s.up
}

// moved is by how much noise may have moved figures of one router under one load, on their logarithms.
type moved struct {
	ratio span // the overhead ratio; zero for the clean router
	own   span // the router's CPU
}

// mostRisen is the most of a router's CPU that is taken for a rise.
const mostRisen = 0.95

// seen is a figure of CPU, % of one core, of the router in question and of the clean one, and the logarithm of their
// ratio.
type seen struct{ own, clean, log func(blockMean) float64 }

// moved is what noise may have done to a router's CPU at a level, which are blocks of one cell.
func (r router) moved(level []blockMean) moved {
	return r.noise(level, seen{
		func(b blockMean) float64 { return r.side(b)[cpu] }, func(b blockMean) float64 { return b.clean[cpu] },
		func(b blockMean) float64 { return b.logRatio },
	})
}

// noiseAt is what noise may have done to a figure at a level. Stolen time makes both routers dearer by as much, and a
// device by more (Input.Rise). Other programs change the device alone, as they do the ratio.
func (input Input) noiseAt(ofClean bool, level []blockMean, of seen) (m moved) {
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
	own, clean := mean(each(level, of.own))/100, mean(each(level, of.clean))/100
	rise, light := input.Rise(n, clean)
	m.own.down = -math.Log1p(-min(rise/own, mostRisen))
	if ofClean {
		return m
	}
	log := mean(each(level, of.log))
	m.ratio = outwards(input.Bias(n, log, clean), log)
	m.own = m.own.plus(span{light, light * towards1}).plus(
		outwards(input.Bias(Noise{OthersPct: n.OthersPct}, log, clean), log))
	return m
}

// swing is by how much noise may have moved a figure that is computed from several levels: at each of them that counts
// which moves it farther, and then all together. figure returns it with the values of each level multiplied by a
// factor.
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

// farthest is by how much a figure lies lower and higher at the most where each of some things is as measured (0), or
// the least (1) or the most (2) that it may have been. Unknown where the figure does not exist there.
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

// widened is the estimate with its bounds moved outwards, on its own scale. Where nobody knows how far one lies there
// is no interval.
func (e Estimate) widened(s span) Estimate {
	e.Lo, e.Hi = e.Lo-Number(s.down), e.Hi+Number(s.up)
	if !e.HasInterval() {
		e.Lo, e.Hi = Absent(), Absent()
	}
	return e
}

// spansOf is what noise may have done at each of some levels.
func spansOf(levels [][]blockMean, of func([]blockMean) span) []span {
	out := make([]span, len(levels))
	for i, level := range levels {
		out[i] = of(level)
	}
	return out
}
