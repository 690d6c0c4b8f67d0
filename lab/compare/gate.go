// The gate: compares every cell with the limits, and passes or fails.

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

// Decision is the outcome of one limit for one cell.
type Decision struct {
	Word string `json:"word"` // regressed, over limit, within limit, cannot tell
	Note string `json:"note"` // one sentence
	// Interval is the interval that decides the word: entirely beyond the limit, entirely below it, or neither. The bound
	// that decides "beyond" holds for all cells together, the other bound for the cell alone. The interval is of B's
	// figure over A's, or of the device's over the clean router's.
	Interval analysis.Estimate `json:"interval"`
	// P is the probability of such blocks if the cell kept the limit. It is adjusted for the number of cells.
	P            analysis.Number `json:"p"`
	BlocksNeeded *int            `json:"blocks_needed"` // further blocks, of each run
	inNoise      bool            // beyond the limit, but by no more than the difference of two clean routers
}

// Gate is the outcome over all cells.
//
// A gate must neither fail nor pass by chance. So a cell has three possible answers. It is beyond the limit if its
// whole interval is beyond, and within if its whole interval is below. Otherwise it has no answer, and more blocks are
// needed. The gate passes if every cell is within. If no cell is beyond its limit but some have no answer, the gate
// fails with Unanswered. With AllowUnknown it passes then, if at least one cell is within. A cell that the device could
// measure in A but not in B always fails the gate.
type Gate struct {
	MaxRegressionPct analysis.Number `json:"max_regression_pct"` // the limit
	MaxOverheadPct   analysis.Number `json:"max_overhead_pct"`   // the limit
	Strict           bool            `json:"strict"`             // cells without an answer fail the gate
	Passed           bool            `json:"passed"`             // the answer
	// Unanswered is true if the gate failed for lack of answers, and no cell is beyond its limit.
	Unanswered bool   `json:"unanswered"`
	Failed     int    `json:"failed"`   // decisions beyond their limit, and cells in Fallen
	Within     int    `json:"within"`   // decisions
	Unclear    int    `json:"unclear"`  // decisions that could not be made, those in Missing included
	Sentence   string `json:"sentence"` // the answer in words
	// Missing are the cells that a limit applies to but that have no figure to judge.
	Missing []Missing `json:"missing"`
	// Fallen are the cells that the device could measure in A but not in B.
	Fallen []Missing `json:"fallen"`
}

// Missing is a cell without a figure that a gate could judge, or one that the device could not measure.
type Missing struct {
	Cell result.Cell `json:"dimensions"` // which cell
	Why  string      `json:"why"`        // "only A has this cell"
}

// limit is one limit of a gate.
type limit struct {
	share     float64 // 0.05 is 5 %
	text      string  // "at most 5 % more expensive than A"
	beyond    string  // the word of a decision
	negated   bool    // a lower figure is worse, so evidence and limit are of A over B
	appliesTo func(*Cell) evidence
	decision  func(*Cell) **Decision
}

// limits returns the limits of the comparison's gate.
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

// judgeGate decides every cell and the gate. base is nil when a single run is judged.
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

// counts says how many decisions and cells had each outcome. judged is the number of decisions with an interval.
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

