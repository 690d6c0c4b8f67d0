package experiment

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/internal/strict"
	"github.com/gateweigh/gateweigh/lab/analysis/inference"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Precision is half the width of a confidence interval, in per cent of the figure. 0: no precision is asked for.
type Precision float64

// Bounds of a precision, and of the time for it.
const (
	minPrecision = 0.1 // %
	maxPrecision = 50  // %
	minAtMost    = time.Second
	maxAtMost    = 30 * 24 * time.Hour
)

// UntilKeys are keys for the Uses of measures that can stop measuring one cell and go on with others.
var UntilKeys = []string{"until", "at_most"}

// String returns text such as "±2 %".
func (p Precision) String() string { return fmt.Sprintf("±%g %%", float64(p)) }

// MarshalText returns the value as it is written in a file.
func (p Precision) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// precision accepts "±2 %", also without signs and as a number.
func precision(v any) (Precision, error) {
	within := strict.Within(minPrecision, maxPrecision, `a half-width in per cent such as "±2 %",`)
	if text, isText := strict.Text(v); isText {
		bare := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "%"))
		for _, sign := range []string{"±", "+-", "+/-"} {
			bare = strings.TrimSpace(strings.TrimPrefix(bare, sign))
		}
		if number, err := strconv.ParseFloat(bare, 64); err == nil {
			v = number
		}
	}
	number, err := within(v)
	return Precision(number), err
}

// LookBlocks returns the numbers of blocks after which the run looks whether cells are exact enough. The last one is
// that of all blocks. Without Until there are none.
func (e *Experiment) LookBlocks() []int {
	if e.Until == 0 {
		return nil
	}
	return inference.Looks(e.Blocks)
}

// spanAA returns among how many of the first blocks A/A blocks are spread. With Until these are the blocks before the
// first look, because the run may end at that look.
func (e *Experiment) spanAA(blocks int) int {
	if e.Until == 0 {
		return blocks
	}
	return min(blocks, max(e.AABlocks, inference.FirstLook))
}

// checkUntil refuses runs that end before cells can be exact enough.
func (e *Experiment) checkUntil(report Report) {
	switch {
	case e.Until == 0 && e.AtMost > 0:
		report("at_most", "needs until: without it all blocks are measured, however long they take")
	case e.Until == 0:
	case e.Blocks < inference.FirstLook:
		report("until", "%s with blocks = %d: fewer than %d do not say how exact they are: set blocks, the most that are "+
			"measured, to %d or more (60 leaves room)", e.Until, e.Blocks, inference.FirstLook, inference.FirstLook)
	case len(e.DUTs) == 1 && e.DUTs[0] == Clean && !e.measure().Alone:
		report("until", "%s is of devices, and %q alone means A/A blocks: name a device in duts", e.Until, Clean)
	}
}

// NotNeeded returns a function that reports which cells of a block need not be measured any more, given what looks have
// decided (u). These are a cell's blocks after the look that ended the cell, clean routers of interleaved rounds in
// which no device is measured any more, and everything once the time is over.
func NotNeeded(plan []Block, u *result.Until) func(b Block, cell result.Cell) bool {
	ended := u.Ended()
	over := u.Over() && u.Looks[len(u.Looks)-1].Bound == result.BoundTime
	hasEnded := func(b Block, cell result.Cell) bool {
		end, found := ended[cell]
		return found && b.Index >= end.Look
	}
	type clean struct {
		round int
		cell  result.Cell
	}
	needed := map[clean]bool{}
	for _, b := range plan {
		if b.AA || b.Control || b.Against == (result.Cell{}) {
			continue
		}
		for _, cell := range b.Cells {
			key := clean{b.Index, b.cleanCell(cell)}
			needed[key] = needed[key] || !hasEnded(b, cell)
		}
	}
	return func(b Block, cell result.Cell) bool {
		switch {
		case over:
			return true
		case b.Control || b.AA:
			need, known := needed[clean{b.Index, cell}]
			return known && !need && (b.Control || b.Against != (result.Cell{}))
		}
		return hasEnded(b, cell)
	}
}

// cleanCell returns the clean router's cell with which a cell of an interleaved block is compared.
func (b Block) cleanCell(cell result.Cell) result.Cell {
	return cell.With(result.DUT, Clean).With(result.LinkSettings, b.Against.Text(result.LinkSettings))
}
