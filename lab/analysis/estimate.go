package analysis

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
)

// Estimate is a mean over blocks with its confidence interval. Lo and Hi are
// absent with fewer than two blocks, because one block does not show its own noise.
type Estimate struct {
	Mean Number `json:"mean"` // over blocks
	Lo   Number `json:"lo"`   // lower bound of the interval
	Hi   Number `json:"hi"`   // upper bound
	N    int    `json:"n"`    // number of blocks
}

// Unknown is an estimate without a mean, without bounds and with N 0.
func Unknown() Estimate { return Estimate{Mean: Absent(), Lo: Absent(), Hi: Absent()} }

// HasInterval reports whether both bounds are known.
func (e Estimate) HasInterval() bool { return e.Lo.Known() && e.Hi.Known() }

// estimateOf returns the mean of a sample with its two-sided t-interval.
func estimateOf(s inference.Sample, confidence float64) Estimate {
	lo, hi := s.Interval(confidence)
	return Estimate{Mean: Number(s.Mean), Lo: Number(lo), Hi: Number(hi), N: s.N}
}

// over applies f, a rising function, to the mean and to both bounds.
func (e Estimate) over(f func(float64) float64) Estimate {
	apply := func(n Number) Number { return Number(f(float64(n))) }
	return Estimate{Mean: apply(e.Mean), Lo: apply(e.Lo), Hi: apply(e.Hi), N: e.N}
}

// geometric turns an estimate of logarithms into an estimate of ratios. Its mean is the
// geometric mean. Its interval is not symmetric.
func (e Estimate) geometric() Estimate { return e.over(math.Exp) }

// scaled multiplies mean and interval by a factor above 0.
func (e Estimate) scaled(factor float64) Estimate {
	return e.over(func(v float64) float64 { return v * factor })
}

// changePct turns an estimate of the logarithm of a ratio into a change in per cent. A ratio of 1 is 0 %.
func (e Estimate) changePct() Estimate {
	return e.over(func(v float64) float64 { return 100 * math.Expm1(v) })
}

// Scale is the range of a figure. It decides how the interval is computed, so that no bound
// is outside the range, however far the blocks spread.
type Scale struct{ least, most float64 }

// Scales of metrics. The zero value means Amounts.
var (
	Amounts  = Scale{0, math.Inf(1)} // times, rates, sizes
	Shares   = Scale{0, 1}
	Percents = Scale{0, 100} // of something that can be full
	Changes  = Scale{math.Inf(-1), math.Inf(1)}
)

// Estimate takes one value a block and returns their arithmetic mean with its
// two-sided interval. Absent values (NaN) are left out and not counted. The t-interval of
// amounts is computed on the logarithm of the mean. The t-interval of shares is computed on
// the logit of the mean. Both use the delta method. A value on a bound, such as no loss, has
// neither logarithm nor logit. In that case the plain t-interval is cut off at the range.
func (sc Scale) Estimate(values []float64, confidence float64) Estimate {
	if sc == (Scale{}) {
		sc = Amounts
	}
	s := inference.SampleOf(values)
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

// bounds reports whether a value is on a bound of the scale or beyond it.
func (sc Scale) bounds(v float64) bool { return v <= sc.least || v >= sc.most }

// EstimateOf estimates an amount from one value a block.
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

// Number is a figure that may be absent. NaN and infinities mean absent. JSON has null
// for them, so no summary holds NaN or an infinity.
type Number float64

// Absent returns the Number of a figure that was not measured.
func Absent() Number { return Number(math.NaN()) }

// Known reports whether the figure is present.
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

// String returns the number as JSON and CSV write it. It returns "" for an absent number.
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
