package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/inference"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
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
	Word string `json:"word"` // regressed, over limit, within limit, cannot tell
	Note string `json:"note"` // one sentence
	// Interval is what the word was read from: beyond the limit as a whole, below it as a whole, or neither.
	// Its end that could lie beyond holds for all cells together, the other for the cell by itself. It is of
	// B over A, or of the device over the clean router.
	Interval analysis.Estimate `json:"interval"`
	// P is the chance of such blocks if the cell kept the limit, adjusted for
	// the number of cells.
	P            analysis.Number `json:"p"`
	BlocksNeeded *int            `json:"blocks_needed"` // further blocks, of each run
	inNoise      bool            // beyond the limit, and within what two clean routers differ by
}

// Gate is the outcome over all cells.
//
// A gate must not fail by chance, and must not pass by chance either. So a cell has three answers: beyond the limit
// when the whole interval lies beyond, within when the whole interval lies below, and otherwise none: more blocks are
// needed. The gate passes when every cell is within. Where cells have no answer and none is beyond its limit it fails
// with Unanswered, unless unknown cells are allowed and at least one cell is within. What a device managed in A and
// does not in B fails it in any case: nobody asks what that costs.
type Gate struct {
	MaxRegressionPct analysis.Number `json:"max_regression_pct"` // the limit
	MaxOverheadPct   analysis.Number `json:"max_overhead_pct"`   // the limit
	Strict           bool            `json:"strict"`             // cells without an answer fail the gate
	Passed           bool            `json:"passed"`             // the answer
	// Unanswered: the gate failed for want of answers, and not because a cell is beyond its limit.
	Unanswered bool   `json:"unanswered"`
	Failed     int    `json:"failed"`   // decisions beyond their limit, and cells in Fallen
	Within     int    `json:"within"`   // decisions
	Unclear    int    `json:"unclear"`  // decisions that could not be made, those in Missing included
	Sentence   string `json:"sentence"` // the answer in words
	// Missing are the cells that a limit is about and that have no figure to judge.
	Missing []Missing `json:"missing"`
	// Fallen are the cells that the device managed in A and does not in B.
	Fallen []Missing `json:"fallen"`
}

// Missing is a cell without a figure that a gate could judge, or one that a device does not manage.
type Missing struct {
	Cell result.Cell `json:"dimensions"` // which cell
	Why  string      `json:"why"`        // "only A has this cell"
}

// limit is one limit of a gate.
type limit struct {
	share     float64 // 0.05 is 5 %
	text      string  // "at most 5 % more expensive than A"
	beyond    string  // the word of a decision
	negated   bool    // less is worse: evidence and limit are of A over B
	appliesTo func(*Cell) evidence
	decision  func(*Cell) **Decision
}

// limits are the limits of the comparison's gate.
func (c *Comparison) limits() (list []limit) {
	if g := c.Gate; g.MaxRegressionPct.Known() && c.A != nil {
		share, turn := float64(g.MaxRegressionPct)/100, c.Metric.Better == analysis.More
		text := "at most " + percent(share) + " " + c.words().grown + " than A"
		list = append(list, limit{share, text, Regressed, turn, func(cell *Cell) evidence {
			if turn {
				return cell.change.negated()
			}
			return cell.change
		}, func(cell *Cell) **Decision { return &cell.Regression }})
	}
	if c.Gate.MaxOverheadPct.Known() {
		share := float64(c.Gate.MaxOverheadPct) / 100
		list = append(list,
			limit{share, "at most " + percent(share) + " more expensive than a clean router", OverLimit, false,
				func(cell *Cell) evidence { return cell.overhead }, func(cell *Cell) **Decision { return &cell.Overhead }})
	}
	return list
}

