package analysis

import (
	"fmt"
	"math"
	"sort"
)

// Verdicts on a DUT against the clean router.
const (
	Different    = "different"    // the interval leaves out a ratio of 1
	Equivalent   = "equivalent"   // the interval lies inside [1/(1+δ), 1+δ]
	Inconclusive = "inconclusive" // neither: more blocks are needed
)

// power is the chance that the blocks asked for bring a verdict, if the spread
// stays as seen. Asking only for a half-width as small as the distance would
// make it an even chance.
const power = 0.8

// maxBlocks bounds what is asked for; beyond it the answer is to find the noise.
const maxBlocks = 10_000

// Verdict is what the interval of the overhead ratio allows to say.
type Verdict struct {
	Word string
	// Note is one sentence that says why, or what is missing.
	Note string
	// BlocksNeeded is the number of further blocks that would probably bring a
	// verdict; nil when there is one, or when the spread is not known.
	BlocksNeeded *int
}

// judge compares the interval of the mean log ratio with δ. fallbackSD stands
// in for the spread when there is only one block (the A/A pairs' spread, or absent).
func judge(log Estimate, sd, fallbackSD Number, opts Options) Verdict {
	limit := math.Log1p(opts.Delta)
	lo, hi, m := float64(log.Lo), float64(log.Hi), float64(log.Mean)
	switch {
	case log.N == 0:
		return Verdict{Word: Inconclusive, Note: "no accepted pair with a ratio"}
	case !log.HasInterval():
		v := Verdict{Word: Inconclusive, Note: "one block: no interval, at least one more block is needed"}
		if fallbackSD.Known() {
			v.BlocksNeeded = furtherBlocks(m, float64(fallbackSD), log.N, opts)
			v.Note += wants(v.BlocksNeeded, "by the spread of the A/A blocks")
		}
		return v
	case lo >= -limit && hi <= limit:
		return Verdict{Word: Equivalent, Note: fmt.Sprintf("within %g %% of the clean router", 100*opts.Delta)}
	case lo > 0 || hi < 0:
		return Verdict{Word: Different, Note: "the interval leaves out 1"}
	}
	v := Verdict{Word: Inconclusive, Note: "the interval is too wide"}
	v.BlocksNeeded = furtherBlocks(m, float64(sd), log.N, opts)
	v.Note += wants(v.BlocksNeeded, "by the spread seen")
	return v
}

func wants(blocks *int, basis string) string {
	if blocks == nil {
		return fmt.Sprintf("; more than %d blocks would be needed %s: find the noise first", maxBlocks, basis)
	}
	return fmt.Sprintf("; needs about %d more blocks %s", *blocks, basis)
}

// furtherBlocks is how many blocks beyond n give a verdict with the chance of
// power, when the mean log ratio stays m and the blocks' spread sd. The verdict
// nearest to hand counts: "different" is |m| away, "equivalent" δ - |m|.
func furtherBlocks(m, sd float64, n int, opts Options) *int {
	distance := math.Max(math.Abs(m), math.Log1p(opts.Delta)-math.Abs(m))
	enough := func(blocks int) bool {
		t := tQuantile(blocks-1, (1+opts.Confidence)/2) + tQuantile(blocks-1, power)
		return t*sd/math.Sqrt(float64(blocks)) <= distance
	}
	first := max(n+1, 2)
	at := first + sort.Search(maxBlocks, func(i int) bool { return enough(first + i) })
	if at-n > maxBlocks {
		return nil
	}
	further := at - n
	return &further
}
