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
}

// difference is to less from.
func difference(from, to inference.Sample) evidence {
	return evidence{to.Less(from), from, to}
}

// alone compares a sample with 0: a clean router, in logarithms.
func alone(s inference.Sample) evidence { return evidence{s, inference.None(), s} }

func noEvidence() evidence { return alone(inference.None()) }

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
// answer, when it lies distance away, the spreads stay as they are, and a
// two-sided test at alpha decides. Nil: more than inference.MostFurther, or not known.
func (e evidence) furtherBlocks(distance, alpha float64) *int {
	if !e.HasSpread() {
		return nil
	}
	return inference.Further(e.to.N, func(blocks int) bool {
		later := e.with(blocks - e.to.N)
		t := inference.Quantile(later.Freedom, 1-alpha/2) + inference.Quantile(later.Freedom, inference.Power)
		return t*later.SE <= distance
	})
}

// with is the evidence as it would be with more blocks in each run.
func (e evidence) with(more int) evidence {
	grown := func(s inference.Sample) inference.Sample {
		n := float64(s.N)
		s.SE *= math.Sqrt(n / (n + float64(more)))
		s.Freedom += float64(more)
		s.N += more
		return s
	}
	if e.from.N == 0 {
		return alone(grown(e.to))
	}
	return difference(grown(e.from), grown(e.to))
}

// turned is the evidence with its sign changed.
func (e evidence) turned() evidence {
	e.Mean, e.from.Mean, e.to.Mean = -e.Mean, -e.from.Mean, -e.to.Mean
	return e
}
