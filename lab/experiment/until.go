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

// Precision is half the width of an interval, per cent of the figure. 0: no precision is asked for.
type Precision float64

// Bounds of a precision, and of the time for it.
const (
	minPrecision = 0.1 // %
	maxPrecision = 50  // %
	minAtMost    = time.Second
	maxAtMost    = 30 * 24 * time.Hour
)

// UntilKeys are keys for the Uses of measures whose cells can end one by one.
var UntilKeys = []string{"until", "at_most"}

// String is "±2 %".
func (p Precision) String() string { return fmt.Sprintf("±%g %%", float64(p)) }

// MarshalText is String: the value in a file.
func (p Precision) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// precision accepts "±2 %", also without signs and as a number.
func precision(v any) (Precision, error) {
	within := strict.Within(minPrecision, maxPrecision, `a half-width in per cent such as "±2 %",`)
	if text, is := strict.Text(v); is {
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

// Looks are the numbers of blocks after which cells are looked at, the last of them all blocks; none without Until.
func (e *Experiment) Looks() []int {
	if e.Until == 0 {
		return nil
	}
	return inference.Looks(e.Blocks)
}

// spanAA is the number of blocks among which A/A blocks lie, of so many: those before the first look, because a run
// may end at it.
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

// LeftBy says what need not be measured of a plan since cells have ended: a cell's blocks after the look that ended it,
// clean routers of interleaved rounds in which no device is measured, and all that is missing when the time is over.
func LeftBy(plan []Block, u *result.Until) func(b Block, cell result.Cell) bool {
	ended := u.Ended()
	over := u.Over() && u.Looks[len(u.Looks)-1].Bound == result.BoundTime
	left := func(b Block, cell result.Cell) bool {
		end, is := ended[cell]
		return is && b.Index >= end.Look
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
			key := clean{b.Index, b.cleanOf(cell)}
			needed[key] = needed[key] || !left(b, cell)
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
		return left(b, cell)
	}
}

// cleanOf is the cell of the clean router that a cell of an interleaved block is compared with.
func (b Block) cleanOf(cell result.Cell) result.Cell {
	return cell.With(result.DUT, Clean).With(result.LinkSettings, b.Against.Text(result.LinkSettings))
}