// missing adds the cells that a limit applies to, that are not in the table, and whose absence is not the fault of the
// device.
func (c *Comparison) missing(base *measuredRun, head measuredRun) {
	add := func(cell result.Cell, reason string) {
		isCell := func(m Missing) bool { return m.Cell == cell }
		if !slices.ContainsFunc(c.Gate.Missing, isCell) && !slices.ContainsFunc(c.Gate.Fallen, isCell) {
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
	onChange, run := c.Gate.MaxRegressionPct.Known(), "B"
	if base == nil {
		run = "the run"
	}
	for _, cell := range head.Unmeasured {
		switch reason := notManaged(cell, head.Summary); {
		case reason == "" && head.Environment.Interrupted:
			add(cell, run+" was interrupted before it")
		case reason == "":
			add(cell, run+" has no trial of it")
		case !onChange || c.Gate.MaxOverheadPct.Known() || limitAt(cell, base.Summary) == "": // else it was no different in A
			add(cell, reason)
		}
	}
	if head.Environment.Interrupted && head.Unmeasured == nil {
		add(result.Cell{}, run+" was interrupted, and what it was to measure is not known")
	}
	if onChange {
		for _, cell := range c.OnlyA {
			add(cell, "only A has this cell")
		}
		if !c.Gate.MaxOverheadPct.Known() { // with MaxOverhead they are in the table
			for _, cell := range c.OnlyB {
				add(cell, "only B has this cell")
			}
		}
	}
}

// cellsOfFailedBlock returns the cells of a failed block that no other block measured. It takes the loads that other
// devices were measured at. Where there are none it returns the block's cell.
func (c *Comparison) cellsOfFailedBlock(f analysis.FailedBlock, head analysis.Summary) (list []result.Cell) {
	dut := f.Cell.Text(result.DUT)
	measured := func(cell result.Cell) bool {
		return slices.ContainsFunc(head.Cells, func(c analysis.Cell) bool { return c.Cell == cell })
	}
	known := false
	for _, other := range head.Cells {
		cell := other.Cell.With(result.DUT, dut)
		if !f.Covers(cell) {
			continue
		}
		if known = true; !measured(cell) && !slices.Contains(list, cell) {
			list = append(list, cell)
		}
	}
	if !known {
		return []result.Cell{f.Cell}
	}
	return list
}

// decide compares every cell with a limit and returns the number of cells with an interval. The bound that shows
// "beyond" has its confidence over all cells together. The bound that shows "within" has it for the cell alone, because
// the gate passes only if every cell is within. The interval shown has these two bounds, and it decides the word.
func (c *Comparison) decide(l limit, opts Options) (judged int) {
	alpha, bound := (1-opts.Confidence)/2, math.Log1p(l.share)
	above := make([]float64, len(c.Cells))
	for i := range c.Cells {
		above[i] = l.appliesTo(&c.Cells[i]).PAbove(bound)
	}
	adjusted, levels := inference.Holm(above), inference.HolmLevels(above, alpha)
	for i := range c.Cells {
		cell, change := &c.Cells[i], l.appliesTo(&c.Cells[i])
		d := &Decision{Word: CannotTell, Interval: l.interval(change, levels[i], alpha), P: analysis.Number(adjusted[i])}
		*l.decision(cell) = d
		if change.HasSpread() {
			judged++
		}
		c.decideByInterval(d, l, cell, levels[i], alpha)
		if above[i] <= alpha && d.Word == CannotTell && change.Lower(levels[i]) <= bound {
			d.Note += fmt.Sprintf("; by itself it is beyond, not as one of %d cells judged together", len(c.Cells))
		}
		if d.Word == CannotTell {
			c.Gate.Unclear++
		}
	}
	return judged
}

// decideByInterval decides one cell by its interval. The lower bound has the error probability level, the upper one
// alpha.
func (c *Comparison) decideByInterval(d *Decision, l limit, cell *Cell, level, alpha float64) {
	change, bound := l.appliesTo(cell), math.Log1p(l.share)
	switch {
	case l.beyond == OverLimit && c.difference():
		d.Note = "a limit in per cent of a clean router needs a ratio to it, and the run has a difference"
	case l.beyond == OverLimit && !c.ratio():
		d.Note = "no clean router stood beside the device"
	case !change.HasSpread():
		d.Note = c.whyUnknown(cell)
	case change.Lower(level) > bound && c.belowFloor(change.Mean):
		d.inNoise = true
		d.Note = fmt.Sprintf("beyond %s, but no more than two clean routers differ by (%.3g %%)",
			percent(l.share), float64(c.NoiseFloorPct))
	case change.Lower(level) > bound:
		d.Word, d.Note = l.beyond, fmt.Sprintf("the interval lies beyond %s", percent(l.share))
		c.Gate.Failed++
	case change.Upper(alpha) < bound:
		d.Word, d.Note = Within, fmt.Sprintf("the interval lies below %s", percent(l.share))
		c.Gate.Within++
	default:
		d.Note = fmt.Sprintf("the interval holds %s", percent(l.share))
		decides, distance := level, change.Mean-change.down-bound
		if change.Mean < bound {
			decides, distance = alpha, bound-change.up-change.Mean
		}
		d.BlocksNeeded = change.furtherBlocks(distance, 2*decides)
		d.Note += c.moreBlocksText(change, d.BlocksNeeded)
	}
}

// interval returns the interval that decides: of B's figure over A's, or of the device's over the clean router's.
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
