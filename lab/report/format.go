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

// absentFigure is the text for an absent figure.
const absentFigure = "–"

// format turns a figure into text. Absent figures become absentFigure.
type format func(analysis.Number) string

// formatsByUnit has the formats of single figures by the metric's unit. Figures of other units have three digits.
var formatsByUnit = map[string]format{"Mbit/s": rate, "% of a core": percent, "µs": micros, "ms": millis}

// significant formats a figure with the given number of significant digits, without an exponent. A thin space separates
// groups of three digits.
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
	if math.Round(math.Abs(float64(n))*scale) >= math.Pow10(magnitude+1)*scale {
		// rounding adds a digit: 99.97 becomes 100
		decimals = max(decimals-1, 0)
	}
	return words.Grouped(strconv.FormatFloat(float64(n), 'f', decimals, 64))
}

// decimals returns a format with the given number of decimals.
func decimals(digits int) format {
	return func(n analysis.Number) string {
		if !n.Known() {
			return absentFigure
		}
		return strconv.FormatFloat(float64(n), 'f', digits, 64)
	}
}

var (
	digits3OfRatio = decimals(3) // for ratios near 1
	fraction4      = decimals(4) // for figures between 0 and 1, such as R²
)

func digits3(n analysis.Number) string { return significant(n, 3) }

// digits4 formats bit rates in tables, in which 999.6 and 1000 must differ.
func digits4(n analysis.Number) string { return significantTrimmed(n, 4) }

// significantTrimmed is significant without trailing zeros after the point.
func significantTrimmed(n analysis.Number, digits int) string {
	s := significant(n, digits)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// ratio formats an overhead ratio with two decimals, with one from ten on.
func ratio(n analysis.Number) string {
	if n >= 10 {
		return digits3(n)
	}
	return decimals(2)(n)
}

// openFactor is the factor between upper bound and mean from which an interval says nothing. Two blocks that differ by
// a factor of two may have such an interval.
const openFactor = 1000

// isOpenInterval reports whether an interval that begins above 0 is too wide to say anything.
func isOpenInterval(e analysis.Estimate) bool {
	return e.HasInterval() && e.Lo > 0 && e.Hi > openFactor*e.Mean
}

// bounds formats an interval as [lo, hi]. It is empty when absent. An interval that is too wide to say anything has
// words instead of misleading digits.
func bounds(e analysis.Estimate, print format) string {
	switch {
	case !e.HasInterval():
		return ""
	case isOpenInterval(e):
		return fmt.Sprintf("[open, n = %d]", e.N)
	}
	return "[" + print(e.Lo) + ", " + print(e.Hi) + "]"
}

// withBounds formats a mean with its interval, if it has one.
func withBounds(e analysis.Estimate, print format) string {
	return words.Joined(" ", print(e.Mean), bounds(e, print))
}

// rate formats a bit rate given in Mbit/s.
func rate(n analysis.Number) string {
	switch {
	case !n.Known():
		return absentFigure
	case n >= 1000:
		return significantTrimmed(n/1000, 3) + " Gbit/s"
	}
	return significantTrimmed(n, 3) + " Mbit/s"
}

// percent formats three significant digits, but at most two decimals.
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

// frameShare formats a share of frames like percent. It never rounds a share to 0 or 100 %.
func frameShare(n analysis.Number) string {
	const tiny = 1e-9 // rounding error of the computation
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

// percentOf formats a ratio such as loss in per cent, without the sign.
func percentOf(n analysis.Number) string { return significant(n*100, 2) }

// micros formats microseconds, or milliseconds or seconds from one on.
func micros(n analysis.Number) string {
	switch size := math.Abs(float64(n)); {
	case !n.Known():
		return absentFigure
	case size >= 1e6:
		return digits3(n/1e6) + " s"
	case size >= 1e3:
		return digits3(n/1e3) + " ms"
	}
	return digits3(n) + " µs"
}

// millis formats milliseconds, or seconds from one on.
func millis(n analysis.Number) string { return micros(1000 * n) }

// signedText formats a difference in per cent with its sign and at most two decimals.
func signedText(n analysis.Number) string {
	s := percentBare(n)
	if n > 0 {
		return "+" + s
	}
	return strings.Replace(s, "-", "\u2212", 1)
}

// groupedCount formats a count.
func groupedCount(n int) string { return words.Grouped(strconv.Itoa(n)) }

// offeredMbps returns a cell's load, Mbit/s.
func offeredMbps(c result.Cell) analysis.Number { return analysis.Number(c.Number(result.OfferedMbps)) }

// clientsOf returns a cell's number of clients in words.
func clientsOf(c result.Cell) string { return words.Counted(c.Int(result.Clients), "client") }

// keepTogether prevents line breaks between figures and their units, and within intervals.
func keepTogether(s string) string {
	return strings.NewReplacer(
		"× ", "×\u00a0", " ×", "\u00a0×", " %", "\u00a0%", " Mbit", "\u00a0Mbit", " Gbit", "\u00a0Gbit",
		" MiB", "\u00a0MiB", " ms", "\u00a0ms", " µs", "\u00a0µs").Replace(s)
}
