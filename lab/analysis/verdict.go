package analysis

import (
	"fmt"
	"math"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Verdicts on a ratio: a DUT against the clean router, or one level of a sweep
// against the one before.
const (
	Different    = "different"    // the interval leaves out 1, beyond the noise floor
	Equivalent   = "equivalent"   // the interval lies inside [1/(1+δ), 1+δ]
	Inconclusive = "inconclusive" // neither: more blocks are needed
)

// MethodHolm names the correction for many verdicts: Holm's, over the tests for
// a difference and for equivalence of all ratios together.
const MethodHolm = "holm"

// Verdict is the word that the blocks support for a change.
type Verdict struct {
	Word string
	// Note is one clause that says why, or what is missing.
	Note string
	// PDifferent and PEquivalent are adjusted for multiplicity.
	PDifferent, PEquivalent Number
	// Together is the interval by which the verdict was refused, where the contrast's own interval would have another
	// word; nil elsewhere. It holds for all contrasts together.
	Together *Estimate
}

// contrast is a change on the scale of its mean (the logarithm of a ratio, or a
// difference), and the largest one that does not matter.
type contrast struct {
	inference.Sample
	limit float64
	moved span // by what noise may have moved the mean
}

// ratios are the contrasts of log ratios.
func ratios(logs []inference.Sample, opts Options) []contrast {
	out := make([]contrast, len(logs))
	for i, s := range logs {
		out[i] = contrast{Sample: s, limit: opts.limit()}
	}
	return out
}

// judgeAll gives every contrast a verdict, adjusted for their number.
func judgeAll(list []contrast, opts Options) []Verdict {
	ofDifferent := each(list, func(c contrast) float64 { return c.pDifferent() })
	ofEquivalent := each(list, func(c contrast) float64 { return c.pEquivalent() })
	different, equivalent := inference.Adjust(ofDifferent, ofEquivalent)
	levels, _ := inference.AdjustLevels(ofDifferent, ofEquivalent, 1-opts.Confidence)
	verdicts := make([]Verdict, len(list))
	for i, c := range list {
		verdicts[i] = c.judge(different[i], equivalent[i], testable(list), opts)
		if inside, outside := c.lies(opts); verdicts[i].Word == Inconclusive && (inside || outside) {
			lo, hi := c.interval(1 - levels[i])
			verdicts[i].Together = &Estimate{Mean: Number(c.Mean), Lo: Number(lo), Hi: Number(hi), N: c.N}
		}
	}
	return verdicts
}

// testable counts the contrasts that have an interval: the size of the family.
func testable(list []contrast) int {
	return len(without(list, func(c contrast) bool { return !c.HasSpread() }))
}

// judge gives one verdict from the adjusted p-values. A word also needs the
// displayed interval to show it, which a test of equivalence alone does not:
// its level corresponds to a 90 % interval where the one displayed is of 95 %.
func (c contrast) judge(different, equivalent float64, family int, opts Options) Verdict {
	v := Verdict{Word: Inconclusive, PDifferent: Number(different), PEquivalent: Number(equivalent)}
	alpha := 1 - opts.Confidence
	inside, outside := c.lies(opts)
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

// judgeCells fills in the verdicts of the cells on the metric m, and for cells without
// a verdict how many more blocks they need.
func judgeCells(cells []Cell, list []contrast, aa AA, m Metric, opts Options) {
	family := max(testable(list), 1)
	for i, v := range judgeAll(list, opts) {
		c, own := &cells[i], list[i]
		switch {
		case v.Word == Different:
			v.Note = fmt.Sprintf("the interval leaves out %g", m.unscaled(Estimate{}).Mean)
			v = aboveNoise(v, own.Mean, aa, m, opts)
		case v.Word == Inconclusive && own.HasSpread():
			c.BlocksNeeded = own.furtherBlocks(own.SE*math.Sqrt(float64(own.N)), own.N, family, opts)
			v.Note += wants(c.BlocksNeeded, own.N, "by the spread seen")
		case own.N == 1 && aa.SDLog.Known():
			c.BlocksNeeded = own.furtherBlocks(float64(aa.SDLog), aa.Ratio.N, family, opts)
			v.Note += wants(c.BlocksNeeded, aa.Ratio.N, "by the spread of the A/A blocks")
		}
		if v.Together != nil {
			together := m.unscaled(*v.Together)
			c.Together = &together
		}
		c.Verdict, c.VerdictNote = v.Word, v.Note
		c.PDifferent, c.PEquivalent = v.PDifferent, v.PEquivalent
	}
}

// aboveNoise takes back a change that is no larger than what the A/A blocks
// leave open between two clean routers: it may come from the lab and not from the
// device. More blocks of the device cannot decide that; more A/A blocks may.
func aboveNoise(v Verdict, mean float64, aa AA, m Metric, opts Options) Verdict {
	change := math.Abs(mean)
	if !aa.Ratio.HasInterval() || change > max(math.Abs(m.scaled(aa.Ratio.Lo)), math.Abs(m.scaled(aa.Ratio.Hi))) {
		return v
	}
	v.Word = Inconclusive
	v.Note = fmt.Sprintf("two clean routers may differ as much (A/A %.3f to %.3f)", aa.Ratio.Lo, aa.Ratio.Hi)
	// The floor shrinks to the A/A blocks' own mean, and no further.
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

// wants says how many blocks would bring a verdict, by the spread of some blocks.
func wants(blocks *int, of int, basis string) string {
	switch {
	case of < inference.FewestForSpread:
		return fmt.Sprintf("; fewer than %d blocks do not say how many more would tell", inference.FewestForSpread)
	case blocks == nil:
		return fmt.Sprintf("; more than %d blocks would be needed %s: find the noise first", inference.MostFurther, basis)
	}
	return fmt.Sprintf("; needs about %s %s", words.Counted(*blocks, "more block"), basis)
}

// furtherBlocks is how many further blocks give a verdict with the chance of
// inference.Power, when the mean stays, the spread is as large as sd, seen in seen blocks, allows it to be
// (inference.Spread), and family verdicts are taken together. The closer verdict counts: "different" is |mean| away,
// "equivalent" the limit less |mean|. Each level is that of the first step of Holm's
// procedure, the strictest. Nil: more than inference.MostFurther, or too few blocks to know.
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
