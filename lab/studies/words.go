package studies

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/capture"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/measure/rate"
	"github.com/gateweigh/gateweigh/lab/measure/transfer"
	"github.com/gateweigh/gateweigh/lab/measure/transition"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// swept has the dimensions of measures that studies name.
var swept = slices.Concat(cost.Dimensions, rate.Dimensions, transfer.Dimensions, transition.Dimensions,
	capture.Dimensions)

// axisOf returns the words for a dimension.
func axisOf(name result.Dimension) analysis.Axis { return swept.Named(name).Axis }

func (s Sweep) along() analysis.Axis { return axisOf(s.Along) }

// levelText names a level of the sweep.
func (s Sweep) levelText(level float64) string { return withUnit(s.along(), level) }

// stepText names a step: "from 10 to 50 clients".
func (s Sweep) stepText(st levelStep) string {
	return fmt.Sprintf("from %g to %s", st.from, s.levelText(st.to))
}

// heldValue returns the value of Held.
func (s Sweep) heldValue() float64 { return s.Fixed.Number(s.Held) }

// held names the value of Held.
func (s Sweep) held() string {
	if d := axisOf(s.Held); d.Thousand != "" && s.heldValue() >= 1000 {
		return fmt.Sprintf("%g %s", s.heldValue()/1000, d.Thousand)
	}
	return withUnit(axisOf(s.Held), s.heldValue())
}

func withUnit(d analysis.Axis, v float64) string {
	if v == 1 {
		return "1 " + d.One
	}
	return fmt.Sprintf("%g %s", v, d.Many)
}

// atAll names levels with their preposition: "at 400 Mbit/s and 800 Mbit/s".
func (s Sweep) atAll(levels ...float64) string {
	return s.along().By + " " + words.ListOf(levels, s.levelText)
}

// command returns the command that repeats the sweep, with keys set, and the machine that it needs.
func (s Sweep) command(sets ...string) string {
	return words.Joined(" ", "`"+strings.Join(append([]string{"gateweigh run " + s.Run}, sets...), " --set ")+"`", s.On)
}

const (
	bothRuns = "`gateweigh report RUN --with RUN2` takes both runs together."
	notKnown = ", and CPU of traffic that was not carried is not known"
)

// atSentenceStart capitalises a router's name for the start of a sentence. Names of devices keep their case.
func atSentenceStart(name string) string {
	if rest, ok := strings.CutPrefix(name, "the "); ok {
		return "The " + rest
	}
	return name
}

// meanWithInterval formats a mean with its interval: "2.21 [2.16, 2.27]".
func meanWithInterval(e analysis.Estimate) string {
	if !e.Mean.Known() {
		return "not known"
	}
	if !e.HasInterval() {
		return threeDigits(e.Mean) + " (no interval)"
	}
	return fmt.Sprintf("%s [%s, %s]", threeDigits(e.Mean), threeDigits(e.Lo), threeDigits(e.Hi))
}

// threeDigits formats three significant digits, but at most two decimals.
func threeDigits(n analysis.Number) string {
	decimals := 2
	for v := math.Abs(float64(n)); decimals > 0 && v >= 10; v /= 10 {
		decimals--
	}
	return strconv.FormatFloat(float64(n), 'f', decimals, 64)
}

// blocks names the number of blocks of estimates.
func blocks(estimates ...analysis.Estimate) string {
	lo, hi := math.MaxInt, 0
	for _, e := range estimates {
		lo, hi = min(lo, e.N), max(hi, e.N)
	}
	if lo >= hi {
		return "n = " + words.Counted(hi, "block")
	}
	return fmt.Sprintf("n = %d to %d blocks", lo, hi)
}

// exactEstimate returns an estimate without an interval.
func exactEstimate(n analysis.Number) analysis.Estimate {
	return analysis.Estimate{Mean: n, Lo: analysis.Absent(), Hi: analysis.Absent()}
}

// mapEstimate applies an increasing function to a mean and its bounds.
func mapEstimate(e analysis.Estimate, fn func(analysis.Number) analysis.Number) analysis.Estimate {
	return analysis.Estimate{Mean: fn(e.Mean), Lo: fn(e.Lo), Hi: fn(e.Hi), N: e.N}
}

// ratioOf turns an increase in per cent into a factor. percentOf is the reverse.
func ratioOf(e analysis.Estimate) analysis.Estimate {
	return mapEstimate(e, func(n analysis.Number) analysis.Number { return 1 + n/100 })
}

func percentOf(e analysis.Estimate) analysis.Estimate {
	return mapEstimate(e, func(n analysis.Number) analysis.Number { return 100 * (n - 1) })
}

// quotient divides estimates. Its bounds are the widest that their bounds allow. They are absent if a lower bound is
// not positive.
func quotient(a, b analysis.Estimate) analysis.Estimate {
	q := exactEstimate(a.Mean / b.Mean)
	if q.N = min(a.N, b.N); a.Lo > 0 && b.Lo > 0 {
		q.Lo, q.Hi = a.Lo/b.Hi, a.Hi/b.Lo
	}
	return q
}
