package report

import (
	"fmt"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/words"
)

// An order of devices is claimed only where intervals decide it: one device is before another when both have an
// interval and these do not overlap. Sentences and captions ask here before they name a first or a last.

// differSurely reports whether two figures are known to differ: their intervals do not overlap.
func differSurely(a, b analysis.Estimate) bool {
	return a.HasInterval() && b.HasInterval() && (a.Hi < b.Lo || b.Hi < a.Lo)
}

// maybeFirst are those of a ranked list that may be its first: the first, and all whose figures are not apart from its.
func maybeFirst[T any](ranked []T, estimateOf func(T) analysis.Estimate) (out []T) {
	for i, v := range ranked {
		if i == 0 || !differSurely(estimateOf(ranked[0]), estimateOf(v)) {
			out = append(out, v)
		}
	}
	return out
}

// maybeLast are those that may be its last, the last first.
func maybeLast[T any](ranked []T, estimateOf func(T) analysis.Estimate) []T {
	turned := slices.Clone(ranked)
	slices.Reverse(turned)
	return maybeFirst(turned, estimateOf)
}

// othersNamed bounds the devices that a sentence names of those that cannot be told apart.
const othersNamed = 3

// firstNames lists the first names, and how many there are more.
func firstNames(names []string) string {
	shown, more := bounded(names, othersNamed)
	if more > 0 {
		shown = append(slices.Clone(shown), words.Counted(more, "other"))
	}
	return words.Listed(shown)
}

// orderClause says what a sentence that names the first and the last of ranked cells leaves open of their order;
// empty where intervals decide it, and for fewer than two cells.
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

// deviceOf is a metric of the device.
func deviceOf(metric string) func(analysis.Cell) analysis.Estimate {
	return func(c analysis.Cell) analysis.Estimate { return c.Device(metric) }
}

// costRatio is the overhead ratio.
func costRatio(c analysis.Cell) analysis.Estimate { return c.Change(cost.PerBit) }

// withFigure returns the cells of which a figure is known.
func withFigure(cells []analysis.Cell, estimateOf func(analysis.Cell) analysis.Estimate) []analysis.Cell {
	return removeIf(cells, func(c analysis.Cell) bool { return !estimateOf(c).Mean.Known() })
}

// asEstimated marks the order of a picture in which neighbours' intervals overlap.
func (r ranking) asEstimated() bool {
	for i, row := range r.Rows {
		if i > 0 && row.Interval != "" && r.Rows[i-1].Interval != "" && !differSurely(r.Rows[i-1].At, row.At) {
			return true
		}
	}
	return false
}