// judgeGate decides every cell and sums up. base is nil when a single run is judged.
func (c *Comparison) judgeGate(opts Options, base *measuredRun, head measuredRun) {
	if !opts.MaxRegression.Known() && !opts.MaxOverhead.Known() {
		return
	}
	g := &Gate{
		MaxRegressionPct: 100 * opts.MaxRegression, MaxOverheadPct: 100 * opts.MaxOverhead, Strict: !opts.AllowUnknown,
		Missing: []Missing{}, Fallen: []Missing{},
	}
	c.Gate = g
	judged := 0
	var texts []string
	for _, l := range c.limits() {
		judged += c.decide(l, opts)
		texts = append(texts, l.text)
	}
	if base != nil {
		g.Fallen, g.Missing = c.noLongerManaged(*base, head)
		g.Failed += len(g.Fallen)
	}
	c.missing(base, head)
	g.Unclear += len(g.Missing)
	if opts.AllowUnknown {
		texts = append(texts, "cells without an answer allowed")
	}
	g.Passed = g.Failed == 0 && g.Within > 0 && (g.Unclear == 0 || opts.AllowUnknown)
	g.Unanswered = !g.Passed && g.Failed == 0
	word := map[bool]string{true: "passed", false: "failed"}[g.Passed] + words.When(g.Unanswered, " for want of answers")
	reason := g.counts(judged)
	if judged+len(g.Fallen) == 0 && c.incomparable() {
		reason = "no cell could be judged: " + noRatio
	}
	g.Sentence = fmt.Sprintf("gate %s (%s): %s", word, strings.Join(texts, ", "), reason) + c.markInBrackets()
}

func (g *Gate) counts(judged int) string {
	if judged+len(g.Fallen) == 0 {
		return "no cell could be judged, as none has an interval"
	}
	var parts []string
	if beyond := g.Failed - len(g.Fallen); beyond > 0 {
		parts = append(parts, fmt.Sprintf("%d beyond the limit", beyond))
	}
	if len(g.Fallen) > 0 {
		parts = append(parts, fmt.Sprintf("%d that the device managed in A and does not in B", len(g.Fallen)))
	}
	if g.Unclear > 0 {
		parts = append(parts, fmt.Sprintf("%d without an answer", g.Unclear))
	}
	return strings.Join(append(parts, fmt.Sprintf("%d within", g.Within)), ", ")
}

// missing adds the cells that a limit is about, that the table does not have and that no device failed to manage.
func (c *Comparison) missing(base *measuredRun, head measuredRun) {
	add := func(cell result.Cell, reason string) {
		of := func(m Missing) bool { return m.Cell == cell }
		if !slices.ContainsFunc(c.Gate.Missing, of) && !slices.ContainsFunc(c.Gate.Fallen, of) {
			c.Gate.Missing = append(c.Gate.Missing, Missing{cell, reason})
		}
	}
	for _, f := range head.FailedBlocks {
		if f.Measured || f.AA || f.Cell.Text(result.DUT) == "" || head.Unmeasured != nil { // then the plan says what is lost
			continue
		}
		for _, lost := range c.cellsOfFailedBlock(f, head.Summary) {
			add(lost, "its block failed: "+result.OneLine(f.Error))
		}
	}
	onChange, who := c.Gate.MaxRegressionPct.Known(), "B"
	if base == nil {
		who = "the run"
	}
	for _, cell := range head.Unmeasured {
		switch reason := notManaged(cell, head.Summary); {
		case reason == "" && head.Environment.Interrupted:
			add(cell, who+" was interrupted before it")
		case reason == "":
			add(cell, who+" has no trial of it")
		case !onChange || c.Gate.MaxOverheadPct.Known() || limitAt(cell, base.Summary) == "": // else it was no different in A
			add(cell, reason)
		}
	}
	if head.Environment.Interrupted && head.Unmeasured == nil {
		add(result.Cell{}, who+" was interrupted, and what it was to measure is not known")
	}
	if onChange {
		for _, cell := range c.OnlyA {
			add(cell, "only A has this cell")
		}
		if !c.Gate.MaxOverheadPct.Known() { // otherwise the table has them
			for _, cell := range c.OnlyB {
				add(cell, "only B has this cell")
			}
		}
	}
}

