package compare

import (
	"math"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/inference"
)

// evidence is what the blocks say of a difference between logarithms. It keeps
// the samples the difference was taken of, to work out how many blocks more
// would say it clearly. from.N is 0 for a sample held against 0.
type evidence struct {
	inference.Sample
	from, to inference.Sample
	// down and up are by how much noise moves the bounds outwards.
	down, up float64
}

// difference is to less from. What noise did to either may be in it.
func difference(from, to evidence) evidence {
	return evidence{to.Less(from.Sample), from.Sample, to.Sample, to.down + from.up, to.up + from.down}
}

// againstZero compares a sample with 0: a clean router, in logarithms.
func againstZero(s inference.Sample) evidence {
	return evidence{Sample: s, from: inference.None(), to: s}
}

// The bounds and tests of a Sample, with what noise may have done.

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

// ratio is the evidence as a ratio with its interval.
func (e evidence) ratio(confidence float64) analysis.Estimate {
	if !e.HasSpread() {
		return analysis.Unknown()
	}
	at := func(log float64) analysis.Number { return analysis.Number(math.Exp(log)) }
	level := (1 - confidence) / 2
	return analysis.Estimate{Mean: at(e.Mean), Lo: at(e.Lower(level)), Hi: at(e.Upper(level)), N: e.N}
}

func noEvidence() evidence { return againstZero(inference.None()) }

// logRatio is the logarithm of a ratio over its blocks, whose spread is sd.
func logRatio(e analysis.Estimate, sd analysis.Number) inference.Sample {
	return inference.Sample{
		Mean: math.Log(float64(e.Mean)), SE: float64(sd) / math.Sqrt(float64(e.N)), Freedom: float64(e.N - 1), N: e.N,
	}
}

// logOf is the logarithm of an arithmetic mean, with its standard error by the
// delta method: relative to the mean. The error is worked out from the interval.
func logOf(e analysis.Estimate, confidence float64) inference.Sample {
	if !e.HasInterval() || !(e.Mean > 0) {
		return inference.None()
	}
	freedom := float64(e.N - 1)
	se := float64(e.Hi-e.Lo) / 2 / inference.Quantile(freedom, (1+confidence)/2)
	return inference.Sample{Mean: math.Log(float64(e.Mean)), SE: se / float64(e.Mean), Freedom: freedom, N: e.N}
}

// furtherBlocks is how many more blocks in each run would probably bring an
// answer, when it lies distance away, the spreads are as large as the blocks allow them to be
// (inference.Spread), and a two-sided test at alpha decides. Nil: more than inference.MostFurther, or
// not known.
func (e evidence) furtherBlocks(distance, alpha float64) *int {
	if !e.HasSpread() || e.tooFewBlocks() {
		return nil
	}
	cautious := e // of the noise itself no number of blocks gets rid
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

// tooFewBlocks reports whether a run has too few blocks to say how far blocks spread.
func (e evidence) tooFewBlocks() bool {
	return e.to.N < inference.FewestForSpread || e.from.N > 0 && e.from.N < inference.FewestForSpread
}

// withBlocks is the evidence as it would be with more blocks in each run.
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

// negated is the evidence with its sign changed.
func (e evidence) negated() evidence {
	e.Mean, e.from.Mean, e.to.Mean = -e.Mean, -e.from.Mean, -e.to.Mean
	e.down, e.up = e.up, e.down
	return e
}
