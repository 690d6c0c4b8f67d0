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

// absentFigure stands where a figure is absent.
const absentFigure = "–"

// format prints a figure; none where it is absent.
type format func(analysis.Number) string

// formatsByUnit are the forms of figures that stand alone, by the metric's unit. Figures of other units have
// three digits.
var formatsByUnit = map[string]format{"Mbit/s": rate, "% of a core": percent, "µs": micros, "ms": millis}

// significant prints a figure with the given number of significant digits, without an
// exponent and with groups of three set apart by a thin space.
func significant(n analysis.Number, digits int) string {
	switch {
	case !n.Known():
		return absentFigure
	case n == 0:
		return "0"
	}
	magnitude := int(math.Floor(math.Log10(math.Abs(float64(n)))))
	decimals := min(max(digits-1-magnitude, 0), 9)
	scale := math.Pow10(decimals)
	if math.Round(math.Abs(float64(n))*scale) >= math.Pow10(magnitude+1)*scale { // rounding adds a digit: 99.97 is 100
		decimals = max(decimals-1, 0)
	}
	return words.Grouped(strconv.FormatFloat(float64(n), 'f', decimals, 64))
}

// decimals prints a figure with the given number of decimals.
func decimals(digits int) format {
	return func(n analysis.Number) string {
		if !n.Known() {
			return absentFigure
		}
		return strconv.FormatFloat(float64(n), 'f', digits, 64)
	}
}

var (
	digits3OfRatio = decimals(3) // of ratios near 1
	fraction4      = decimals(4) // of what lies between 0 and 1, such as R²
)

func digits3(n analysis.Number) string { return significant(n, 3) }

// digits4 is for bit rates in tables, where 999.6 and 1000 should differ.
func digits4(n analysis.Number) string { return significantTrimmed(n, 4) }

// significantTrimmed is significant without trailing zeros behind the point.
func significantTrimmed(n analysis.Number, digits int) string {
	s := significant(n, digits)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// ratio prints an overhead ratio with two decimals, one from ten on.
func ratio(n analysis.Number) string {
	if n >= 10 {
		return digits3(n)
	}
	return decimals(2)(n)
}

// openFactor is by how much the upper bound of an interval exceeds the mean where the interval says
// nothing any more. Two blocks that differ by a factor of two may have such an interval.
const openFactor = 1000

// isOpenInterval reports whether an interval that begins above 0 leaves the figure open.
func isOpenInterval(e analysis.Estimate) bool {
	return e.HasInterval() && e.Lo > 0 && e.Hi > openFactor*e.Mean
}

// bounds prints an interval as [lo, hi], empty when absent. The digits of an open one would mislead.
func bounds(e analysis.Estimate, print format) string {
	switch {
	case !e.HasInterval():
		return ""
	case isOpenInterval(e):
		return fmt.Sprintf("[open, n = %d]", e.N)
	}
	return "[" + print(e.Lo) + ", " + print(e.Hi) + "]"
}

// withBounds prints a mean and its interval, where it has one.
func withBounds(e analysis.Estimate, print format) string {
	return words.Joined(" ", print(e.Mean), bounds(e, print))
}

// rate prints a bit rate given in Mbit/s.
func rate(n analysis.Number) string {
	switch {
	case !n.Known():
		return absentFigure
	case n >= 1000:
		return significantTrimmed(n/1000, 3) + " Gbit/s"
	}
	return significantTrimmed(n, 3) + " Mbit/s"
}

// percent prints three significant digits, but not more than two decimals.
func percent(n analysis.Number) string {
	switch size := math.Abs(float64(n)); {
	case !n.Known():
		return absentFigure
	case size < 0.005:
		return "0.00 %" // and not -0.00
	case size < 1:
		return decimals(2)(n) + " %"
	}
	return digits3(n) + " %"
}

// frameShare is percent of a share of frames. What is nearly none or nearly all is written as neither.
func frameShare(n analysis.Number) string {
	const tiny = 1e-9 // of arithmetic
	switch {
	case !n.Known():
		return absentFigure
	case math.Abs(float64(n)) < tiny:
		return "0 %"
	case math.Abs(float64(n-100)) < tiny:
		return "100 %"
	case n > 0 && n < 0.01:
		return "< 0.01 %"
	case n > 99.99 && n < 100:
		return "> 99.99 %"
	case n >= 99.9 && n < 100:
		return decimals(2)(analysis.Number(math.Floor(float64(n)*100)/100)) + " %"
	}
	return percent(n)
}

// frameShareBare is frameShare without its sign.
func frameShareBare(n analysis.Number) string { return strings.TrimSuffix(frameShare(n), " %") }

// percentBare is percent without its sign, for tables with the unit in their heading.
func percentBare(n analysis.Number) string { return strings.TrimSuffix(percent(n), " %") }

// percentOf prints a ratio such as loss as a percentage without its sign.
func percentOf(n analysis.Number) string { return significant(n*100, 2) }

// micros prints microseconds, as milliseconds or seconds from one on.
func micros(n analysis.Number) string {
	switch {
	case !n.Known():
		return absentFigure
	case n >= 1e6:
		return digits3(n/1e6) + " s"
	case n >= 1e3:
		return digits3(n/1e3) + " ms"
	}
	return digits3(n) + " µs"
}

// millis prints milliseconds, as seconds from one on.
func millis(n analysis.Number) string { return micros(1000 * n) }

// signedText prints a difference in per cent with its sign and two decimals at most.
func signedText(n analysis.Number) string {
	s := percentBare(n)
	if n > 0 {
		return "+" + s
	}
	return strings.Replace(s, "-", "\u2212", 1)
}

// groupedCount prints a count.
func groupedCount(n int) string { return words.Grouped(strconv.Itoa(n)) }

// offeredMbps is a cell's load, Mbit/s.
func offeredMbps(c result.Cell) analysis.Number { return analysis.Number(c.Number(result.OfferedMbps)) }

// clientsOf is a cell's number of clients in words.
func clientsOf(c result.Cell) string { return words.Counted(c.Int(result.Clients), "client") }

// keepTogether keeps figures together with their units and intervals whole.
func keepTogether(s string) string {
	return strings.NewReplacer(
		"× ", "×\u00a0", " ×", "\u00a0×", " %", "\u00a0%", " Mbit", "\u00a0Mbit", " Gbit", "\u00a0Gbit",
		" MiB", "\u00a0MiB", " ms", "\u00a0ms", " µs", "\u00a0µs").Replace(s)
}
