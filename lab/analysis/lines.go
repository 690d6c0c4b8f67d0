package analysis

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Line says how a metric of a router follows the payload it carried: straight lines by least squares of relative errors, one a
// block, without saturated levels and those above Laws.LinesTo.
type Line struct {
	Metric    string   `json:"metric"`
	Slope     Estimate `json:"slope"`     // the metric's unit per Gbit/s of payload
	Intercept Estimate `json:"intercept"` // the metric's unit
	R2        Number   `json:"r2"`        // of the line through the level means
	// OverClean is the slope over the clean router's in the same block, in which the machine's drift cancels; absent for the clean
	// router.
	OverClean  Estimate `json:"over_clean"`
	LevelsUsed int      `json:"levels_used"`
}

// LineOf is the sweep's line of a metric; ok is false where it has none.
func (s Sweep) LineOf(metric string) (l Line, ok bool) {
	i := slices.IndexFunc(s.Lines, func(l Line) bool { return l.Metric == metric })
	if i < 0 {
		return l, false
	}
	return s.Lines[i], true
}

// lined is a block mean's value of each of Laws.Lines, of the device and of the clean router.
type lined struct{ dut, clean []float64 }

// linesOf averages the metrics of Laws.Lines over windows.
func (in Input) linesOf(windows []Trial) (l lined) {
	for _, name := range in.Laws.Lines {
		of := MetricNamed(in.Metrics, name).Of
		l.dut = append(l.dut, mean(each(windows, func(t Trial) float64 { return of(in.pairOf(t).device) })))
		l.clean = append(l.clean, mean(each(windows, func(t Trial) float64 { return of(in.pairOf(t).clean) })))
	}
	return l
}

// lines fits each metric of Laws.Lines over the row's usable levels; a metric that the row does not have is left out.
func (r row) lines(laws Laws, opts Options) (out []Line) {
	usable := slices.DeleteFunc(slices.Clone(r.levels), r.saturated)
	low := slices.DeleteFunc(slices.Clone(usable), func(level []blockMean) bool {
		return level[0].cell.Number(result.OfferedMbps) > laws.LinesTo
	})
	if len(low) >= fewestLevels {
		usable = low
	}
	if len(usable) < fewestLevels {
		return nil
	}
	own := func(b blockMean, clean bool) ([]float64, float64) {
		if clean {
			return b.lines.clean, b.clean[delivered] / 1000
		}
		return b.lines.dut, b.dut[delivered] / 1000
	}
	for i, metric := range laws.Lines {
		line := func(clean bool, blocks []blockMean) (intercept, slope float64) {
			var gbits, values, weights []float64
			for _, b := range blocks {
				if all, at := own(b, clean); all[i] > 0 && at > 0 {
					gbits, values, weights = append(gbits, at), append(values, all[i]), append(weights, 1/(all[i]*all[i]))
				}
			}
			if len(gbits) < fewestLevels {
				return math.NaN(), math.NaN()
			}
			intercept, slope = stat.LinearRegression(gbits, values, weights, false)
			return finite(intercept), finite(slope)
		}
		var slopes, intercepts, over []float64
		for _, of := range grouped(slices.Concat(usable...), func(b blockMean) blockID { return b.id }, nil) {
			intercept, slope := line(r.name == Clean, of)
			_, beside := line(true, of)
			if !math.IsNaN(slope) {
				slopes, intercepts, over = append(slopes, slope), append(intercepts, intercept), append(over, finite(math.Log(Positive(slope/beside))))
			}
		}
		if len(slopes) == 0 {
			continue
		}
		l := Line{Metric: metric, LevelsUsed: len(usable), OverClean: Unknown(),
			Slope: Changes.Estimate(slopes, opts.Confidence), Intercept: Changes.Estimate(intercepts, opts.Confidence)}
		if r.name != Clean {
			l.OverClean = ratioOf(inference.Of(over), opts.Confidence)
		}
		var gbits, values []float64
		for _, level := range usable {
			gbits = append(gbits, mean(each(level, func(b blockMean) float64 { _, at := own(b, r.name == Clean); return at })))
			values = append(values, mean(each(level, func(b blockMean) float64 { all, _ := own(b, r.name == Clean); return all[i] })))
		}
		l.R2 = Number(finite(stat.RSquared(gbits, values, nil, float64(l.Intercept.Mean), float64(l.Slope.Mean))))
		out = append(out, l)
	}
	return out
}
