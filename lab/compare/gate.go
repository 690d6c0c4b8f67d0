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
	Regressed  = "regressed"    // dearer than in A by more than the limit
	OverLimit  = "over limit"   // dearer than a clean router by more than the limit
	Within     = "within limit" // not by more than the limit
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

// fails reports whether the decision fails the gate.
func (d *Decision) fails(strict bool) bool {
	return d != nil && (d.Word == Regressed || d.Word == OverLimit || strict && d.Word == CannotTell)
}

// Gate is the outcome over all cells.
//
// A gate must not fail by chance, and must not pass by chance either. So it has
// three answers: over the limit when the whole interval lies beyond it, within
// it when the whole interval lies below, and in between it cannot tell and asks
// for more blocks. That passes unless Strict; but a gate with nothing to judge fails.
type Gate struct {
	MaxRegressionPct analysis.Number `json:"max_regression_pct"`
	MaxOverheadPct   analysis.Number `json:"max_overhead_pct"`
	Strict           bool            `json:"strict"`
	Passed           bool            `json:"passed"`
	Failed           int             `json:"failed"` // decisions beyond their limit
	Within           int             `json:"within"`
	Unclear          int             `json:"unclear"` // cells that only A has count too
	Sentence         string          `json:"sentence"`

	grown string // "dearer", or "worse" of a metric of which more is better
}

// judgeGate decides every cell and sums up.
func (c *Comparison) judgeGate(opts Options) {
	if !opts.MaxRegression.Known() && !opts.MaxOverhead.Known() {
		return
	}
	c.Gate = &Gate{MaxRegressionPct: 100 * opts.MaxRegression, MaxOverheadPct: 100 * opts.MaxOverhead, Strict: opts.Strict, grown: c.words().grown}
	if opts.MaxRegression.Known() && c.A != nil {
		c.decide(float64(opts.MaxRegression), opts, func(cell *Cell) evidence { return cell.change.turned(c.Metric.Better == analysis.More) },
			func(cell *Cell, d *Decision) { cell.Regression = d }, Regressed)
		c.Gate.Unclear += len(c.OnlyA)
	}
	if opts.MaxOverhead.Known() {
		c.decide(float64(opts.MaxOverhead), opts, func(cell *Cell) evidence { return cell.overhead },
			func(cell *Cell, d *Decision) { cell.Overhead = d }, OverLimit)
	}
	c.Gate.conclude(c)
}

// decide holds one contrast of every cell against a limit. Beyond the limit is
// said with confidence over all cells together; within it cell by cell, since
// the gate passes only if that is true of every one.
func (c *Comparison) decide(limit float64, opts Options, of func(*Cell) evidence, set func(*Cell, *Decision), beyond string) {
	alpha, bound := (1-opts.Confidence)/2, math.Log1p(limit)
	var above []float64
	for i := range c.Cells {
		above = append(above, of(&c.Cells[i]).PAbove(bound))
	}
	adjusted := inference.Holm(above)
	for i := range c.Cells {
		cell, own := &c.Cells[i], of(&c.Cells[i])
		d := &Decision{Word: CannotTell, P: analysis.Number(adjusted[i])}
		ask := func() { // more blocks would help
			d.BlocksNeeded = own.furtherBlocks(math.Abs(own.Mean-bound), 2*alpha)
			d.Note += c.wants(d.BlocksNeeded)
		}
		switch {
		case !own.HasSpread():
			d.Note = c.missing(cell)
		case adjusted[i] <= alpha && c.belowFloor(own.Mean):
			d.Note = fmt.Sprintf("beyond %s, but no more than two clean routers differ by", percent(limit))
		case adjusted[i] <= alpha:
			d.Word, d.Note = beyond, fmt.Sprintf("the interval lies beyond %s", percent(limit))
		case own.PBelow(bound) <= alpha:
			d.Word, d.Note = Within, fmt.Sprintf("the interval lies below %s", percent(limit))
		case above[i] <= alpha:
			d.Note = fmt.Sprintf("beyond %s taken alone, not with %d cells judged together", percent(limit), len(c.Cells))
			ask()
		default:
			d.Note = fmt.Sprintf("the interval holds %s", percent(limit))
			ask()
		}
		set(cell, d)
		c.Gate.count(d, opts.Strict)
	}
}

// missing says why a cell has no interval.
func (c *Comparison) missing(cell *Cell) string {
	if cell.A == nil {
		return whyUnknown(cell.B, cell.B)
	}
	return whyUnknown(*cell.A, cell.B)
}

func (g *Gate) count(d *Decision, strict bool) {
	switch {
	case d.Word == Within:
		g.Within++
	case d.Word == CannotTell:
		g.Unclear++
	case d.fails(strict):
		g.Failed++
	}
}

// conclude sums up. Nothing measured is no reason to pass.
func (g *Gate) conclude(c *Comparison) {
	judged := 0
	for i := range c.Cells {
		cell := &c.Cells[i]
		if cell.Regression != nil && cell.change.HasSpread() || cell.Overhead != nil && cell.overhead.HasSpread() {
			judged++
		}
	}
	g.Passed = judged > 0 && g.Failed == 0 && (!g.Strict || g.Unclear == 0)
	var parts []string
	if g.Failed > 0 {
		parts = append(parts, fmt.Sprintf("%d beyond the limit", g.Failed))
	}
	if g.Unclear > 0 {
		parts = append(parts, fmt.Sprintf("%d cannot be told", g.Unclear))
	}
	parts = append(parts, fmt.Sprintf("%d within", g.Within))
	word := "passed"
	if !g.Passed {
		word = "failed"
	}
	if judged == 0 {
		parts = []string{"no cell could be judged"}
	}
	g.Sentence = fmt.Sprintf("gate %s (%s): %s", word, g.limits(), strings.Join(parts, ", "))
}

func (g *Gate) limits() string {
	var parts []string
	if g.MaxRegressionPct.Known() {
		parts = append(parts, "at most "+percent(float64(g.MaxRegressionPct)/100)+" "+g.grown+" than A")
	}
	if g.MaxOverheadPct.Known() {
		parts = append(parts, "at most "+percent(float64(g.MaxOverheadPct)/100)+" dearer than a clean router")
	}
	if g.Strict {
		parts = append(parts, "strict")
	}
	return strings.Join(parts, ", ")
}
