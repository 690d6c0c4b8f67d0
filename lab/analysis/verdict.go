package analysis

import (
	"fmt"
	"math"
	"sort"

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

// power is the chance that the blocks asked for bring a verdict, if the spread
// stays as seen. Asking only for a half-width as small as the distance would
// make it an even chance.
const power = 0.8

// maxBlocks bounds what is asked for; beyond it the answer is to find the noise.
const maxBlocks = 10_000

// Verdict is what the blocks allow to say of a ratio.
type Verdict struct {
	Word string
	// Note is one clause that says why, or what is missing.
	Note string
	// PDifferent and PEquivalent are adjusted for multiplicity.
	PDifferent, PEquivalent Number
}

// judgeAll gives every mean log ratio a verdict, adjusted for their number.
func judgeAll(logs []inference.Sample, opts Options) []Verdict {
	different, equivalent := make([]float64, len(logs)), make([]float64, len(logs))
	for i, s := range logs {
		different[i], equivalent[i] = s.PDifferent(), s.PEquivalent(math.Log1p(opts.Delta))
	}
	different, equivalent = inference.Adjust(different, equivalent)
	verdicts := make([]Verdict, len(logs))
	family := testable(logs)
	for i, s := range logs {
		verdicts[i] = judge(s, different[i], equivalent[i], family, opts)
	}
	return verdicts
}

// testable counts the ratios that have an interval: the size of the family.
func testable(logs []inference.Sample) int {
	n := 0
	for _, s := range logs {
		if s.HasSpread() {
			n++
		}
	}
	return n
}

// judge gives one verdict from the adjusted p-values. A word also needs the
// displayed interval to show it, which a test of equivalence alone does not:
// its level corresponds to a 90 % interval where the one displayed is of 95 %.
func judge(log inference.Sample, different, equivalent float64, family int, opts Options) Verdict {
	v := Verdict{Word: Inconclusive, PDifferent: Number(different), PEquivalent: Number(equivalent)}
	limit, alpha := math.Log1p(opts.Delta), 1-opts.Confidence
	lo, hi := log.Interval(opts.Confidence)
	inside, outside := lo >= -limit && hi <= limit, lo > 0 || hi < 0
	switch {
	case log.N == 0:
		v.Note = "no accepted pair with a ratio"
		return v
	case !log.HasSpread():
		v.Note = "one block: no interval, at least one more block is needed"
		return v
	case inside && equivalent <= alpha:
		v.Word, v.Note = Equivalent, fmt.Sprintf("within %g %% of the clean router", 100*opts.Delta)
		return v
	case different <= alpha:
		v.Word, v.Note = Different, "the interval leaves out 1"
		return v
	case inside || outside:
		v.Note = fmt.Sprintf("among %d verdicts one may look like this by chance", family)
	default:
		v.Note = "the interval is too wide"
	}
	return v
}

// spreadOf is the standard deviation behind the mean of a sample.
func spreadOf(s inference.Sample) float64 { return s.SE * math.Sqrt(float64(s.N)) }

// judgeCells fills in the verdicts of the cells from the log ratios of their
// blocks, and for cells without a verdict how many more blocks they need.
func judgeCells(cells []Cell, logs []inference.Sample, aa AA, opts Options) {
	family := max(testable(logs), 1)
	for i, v := range judgeAll(logs, opts) {
		c, log := &cells[i], logs[i]
		switch {
		case v.Word == Different:
			v = aboveNoise(v, log.Mean, aa, opts)
		case v.Word == Inconclusive && log.HasSpread():
			c.BlocksNeeded = furtherBlocks(log.Mean, spreadOf(log), log.N, family, opts)
			v.Note += wants(c.BlocksNeeded, "by the spread seen")
		case log.N == 1 && aa.SDLog.Known():
			c.BlocksNeeded = furtherBlocks(log.Mean, float64(aa.SDLog), 1, family, opts)
			v.Note += wants(c.BlocksNeeded, "by the spread of the A/A blocks")
		}
		c.Verdict, c.VerdictNote = v.Word, v.Note
		c.PDifferent, c.PEquivalent = v.PDifferent, v.PEquivalent
	}
}

// aboveNoise takes back a difference that is no larger than what the A/A blocks
// leave open between two clean routers: then it may be the lab's and not the
// device's. More blocks of the device would not tell; more A/A blocks may.
func aboveNoise(v Verdict, m float64, aa AA, opts Options) Verdict {
	if !aa.Ratio.HasInterval() {
		return v
	}
	floor := math.Max(math.Abs(math.Log(float64(aa.Ratio.Lo))), math.Abs(math.Log(float64(aa.Ratio.Hi))))
	if math.Abs(m) > floor {
		return v
	}
	v.Word = Inconclusive
	v.Note = fmt.Sprintf("two clean routers may differ as much (A/A %.3f to %.3f)", aa.Ratio.Lo, aa.Ratio.Hi)
	// The floor shrinks to the A/A blocks' own mean, and no further.
	distance := math.Abs(m) - math.Abs(math.Log(float64(aa.Ratio.Mean)))
	enough := func(n int) bool {
		return displayed(n, opts)*float64(aa.SDLog)/math.Sqrt(float64(n)) < distance
	}
	if further := fewest(aa.Ratio.N, enough); distance > 0 && further != nil {
		v.Note += fmt.Sprintf("; about %s would tell", words.Counted(*further, "more A/A block"))
	}
	return v
}

// displayed is the quantile of the displayed interval of n blocks.
func displayed(n int, opts Options) float64 {
	return inference.Quantile(float64(n-1), (1+opts.Confidence)/2)
}

func wants(blocks *int, basis string) string {
	if blocks == nil {
		return fmt.Sprintf("; more than %d blocks would be needed %s: find the noise first", maxBlocks, basis)
	}
	return fmt.Sprintf("; needs about %s %s", words.Counted(*blocks, "more block"), basis)
}

// furtherBlocks is how many blocks beyond n give a verdict with the chance of
// power, when the mean log ratio stays m, the blocks' spread sd, and family
// verdicts are taken together. The verdict nearest to hand counts: "different"
// is |m| away, "equivalent" δ - |m|. Each level is that of the first step of
// Holm's procedure, the strictest.
func furtherBlocks(m, sd float64, n, family int, opts Options) *int {
	alpha := (1 - opts.Confidence) / float64(family)
	enough := func(blocks int) bool {
		freedom := float64(blocks - 1)
		reach := func(level float64) float64 {
			return (inference.Quantile(freedom, 1-level) + inference.Quantile(freedom, power)) * sd / math.Sqrt(float64(blocks))
		}
		return reach(alpha/2) <= math.Abs(m) ||
			reach(min(alpha, (1-opts.Confidence)/2)) <= math.Log1p(opts.Delta)-math.Abs(m)
	}
	return fewest(n, enough)
}

// fewest is the smallest number of blocks beyond n that are enough, nil beyond maxBlocks.
func fewest(n int, enough func(blocks int) bool) *int {
	first := max(n+1, 2)
	further := first + sort.Search(maxBlocks, func(i int) bool { return enough(first + i) }) - n
	if further > maxBlocks {
		return nil
	}
	return &further
}
