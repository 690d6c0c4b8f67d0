package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// none stands where a figure is absent.
const none = "–"

// significant prints a figure with so many significant digits, without an
// exponent and with groups of three set apart by a thin space.
func significant(n analysis.Number, digits int) string {
	if !n.Known() {
		return none
	}
	v := float64(n)
	if v == 0 {
		return "0"
	}
	magnitude := int(math.Floor(math.Log10(math.Abs(v))))
	decimals := min(max(digits-1-magnitude, 0), 9)
	return words.Grouped(strconv.FormatFloat(v, 'f', decimals, 64))
}

// ratio prints an overhead ratio with two decimals, one from ten on.
func ratio(n analysis.Number) string {
	switch {
	case !n.Known():
		return none
	case n >= 10:
		return significant(n, 3)
	}
	return strconv.FormatFloat(float64(n), 'f', 2, 64)
}

// openAt is by how much the upper bound of an interval exceeds the mean where it says
// nothing any more. Two blocks that differ by a factor of two may have such a one.
const openAt = 1000

// leftOpen reports whether an interval that begins above 0 leaves the figure open.
func leftOpen(e analysis.Estimate) bool { return e.HasInterval() && e.Lo > 0 && e.Hi > openAt*e.Mean }

// bounds prints an interval as [lo, hi], empty when absent. Of one that is open its
// digits would only look like knowledge.
func bounds(e analysis.Estimate, print func(analysis.Number) string) string {
	switch {
	case !e.HasInterval():
		return ""
	case leftOpen(e):
		return fmt.Sprintf("[open, n = %d]", e.N)
	}
	return "[" + print(e.Lo) + ", " + print(e.Hi) + "]"
}

// rate prints a bit rate given in Mbit/s.
func rate(n analysis.Number) string {
	switch {
	case !n.Known():
		return none
	case n >= 1000:
		return trimmed(n/1000, 3) + " Gbit/s"
	}
	return trimmed(n, 3) + " Mbit/s"
}

// trimmed is significant without trailing zeros behind the point.
func trimmed(n analysis.Number, digits int) string {
	s := significant(n, digits)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// percent prints three significant digits, but not more than two decimals.
func percent(n analysis.Number) string {
	if !n.Known() {
		return none
	}
	if math.Abs(float64(n)) < 0.005 {
		n = 0 // and not -0.00
	}
	if math.Abs(float64(n)) < 1 {
		return strconv.FormatFloat(float64(n), 'f', 2, 64) + " %"
	}
	return significant(n, 3) + " %"
}

// bare is percent without its sign, for tables with the unit in their heading.
func bare(n analysis.Number) string { return strings.TrimSuffix(percent(n), " %") }

// percentOf prints a ratio such as loss as a percentage without its sign.
func percentOf(n analysis.Number) string { return significant(n*100, 2) }

// micros prints microseconds, as milliseconds from one on.
func micros(n analysis.Number) string {
	switch {
	case !n.Known():
		return none
	case n >= 1e6:
		return significant(n/1e6, 3) + " s"
	case n >= 1e3:
		return significant(n/1e3, 3) + " ms"
	}
	return significant(n, 3) + " µs"
}

func digits3(n analysis.Number) string { return significant(n, 3) }

// digits4 is for bit rates in tables, where 999.6 and 1000 should differ.
func digits4(n analysis.Number) string { return trimmed(n, 4) }

// verdictText is the verdict with what it lacks.
func verdictText(c analysis.Cell) string {
	if c.BlocksNeeded != nil {
		return fmt.Sprintf("%s (+%s)", c.Verdict, words.Counted(*c.BlocksNeeded, "block"))
	}
	return c.Verdict
}

// fraction4 prints what lies between 0 and 1, such as R².
func fraction4(n analysis.Number) string {
	if !n.Known() {
		return none
	}
	return strconv.FormatFloat(float64(n), 'f', 4, 64)
}

// three prints a ratio near 1 with three decimals.
func three(n analysis.Number) string {
	if !n.Known() {
		return none
	}
	return strconv.FormatFloat(float64(n), 'f', 3, 64)
}

// signedText prints a difference in per cent with its sign and two decimals at most.
func signedText(n analysis.Number) string {
	s := bare(n)
	if n > 0 {
		return "+" + s
	}
	return strings.Replace(s, "-", "\u2212", 1)
}

// offered is a cell's load, Mbit/s.
func offered(c result.Cell) analysis.Number { return analysis.Number(c.Number(result.OfferedMbps)) }
