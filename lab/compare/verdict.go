// Verdicts on the cells that both runs have: worse, better, equivalent or inconclusive.

package compare

import (
	"fmt"
	"math"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/inference"
	"github.com/gateweigh/gateweigh/lab/words"
)

// verdicts judges all cells of two runs together.
func (c *Comparison) verdicts(opts Options) {
	limit := math.Log1p(opts.Delta)
	var different, equivalent []float64
	for _, cell := range c.Cells {
		different, equivalent = append(different, cell.change.PDifferent()),
			append(equivalent, cell.change.PEquivalent(limit))
	}
	ofDifferent, ofEquivalent := inference.AdjustLevels(different, equivalent, 1-opts.Confidence)
	different, equivalent = inference.Adjust(different, equivalent)
	for i := range c.Cells {
		cell := &c.Cells[i]
		cell.levels = testLevels{ofDifferent[i], ofEquivalent[i]}
		cell.PDifferent, cell.PEquivalent = analysis.Number(different[i]), analysis.Number(equivalent[i])
		if cell.change.HasSpread() {
			c.Multiplicity.Verdicts++
		}
		c.verdict(cell, opts)
	}
}

// testLevels are the levels at which the corrected tests of a cell were decided.
type testLevels struct{ different, equivalent float64 }

// verdict decides the verdict of one cell. Equivalent: the change is within δ. Worse or better: there is a change, and
// its estimate exceeds δ. Small changes that are certain get neither, because everything that a whole run has in common
// shifts all its blocks together, and the blocks do not show that. The deciding interval has the level of the corrected
// test.
func (c *Comparison) verdict(cell *Cell, opts Options) {
	alpha, limit, change := 1-opts.Confidence, math.Log1p(opts.Delta), cell.change.Mean
	aloneInside, aloneOutside := cell.change.Lies(limit, opts.Confidence)
	_, certain := cell.change.Lies(limit, 1-cell.levels.different)
	// Two one-sided tests at a level correspond to an interval with twice that error probability.
	within := 1 - min(alpha, 2*cell.levels.equivalent)
	inside, _ := cell.change.Lies(limit, within)
	worse := change
	if c.Metric.Better == analysis.More {
		worse = -change
	}
	cell.Verdict, cell.Deciding = Inconclusive, cell.Change
	if !cell.change.HasSpread() {
		cell.VerdictNote = c.whyUnknown(cell)
		return
	}
	cell.Deciding = cell.change.ratio(1 - cell.levels.different)
	switch {
	case inside:
		cell.Verdict, cell.VerdictNote = Equivalent, fmt.Sprintf("changed by less than %s", percent(opts.Delta))
		cell.Deciding = cell.change.ratio(within)
		return
	case certain && c.belowFloor(change):
		cell.VerdictNote = fmt.Sprintf("no more than two clean routers differ by (%.2f %%)", float64(c.NoiseFloorPct))
		return
	case certain && worse > limit:
		cell.Verdict, cell.VerdictNote = Worse, c.words().more
		return
	case certain && worse < -limit:
		cell.Verdict, cell.VerdictNote = Better, c.words().less
		return
	case certain:
		cell.VerdictNote = fmt.Sprintf("a change, but hardly by %s", percent(opts.Delta))
	case aloneInside || aloneOutside:
		cell.VerdictNote = fmt.Sprintf(
			"clear when judged alone, but one of %d cells taken together may look so by chance", len(c.Cells))
	default:
		cell.VerdictNote = "the interval is too wide"
	}
	// There will be a verdict when the interval excludes 0 and the change is beyond δ, or when the interval is inside δ.
	distance := math.Abs(change)
	if distance <= limit {
		distance = limit - distance
	}
	cell.BlocksNeeded = cell.change.furtherBlocks(distance-max(cell.change.down, cell.change.up), cell.levels.different)
	cell.VerdictNote += c.moreBlocksText(cell.change, cell.BlocksNeeded)
}

// changeWords are the words for changes: grown for a limit ("more expensive"), more for a worse one, less for a better
// one.
type changeWords struct{ grown, more, less string }

func (c *Comparison) words() changeWords {
	if c.Metric.Better == analysis.More {
		return changeWords{"worse", "less than in A", "more than in A"}
	}
	return changeWords{"more expensive", "costs more than in A", "costs less than in A"}
}

// belowFloor reports whether a change is no larger than the difference of two clean routers. No number of blocks can
// tell such a change from a fault of the lab.
func (c *Comparison) belowFloor(change float64) bool {
	return c.NoiseFloorPct.Known() && math.Abs(change) <= math.Log1p(float64(c.NoiseFloorPct)/100)
}

// moreBlocksText says how many further blocks would bring an answer, if the blocks show that.
func (c *Comparison) moreBlocksText(e evidence, blocks *int) string {
	switch {
	case e.tooFewBlocks():
		return fmt.Sprintf("; fewer than %d blocks do not say how many more would tell", inference.FewestForSpread)
	case blocks == nil:
		return fmt.Sprintf("; more than %d further blocks would be needed: find the noise first", inference.MostFurther)
	case c.A == nil:
		return "; needs about " + words.Counted(*blocks, "more block")
	}
	return "; needs about " + words.Counted(*blocks, "more block") + " in each run"
}

// whyUnknown says why a cell has no interval.
func (c *Comparison) whyUnknown(cell *Cell) string {
	if c.incomparable() {
		return noRatio
	}
	names, sides := []string{"A", "B"}, []*Measured{cell.A, &cell.B}
	if c.A == nil {
		names, sides = []string{"the run"}, sides[1:]
	}
	for i, m := range sides {
		switch {
		case m == nil:
			return "only B has this cell"
		case m.Pairs == 0:
			return fmt.Sprintf("%s has no accepted trial here (%d rejected)", names[i], m.Rejected)
		case m.Judged.N == 1:
			return names[i] + " has one block only: no interval"
		case m.Judged.N == 0:
			return names[i] + " has no pair with a ratio"
		}
	}
	return "no interval"
}