// cellsOfFailedBlock are the cells of a failed block that no block measured: by the loads that other devices were
// measured at, or, where there are none, the block itself.
func (c *Comparison) cellsOfFailedBlock(f analysis.FailedBlock, head analysis.Summary) (list []result.Cell) {
	dut := f.Cell.Text(result.DUT)
	there := func(cell result.Cell) bool {
		return slices.ContainsFunc(head.Cells, func(c analysis.Cell) bool { return c.Cell == cell })
	}
	known := false
	for _, other := range head.Cells {
		cell := other.Cell.With(result.DUT, dut)
		if !f.Covers(cell) {
			continue
		}
		if known = true; !there(cell) && !slices.Contains(list, cell) {
			list = append(list, cell)
		}
	}
	if !known {
		return []result.Cell{f.Cell}
	}
	return list
}

// decide compares every cell with a limit and returns how many have an interval. Beyond
// the limit is said with confidence over all cells together; within it cell by cell, since
// the gate passes only if that is true of every one. The interval that is shown has these two
// bounds, and the word is read from it.
func (c *Comparison) decide(l limit, opts Options) (judged int) {
	alpha, bound := (1-opts.Confidence)/2, math.Log1p(l.share)
	above := make([]float64, len(c.Cells))
	for i := range c.Cells {
		above[i] = l.appliesTo(&c.Cells[i]).PAbove(bound)
	}
	adjusted, levels := inference.Holm(above), inference.HolmLevels(above, alpha)
	for i := range c.Cells {
		cell, own := &c.Cells[i], l.appliesTo(&c.Cells[i])
		d := &Decision{Word: CannotTell, Interval: l.interval(own, levels[i], alpha), P: analysis.Number(adjusted[i])}
		*l.decision(cell) = d
		if own.HasSpread() {
			judged++
		}
		c.decideByInterval(d, l, cell, levels[i], alpha)
		if above[i] <= alpha && d.Word == CannotTell && own.Lower(levels[i]) <= bound {
			d.Note += fmt.Sprintf("; by itself it is beyond, not as one of %d cells judged together", len(c.Cells))
		}
		if d.Word == CannotTell {
			c.Gate.Unclear++
		}
	}
	return judged
}

// decideByInterval reads a decision from its interval: the lower bound at level, the upper one at alpha.
func (c *Comparison) decideByInterval(d *Decision, l limit, cell *Cell, level, alpha float64) {
	own, bound := l.appliesTo(cell), math.Log1p(l.share)
	switch {
	case l.beyond == OverLimit && c.difference():
		d.Note = "a limit in per cent of a clean router needs a ratio to it, and the run has a difference"
	case l.beyond == OverLimit && !c.ratio():
		d.Note = "no clean router stood beside the device"
	case !own.HasSpread():
		d.Note = c.whyUnknown(cell)
	case own.Lower(level) > bound && c.belowFloor(own.Mean):
		d.inNoise = true
		d.Note = fmt.Sprintf("beyond %s, but no more than two clean routers differ by (%.3g %%)",
			percent(l.share), float64(c.NoiseFloorPct))
	case own.Lower(level) > bound:
		d.Word, d.Note = l.beyond, fmt.Sprintf("the interval lies beyond %s", percent(l.share))
		c.Gate.Failed++
	case own.Upper(alpha) < bound:
		d.Word, d.Note = Within, fmt.Sprintf("the interval lies below %s", percent(l.share))
		c.Gate.Within++
	default:
		d.Note = fmt.Sprintf("the interval holds %s", percent(l.share))
		decides, distance := level, own.Mean-own.down-bound
		if own.Mean < bound {
			decides, distance = alpha, bound-own.up-own.Mean
		}
		d.BlocksNeeded = own.furtherBlocks(distance, 2*decides)
		d.Note += c.moreBlocksText(own, d.BlocksNeeded)
	}
}

// interval is what a decision is read from, of B over A or of the device over the clean router.
func (l limit) interval(sample evidence, level, alpha float64) analysis.Estimate {
	lo, mean, hi := sample.Lower(level), sample.Mean, sample.Upper(alpha)
	if l.negated {
		lo, mean, hi = -hi, -mean, -lo
	}
	e := analysis.Unknown()
	if sample.HasSpread() {
		e.Lo, e.Hi = analysis.Number(math.Exp(lo)), analysis.Number(math.Exp(hi))
	}
	if sample.N > 0 {
		e.Mean, e.N = analysis.Number(math.Exp(mean)), sample.N
	}
	return e
}
