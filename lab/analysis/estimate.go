package analysis

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
)

// Estimate is a mean over blocks with its confidence interval. Lo and Hi are
// absent with fewer than two blocks: one block says nothing of its own noise.
type Estimate struct {
	Mean Number `json:"mean"` // over blocks
	Lo   Number `json:"lo"`   // lower bound of the interval
	Hi   Number `json:"hi"`   // upper bound
	N    int    `json:"n"`    // blocks
}

// Unknown is the estimate of a figure no block has.
func Unknown() Estimate { return Estimate{Mean: Absent(), Lo: Absent(), Hi: Absent()} }

// HasInterval reports whether both bounds are known.
func (e Estimate) HasInterval() bool { return e.Lo.Known() && e.Hi.Known() }

// estimateOf is a sample with its two-sided t-interval.
func estimateOf(s inference.Sample, confidence float64) Estimate {
	lo, hi := s.Interval(confidence)
	return Estimate{Mean: Number(s.Mean), Lo: Number(lo), Hi: Number(hi), N: s.N}
}

// over applies a rising function to mean and bounds.
func (e Estimate) over(f func(float64) float64) Estimate {
	at := func(n Number) Number { return Number(f(float64(n))) }
	return Estimate{Mean: at(e.Mean), Lo: at(e.Lo), Hi: at(e.Hi), N: e.N}
}

// geometric turns an estimate over logarithms into one over ratios: geometric
// mean and the interval around it, which is not symmetric.
func (e Estimate) geometric() Estimate { return e.over(math.Exp) }

// scaled multiplies mean and interval by a factor above 0.
func (e Estimate) scaled(factor float64) Estimate {
	return e.over(func(v float64) float64 { return v * factor })
}

// changePct turns an estimate over logarithms of a ratio into per cent by which
// the ratio is above 1.
func (e Estimate) changePct() Estimate {
	return e.over(func(v float64) float64 { return 100 * math.Expm1(v) })
}

// Scale is the range of a figure. It decides how the interval is computed, so that no bound
// lies outside the range, however far the blocks spread.
type Scale struct{ least, most float64 }

// Scales of metrics; the zero value is Amounts.
var (
	Amounts  = Scale{0, math.Inf(1)} // times, rates, sizes
	Shares   = Scale{0, 1}
	Percents = Scale{0, 100} // of something that can be full
	Changes  = Scale{math.Inf(-1), math.Inf(1)}
)

// Estimate takes one value a block and returns their arithmetic mean with its
// two-sided interval. Absent values (NaN) are left out and not counted. The t-interval of
// amounts is computed on the logarithm of the mean, that of shares on its logit, both by
// the delta method. Where a block's value lies on a bound (no loss at all) neither exists:
// the plain interval is cut off at the range.
func (sc Scale) Estimate(values []float64, confidence float64) Estimate {
	if sc == (Scale{}) {
		sc = Amounts
	}
	s := inference.Of(values)
	e := estimateOf(s, confidence)
	if !e.HasInterval() || s.SE == 0 {
		return e
	}
	half := float64(e.Hi) - s.Mean
	switch {
	case slices.ContainsFunc(values, sc.bounds):
		// A share measured slightly above the whole stays within its own interval.
		e.Lo = Number(min(max(float64(e.Lo), sc.least), s.Mean))
		e.Hi = Number(max(min(float64(e.Hi), sc.most), s.Mean))
	case !math.IsInf(sc.most, 1):
		position, whole := (s.Mean-sc.least)/(sc.most-sc.least), sc.most-sc.least
		centre, reach := math.Log(position/(1-position)), half/(whole*position*(1-position))
		share := func(logit float64) Number { return Number(sc.least + whole/(1+math.Exp(-logit))) }
		e.Lo, e.Hi = share(centre-reach), share(centre+reach)
	case !math.IsInf(sc.least, -1):
		reach := half / (s.Mean - sc.least)
		e.Lo, e.Hi = Number(sc.least+(s.Mean-sc.least)*math.Exp(-reach)), Number(sc.least+(s.Mean-sc.least)*math.Exp(reach))
	}
	return e
}

// bounds reports whether a value lies on a bound of the scale, or beyond.
func (sc Scale) bounds(v float64) bool { return v <= sc.least || v >= sc.most }

// EstimateOf is the estimate of an amount from one value a block.
func EstimateOf(values []float64, opts Options) Estimate {
	return Amounts.Estimate(values, opts.withDefaults().Confidence)
}

// Figures in JSON and CSV have fewer digits than a float64, because architectures that fuse
// multiply and add differ in the last digits. Figures below negligible are 0, because terms
// that cancel leave 0 on one architecture and 1e-17 on another.
const (
	significantDigits = 7
	negligible        = 1e-12
)

// Number is a figure that may be absent. NaN and infinities stand for absent
// and are null in JSON, so no summary ever carries one.
type Number float64

// Absent is the Number of what was not or could not be measured.
func Absent() Number { return Number(math.NaN()) }

// Known reports whether the figure is there.
func (n Number) Known() bool { return !math.IsNaN(float64(n)) && !math.IsInf(float64(n), 0) }

// MarshalJSON writes seven significant digits, 0 below 1e-12, or null when absent.
func (n Number) MarshalJSON() ([]byte, error) {
	if !n.Known() {
		return []byte("null"), nil
	}
	return json.Marshal(n.rounded())
}

// UnmarshalJSON reads a number, or null as absent.
func (n *Number) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*n = Absent()
		return nil
	}
	var f float64
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	*n = Number(f)
	return nil
}

// String is the JSON form, empty when absent: what a CSV cell holds.
func (n Number) String() string {
	if !n.Known() {
		return ""
	}
	return strconv.FormatFloat(n.rounded(), 'f', -1, 64)
}

func (n Number) rounded() float64 {
	if math.Abs(float64(n)) < negligible {
		return 0
	}
	f, err := strconv.ParseFloat(strconv.FormatFloat(float64(n), 'g', significantDigits, 64), 64)
	if err != nil {
		return 0 // rounding up past the largest float64
	}
	return f
}
