package compare

import (
	"math"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/inference"
)

// evidence is a difference between logarithms, estimated from blocks. It keeps the two samples
// of the difference, to compute how many further blocks are needed. from.N is 0 for a sample
// compared with 0.
type evidence struct {
	inference.Sample
	from, to inference.Sample
	// down and up are how far noise moves the lower and the upper bound outwards.
	down, up float64
}

// difference returns to less from. Its bounds allow for the noise of both.
func difference(from, to evidence) evidence {
	return evidence{to.Less(from.Sample), from.Sample, to.Sample, to.down + from.up, to.up + from.down}
}

// againstZero compares a sample with 0, which is the logarithm of a clean router's ratio.
func againstZero(s inference.Sample) evidence {
	return evidence{Sample: s, from: inference.None(), to: s}
}

// These methods are the bounds and tests of the Sample, widened by the possible effect of noise.

func (e evidence) Lower(level float64) float64  { return e.Sample.Lower(level) - e.down }
func (e evidence) Upper(level float64) float64  { return e.Sample.Upper(level) + e.up }
func (e evidence) PAbove(limit float64) float64 { return e.Sample.PAbove(limit + e.down) }
func (e evidence) PBelow(limit float64) float64 { return e.Sample.PBelow(limit - e.up) }
func (e evidence) PDifferent() float64          { return min(1, 2*min(e.PAbove(0), e.PBelow(0))) }

func (e evidence) PEquivalent(limit float64) float64 { return max(e.PAbove(-limit), e.PBelow(limit)) }

func (e evidence) Lies(limit, confidence float64) (inside, outside bool) {
	lo, hi := e.Lower((1-confidence)/2), e.Upper((1-confidence)/2)
	return lo >= -limit && hi <= limit, lo > 0 || hi < 0
}

// ratio returns the evidence as a ratio with its interval.
func (e evidence) ratio(confidence float64) analysis.Estimate {
	if !e.HasSpread() {
		return analysis.Unknown()
	}
	ratioOf := func(log float64) analysis.Number { return analysis.Number(math.Exp(log)) }
	level := (1 - confidence) / 2
	return analysis.Estimate{Mean: ratioOf(e.Mean), Lo: ratioOf(e.Lower(level)), Hi: ratioOf(e.Upper(level)), N: e.N}
}

// noEvidence returns the evidence of a cell without blocks to compare.
func noEvidence() evidence { return againstZero(inference.None()) }

// logRatio returns the logarithm of a ratio as a sample. sd is the spread of the blocks' log ratios.
func logRatio(e analysis.Estimate, sd analysis.Number) inference.Sample {
	return inference.Sample{
		Mean: math.Log(float64(e.Mean)), SE: float64(sd) / math.Sqrt(float64(e.N)), Freedom: float64(e.N - 1), N: e.N,
	}
}

// logOf returns the logarithm of an arithmetic mean as a sample. Its standard error is the mean's
// relative error (delta method), computed from the interval.
func logOf(e analysis.Estimate, confidence float64) inference.Sample {
	if !e.HasInterval() || !(e.Mean > 0) {
		return inference.None()
	}
	freedom := float64(e.N - 1)
	se := float64(e.Hi-e.Lo) / 2 / inference.Quantile(freedom, (1+confidence)/2)
	return inference.Sample{Mean: math.Log(float64(e.Mean)), SE: se / float64(e.Mean), Freedom: freedom, N: e.N}
}

// furtherBlocks returns the number of further blocks in each run that give an answer with
// probability inference.Power. distance is the difference that a two-sided test at level alpha
// must detect. The spreads are assumed as large as the blocks allow (inference.Spread). It
// returns nil for more than inference.MostFurther blocks, or when there are too few blocks to know.
func (e evidence) furtherBlocks(distance, alpha float64) *int {
	if !e.HasSpread() || e.tooFewBlocks() {
		return nil
	}
	cautious := e // more blocks do not reduce the effect of noise
	for _, s := range []*inference.Sample{&cautious.from, &cautious.to} {
		if s.N > 0 {
			s.SE *= inference.Spread(s.Freedom)
		}
	}
	return inference.Further(e.to.N, func(blocks int) bool {
		later := cautious.withBlocks(blocks - e.to.N)
		t := inference.Quantile(later.Freedom, 1-alpha/2) + inference.Quantile(later.Freedom, inference.Power)
		return t*later.SE <= distance
	})
}

// tooFewBlocks reports whether a run has too few blocks to estimate their spread.
func (e evidence) tooFewBlocks() bool {
	return e.to.N < inference.FewestForSpread || e.from.N > 0 && e.from.N < inference.FewestForSpread
}

// withBlocks returns the evidence expected with more blocks in each run.
func (e evidence) withBlocks(more int) evidence {
	grown := func(s inference.Sample) inference.Sample {
		n := float64(s.N)
		s.SE *= math.Sqrt(n / (n + float64(more)))
		s.Freedom += float64(more)
		s.N += more
		return s
	}
	if e.from.N == 0 {
		return againstZero(grown(e.to))
	}
	return difference(againstZero(grown(e.from)), againstZero(grown(e.to)))
}

// negated returns the evidence with its sign changed.
func (e evidence) negated() evidence {
	e.Mean, e.from.Mean, e.to.Mean = -e.Mean, -e.from.Mean, -e.to.Mean
	e.down, e.up = e.up, e.down
	return e
}
