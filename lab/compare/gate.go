package compare

import (
	"fmt"
	"math"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/inference"
)

// Words of a decision.
const (
	Regressed  = "regressed"    // costs more than in A, by more than the limit
	OverLimit  = "over limit"   // costs more than a clean router, by more than the limit
	Within     = "within limit" // neither, with certainty
	CannotTell = "cannot tell"  // the interval holds the limit, or is missing
)

// Decision is what a limit says of one cell.
type Decision struct {
	Word string `json:"word"`
	Note string `json:"note"` // one sentence
	// P is the chance of such blocks if the cell kept the limit, adjusted for
	// the number of cells.
	P            analysis.Number `json:"p"`
	BlocksNeeded *int            `json:"blocks_needed"` // further blocks, of each run
}

// Gate is the outcome over all cells.
//
// A gate must not fail by chance, and must not pass by chance either. So a cell has
// three answers: beyond the limit when the whole interval lies beyond, within
// when the whole interval lies below, and otherwise undecided: more blocks are needed.
// Undecided cells fail a Strict gate only. A gate in which no cell has an interval
// fails: nothing was judged.
type Gate struct {
	MaxRegressionPct analysis.Number `json:"max_regression_pct"`
	MaxOverheadPct   analysis.Number `json:"max_overhead_pct"`
	Strict           bool            `json:"strict"`
	Passed           bool            `json:"passed"`
	Failed           int             `json:"failed"` // decisions beyond their limit
	Within           int             `json:"within"`
	Unclear          int             `json:"unclear"` // cells that only A has count too
	Sentence         string          `json:"sentence"`
}

// limit is one limit of a gate.
type limit struct {
	share    float64 // 0.05 is 5 %
	text     string  // "at most 5 % more expensive than A"
	beyond   string  // the word of a decision
	of       func(*Cell) evidence
	decision func(*Cell) **Decision
}

// limits are the limits of the comparison's gate.
func (c *Comparison) limits() (list []limit) {
	if g := c.Gate; g.MaxRegressionPct.Known() && c.A != nil {
		share, turn := float64(g.MaxRegressionPct)/100, c.Metric.Better == analysis.More
		list = append(list, limit{share, "at most " + percent(share) + " " + c.words().grown + " than A", Regressed, func(cell *Cell) evidence {
			if turn {
				return cell.change.turned()
			}
			return cell.change
		}, func(cell *Cell) **Decision { return &cell.Regression }})
	}
	if c.Gate.MaxOverheadPct.Known() {
		share := float64(c.Gate.MaxOverheadPct) / 100
		list = append(list, limit{share, "at most " + percent(share) + " more expensive than a clean router", OverLimit,
			func(cell *Cell) evidence { return cell.overhead }, func(cell *Cell) **Decision { return &cell.Overhead }})
	}
	return list
}

// judgeGate decides every cell and sums up.
func (c *Comparison) judgeGate(opts Options) {
	if !opts.MaxRegression.Known() && !opts.MaxOverhead.Known() {
		return
	}
	g := &Gate{MaxRegressionPct: 100 * opts.MaxRegression, MaxOverheadPct: 100 * opts.MaxOverhead, Strict: opts.Strict}
	c.Gate = g
	judged := 0
	var texts []string
	for _, l := range c.limits() {
		judged += c.decide(l, opts)
		texts = append(texts, l.text)
		if l.beyond == Regressed {
			g.Unclear += len(c.OnlyA)
		}
	}
	if g.Strict {
		texts = append(texts, "strict")
	}
	word := "failed"
	if g.Passed = judged > 0 && g.Failed == 0 && (!g.Strict || g.Unclear == 0); g.Passed {
		word = "passed"
	}
	g.Sentence = fmt.Sprintf("gate %s (%s): %s", word, strings.Join(texts, ", "), g.counts(judged)) + c.brackets()
	if judged == 0 && c.incomparable() {
		g.Sentence = fmt.Sprintf("gate %s (%s): no cell could be judged: %s", word, strings.Join(texts, ", "), noRatio) + c.brackets()
	}
}

func (g *Gate) counts(judged int) string {
	if judged == 0 {
		return "no cell could be judged, as none has an interval"
	}
	var parts []string
	if g.Failed > 0 {
		parts = append(parts, fmt.Sprintf("%d beyond the limit", g.Failed))
	}
	if g.Unclear > 0 {
		parts = append(parts, fmt.Sprintf("%d without an answer", g.Unclear))
	}
	return strings.Join(append(parts, fmt.Sprintf("%d within", g.Within)), ", ")
}

// decide compares every cell with a limit and returns how many have an interval. Beyond
// the limit is said with confidence over all cells together; within it cell by cell, since
// the gate passes only if that is true of every one.
func (c *Comparison) decide(l limit, opts Options) (judged int) {
	alpha, bound := (1-opts.Confidence)/2, math.Log1p(l.share)
	above := make([]float64, len(c.Cells))
	for i := range c.Cells {
		above[i] = l.of(&c.Cells[i]).PAbove(bound)
	}
	adjusted := inference.Holm(above)
	for i := range c.Cells {
		cell, own := &c.Cells[i], l.of(&c.Cells[i])
		d := &Decision{Word: CannotTell, P: analysis.Number(adjusted[i])}
		*l.decision(cell) = d
		if own.HasSpread() {
			judged++
		}
		switch {
		case l.beyond == OverLimit && c.difference():
			d.Note = "a limit in per cent of a clean router needs a ratio to it, and the run has a difference"
		case l.beyond == OverLimit && !c.ratio():
			d.Note = "no clean router stood beside the device"
		case !own.HasSpread():
			d.Note = c.whyUnknown(cell)
		case adjusted[i] <= alpha && c.belowFloor(own.Mean):
			d.Note = fmt.Sprintf("beyond %s, but no more than two clean routers differ by", percent(l.share))
		case adjusted[i] <= alpha:
			d.Word, d.Note = l.beyond, fmt.Sprintf("the interval lies beyond %s", percent(l.share))
			c.Gate.Failed++
		case own.PBelow(bound) <= alpha:
			d.Word, d.Note = Within, fmt.Sprintf("the interval lies below %s", percent(l.share))
			c.Gate.Within++
		default:
			d.Note = fmt.Sprintf("the interval holds %s", percent(l.share))
			if above[i] <= alpha {
				d.Note = fmt.Sprintf("beyond %s taken alone, not with %d cells judged together", percent(l.share), len(c.Cells))
			}
			d.BlocksNeeded = own.furtherBlocks(math.Abs(own.Mean-bound), 2*alpha)
			d.Note += c.wants(d.BlocksNeeded)
		}
		if d.Word == CannotTell {
			c.Gate.Unclear++
		}
	}
	return judged
}
