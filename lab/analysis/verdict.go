package analysis

import (
	"fmt"
	"math"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Verdicts on a ratio. The ratio compares a DUT with the clean router, or one level of a sweep
// with the level before it.
const (
	Different    = "different"    // the interval leaves out 1, beyond the noise floor
	Equivalent   = "equivalent"   // the interval lies inside [1/(1+δ), 1+δ]
	Inconclusive = "inconclusive" // neither: more blocks are needed
)

// MethodHolm names the correction for many verdicts: Holm's, over the tests for
// a difference and for equivalence of all ratios together.
const MethodHolm = "holm"

// Verdict says what the blocks prove about a change.
type Verdict struct {
	Word string // Different, Equivalent or Inconclusive
	// Note gives the reason for Word in one clause.
	Note string
	// PDifferent and PEquivalent are adjusted for multiplicity.
	PDifferent, PEquivalent Number
	// Together is the interval with the confidence that counts when all contrasts are judged together; it is wider than
	// the contrast's own. It is set where the verdict is Inconclusive although the contrast's own interval would decide
	// it. Otherwise it is nil.
	Together *Estimate
}

// contrast is a change: the logarithm of a ratio, or a difference. limit is the largest change
// that counts as equivalence, on the same scale.
type contrast struct {
	inference.Sample
	limit float64
	moved span // by how much noise may have moved the mean, down and up
}

// ratios makes contrasts of log ratios.
func ratios(logs []inference.Sample, opts Options) []contrast {
	out := make([]contrast, len(logs))
	for i, s := range logs {
		out[i] = contrast{Sample: s, limit: opts.limit()}
	}
	return out
}

// judgeAll gives every contrast a verdict. The p-values are adjusted for the number of contrasts.
func judgeAll(list []contrast, opts Options) []Verdict {
	ofDifferent := each(list, func(c contrast) float64 { return c.pDifferent() })
	ofEquivalent := each(list, func(c contrast) float64 { return c.pEquivalent() })
	different, equivalent := inference.Adjust(ofDifferent, ofEquivalent)
	levels, _ := inference.AdjustLevels(ofDifferent, ofEquivalent, 1-opts.Confidence)
	verdicts := make([]Verdict, len(list))
	for i, c := range list {
		verdicts[i] = c.judge(different[i], equivalent[i], testable(list), opts)
		if inside, outside := c.position(opts); verdicts[i].Word == Inconclusive && (inside || outside) {
			lo, hi := c.interval(1 - levels[i])
			verdicts[i].Together = &Estimate{Mean: Number(c.Mean), Lo: Number(lo), Hi: Number(hi), N: c.N}
		}
	}
	return verdicts
}

// testable counts the contrasts with an interval. Their number is the size of the family of tests.
func testable(list []contrast) int {
	return len(without(list, func(c contrast) bool { return !c.HasSpread() }))
}

// judge gives one verdict from the adjusted p-values. The displayed interval must agree with the
// word. A test of equivalence alone does not ensure that, because its level corresponds to a
// 90 % interval and the displayed interval has 95 %.
func (c contrast) judge(different, equivalent float64, family int, opts Options) Verdict {
	v := Verdict{Word: Inconclusive, PDifferent: Number(different), PEquivalent: Number(equivalent)}
	alpha := 1 - opts.Confidence
	inside, outside := c.position(opts)
	switch {
	case c.N == 0:
		v.Note = "no accepted pair with a ratio"
	case !c.HasSpread():
		v.Note = "one block: no interval, at least one more block is needed"
	case inside && equivalent <= alpha:
		v.Word, v.Note = Equivalent, fmt.Sprintf("within %g %% of the clean router", 100*opts.Delta)
	case different <= alpha:
		v.Word = Different
	case inside || outside:
		v.Note = fmt.Sprintf("among %d verdicts one may look like this by chance", family)
	default:
		v.Note = "the interval is too wide"
	}
	return v
}

// judgeCells fills in the verdicts of the cells on the metric m. Cells without a verdict get
// the number of further blocks that they need.
func judgeCells(cells []Cell, list []contrast, aa AA, m Metric, opts Options) {
	family := max(testable(list), 1)
	for i, v := range judgeAll(list, opts) {
		c, change := &cells[i], list[i]
		switch {
		case v.Word == Different:
			v.Note = fmt.Sprintf("the interval leaves out %g", m.unscaled(Estimate{}).Mean)
			v = aboveNoise(v, change.Mean, aa, m, opts)
		case v.Word == Inconclusive && change.HasSpread():
			c.BlocksNeeded = change.furtherBlocks(change.SE*math.Sqrt(float64(change.N)), change.N, family, opts)
			v.Note += neededText(c.BlocksNeeded, change.N, "by the spread seen")
		case change.N == 1 && aa.SDLog.Known():
			c.BlocksNeeded = change.furtherBlocks(float64(aa.SDLog), aa.Ratio.N, family, opts)
			v.Note += neededText(c.BlocksNeeded, aa.Ratio.N, "by the spread of the A/A blocks")
		}
		if v.Together != nil {
			together := m.unscaled(*v.Together)
			c.Together = &together
		}
		c.Verdict, c.VerdictNote = v.Word, v.Note
		c.PDifferent, c.PEquivalent = v.PDifferent, v.PEquivalent
	}
}

// aboveNoise makes a verdict inconclusive if the change is no larger than the A/A interval, in
// which two clean routers may differ. Such a change may come from the lab. More blocks of the
// device cannot decide that, but more A/A blocks may.
func aboveNoise(v Verdict, mean float64, aa AA, m Metric, opts Options) Verdict {
	change := math.Abs(mean)
	if !aa.Ratio.HasInterval() || change > max(math.Abs(m.scaled(aa.Ratio.Lo)), math.Abs(m.scaled(aa.Ratio.Hi))) {
		return v
	}
	v.Word = Inconclusive
	v.Note = fmt.Sprintf("two clean routers may differ as much, up or down (A/A %.3f to %.3f)", aa.Ratio.Lo, aa.Ratio.Hi)
	// With more A/A blocks the noise floor shrinks towards the mean of the A/A blocks.
	distance := change - math.Abs(m.scaled(aa.Ratio.Mean))
	sd := float64(aa.SDLog) * inference.Spread(float64(aa.Ratio.N-1))
	enough := func(n int) bool {
		return inference.Quantile(float64(n-1), (1+opts.Confidence)/2)*sd/math.Sqrt(float64(n)) < distance
	}
	if further := inference.Further(aa.Ratio.N, enough); distance > 0 && aa.Ratio.N >= inference.FewestForSpread &&
		further != nil {
		v.Note += fmt.Sprintf("; about %s would tell", words.Counted(*further, "more A/A block"))
	}
	return v
}

// neededText says how many further blocks would bring a verdict. seen is the number of blocks that the spread comes
// from.
func neededText(blocks *int, seen int, basis string) string {
	switch {
	case seen < inference.FewestForSpread:
		return fmt.Sprintf("; fewer than %d blocks do not say how many more would tell", inference.FewestForSpread)
	case blocks == nil:
		return fmt.Sprintf("; more than %d blocks would be needed %s: find the noise first", inference.MostFurther, basis)
	}
	return fmt.Sprintf("; needs about %s %s", words.Counted(*blocks, "more block"), basis)
}

// furtherBlocks returns the number of further blocks that give a verdict with probability
// inference.Power. It assumes that the mean stays and that the spread is the largest that sd allows
// (inference.Spread). seen is the number of blocks that sd comes from. family is the number of verdicts judged
// together. The verdict that needs fewer blocks counts: "different" needs a distance of |mean|, "equivalent" a distance
// of the limit less |mean|. The levels are those of the first step of Holm's procedure, the strictest. It returns nil
// for more than inference.MostFurther blocks, or when seen is too small.
func (c contrast) furtherBlocks(sd float64, seen, family int, opts Options) *int {
	if seen < inference.FewestForSpread {
		return nil
	}
	sd *= inference.Spread(float64(seen - 1))
	alpha := (1 - opts.Confidence) / float64(family)
	return inference.Further(c.N, func(blocks int) bool {
		freedom := float64(blocks - 1)
		reach := func(level float64) float64 {
			return (inference.Quantile(freedom, 1-level) + inference.Quantile(freedom, inference.Power)) * sd / math.Sqrt(
				float64(blocks))
		}
		return reach(alpha/2) <= math.Abs(c.Mean)-c.moved.towards0(c.Mean) ||
			reach(min(alpha, (1-opts.Confidence)/2)) <= c.limit-math.Abs(c.Mean)-max(c.moved.down, c.moved.up)
	})
}
