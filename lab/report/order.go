package report

import (
	"fmt"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/words"
)

// The report ranks one device before another only when both figures have intervals that do not overlap. Sentences and
// captions use these functions before they name the first or the last device.

// differSurely reports whether both figures have intervals and these do not overlap.
func differSurely(a, b analysis.Estimate) bool {
	return a.HasInterval() && b.HasInterval() && (a.Hi < b.Lo || b.Hi < a.Lo)
}

// maybeFirst returns the elements of a ranked list that may be the true first: the first one, and all that do not
// differ surely from it.
func maybeFirst[T any](ranked []T, estimateOf func(T) analysis.Estimate) (out []T) {
	for i, v := range ranked {
		if i == 0 || !differSurely(estimateOf(ranked[0]), estimateOf(v)) {
			out = append(out, v)
		}
	}
	return out
}

// maybeLast returns the elements that may be the true last, in reverse order.
func maybeLast[T any](ranked []T, estimateOf func(T) analysis.Estimate) []T {
	reversed := slices.Clone(ranked)
	slices.Reverse(reversed)
	return maybeFirst(reversed, estimateOf)
}

// maxNamed is the largest number of devices that a sentence names before it says "and 2 others".
const maxNamed = 3

// firstNames lists up to maxNamed names and the number of the others.
func firstNames(names []string) string {
	shown, more := bounded(names, maxNamed)
	if more > 0 {
		shown = append(slices.Clone(shown), words.Counted(more, "other"))
	}
	return words.Listed(shown)
}

// orderClause is the clause that says which devices' order is open, for a sentence that names the first and the last of
// ranked cells. It is empty when intervals decide both, and for fewer than two cells.
func orderClause(ranked []analysis.Cell, estimateOf func(analysis.Cell) analysis.Estimate) string {
	first, last := maybeFirst(ranked, estimateOf), maybeLast(ranked, estimateOf)
	names := func(cells []analysis.Cell) string { return firstNames(textsOf(cells, analysis.Cell.DUT)) }
	switch {
	case len(ranked) < 2 || len(first) == 1 && len(last) == 1:
		return ""
	case len(first) == len(ranked) || len(last) == len(ranked):
		return fmt.Sprintf("the order of %s is open, because intervals overlap or are missing", names(ranked))
	}
	var parts []string
	for _, cells := range [][]analysis.Cell{first, last} {
		if len(cells) > 1 {
			parts = append(parts, fmt.Sprintf("the order of %s is open", names(cells)))
		}
	}
	return words.Listed(parts) + ", because intervals overlap or are missing"
}

// deviceOf returns the function that reads a metric of a cell's device.
func deviceOf(metric string) func(analysis.Cell) analysis.Estimate {
	return func(c analysis.Cell) analysis.Estimate { return c.Device(metric) }
}

// costRatio is a cell's overhead ratio.
func costRatio(c analysis.Cell) analysis.Estimate { return c.Change(cost.PerBit) }

// withFigure returns the cells in which the figure is known.
func withFigure(cells []analysis.Cell, estimateOf func(analysis.Cell) analysis.Estimate) []analysis.Cell {
	return removeIf(cells, func(c analysis.Cell) bool { return !estimateOf(c).Mean.Known() })
}

// asEstimated reports whether the intervals of two neighbours in the picture overlap, so that its order is only that of
// the estimates.
func (r ranking) asEstimated() bool {
	for i, row := range r.Rows {
		if i > 0 && row.Interval != "" && r.Rows[i-1].Interval != "" && !differSurely(r.Rows[i-1].Figure, row.Figure) {
			return true
		}
	}
	return false
}
