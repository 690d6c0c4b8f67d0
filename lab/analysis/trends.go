package analysis

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Trend describes how a metric of a router depends on the payload that it carried: straight lines, one a block, by
// least squares of relative errors. Saturated levels and those above Laws.TrendMaxMbps are left out.
type Trend struct {
	Metric    string   `json:"metric"`    // name of the metric
	Slope     Estimate `json:"slope"`     // the metric's unit per Gbit/s of payload
	Intercept Estimate `json:"intercept"` // the metric's unit
	R2        Number   `json:"r2"`        // of the line through the level means
	// OverClean is the slope divided by the clean router's in the same block, so that the machine's drift cancels. It is
	// absent for the clean router.
	OverClean  Estimate `json:"over_clean"`
	LevelsUsed int      `json:"levels_used"` // number of load levels in the fit
}

// TrendOf returns the sweep's trend of a metric. ok is false where it has none.
func (s Sweep) TrendOf(metric string) (l Trend, ok bool) {
	i := slices.IndexFunc(s.Trends, func(l Trend) bool { return l.Metric == metric })
	if i < 0 {
		return l, false
	}
	return s.Trends[i], true
}

// trendMeans has a block's mean of each of Laws.TrendMetrics, of the device and of the clean router.
type trendMeans struct{ dut, clean []float64 }

// trendMeansOf averages each of Laws.TrendMetrics over windows.
func (input Input) trendMeansOf(windows []Trial) (l trendMeans) {
	for _, name := range input.Laws.TrendMetrics {
		value := MetricNamed(input.Metrics, name).Value
		l.dut = append(l.dut, mean(each(windows, func(t Trial) float64 { return value(input.pairOf(t).device) })))
		l.clean = append(l.clean, mean(each(windows, func(t Trial) float64 { return value(input.pairOf(t).clean) })))
	}
	return l
}

// trends fits each of Laws.TrendMetrics over the row's usable levels. It leaves out metrics that the row does not have.
func (r row) trends(laws Laws, opts Options) (out []Trend) {
	usable := slices.DeleteFunc(slices.Clone(r.levels), r.saturated)
	low := slices.DeleteFunc(slices.Clone(usable), func(level []blockMean) bool {
		return level[0].cell.Number(result.OfferedMbps) > laws.TrendMaxMbps
	})
	if len(low) >= fewestLevels {
		usable = low
	}
	if len(usable) < fewestLevels {
		return nil
	}
	for i, metric := range laws.TrendMetrics {
		f := trendFit{r, usable, i}
		slopes, intercepts, over := f.fitBlocks(slices.Repeat([]float64{1}, len(usable)))
		if len(slopes) == 0 {
			continue
		}
		l := Trend{Metric: metric, LevelsUsed: len(usable), OverClean: Unknown(),
			Slope:     Changes.Estimate(slopes, opts.Confidence).widened(f.swing(slopesOf, ownOf)),
			Intercept: Changes.Estimate(intercepts, opts.Confidence).widened(f.swing(interceptsOf, ownOf))}
		if r.name != Clean {
			l.OverClean = contrast{Sample: inference.SampleOf(over), moved: f.swing(oversOf, ratioOfMoved)}.estimate(
				opts.Confidence).geometric()
		}
		var gbits, values []float64
		for _, level := range usable {
			gbits = append(
				gbits, mean(each(level, func(b blockMean) float64 { _, carried := f.valueOf(b, r.name == Clean); return carried })))
			values = append(
				values, mean(each(level, func(b blockMean) float64 { value, _ := f.valueOf(b, r.name == Clean); return value })))
		}
		l.R2 = Number(finite(stat.RSquared(gbits, values, nil, float64(l.Intercept.Mean), float64(l.Slope.Mean))))
		out = append(out, l)
	}
	return out
}

// trendFit fits lines of one metric to the usable levels of a row.
type trendFit struct {
	row
	usable [][]blockMean
	metric int // index in Laws.TrendMetrics
}

// valueOf returns a router's value of the metric and the Gbit/s that it carried.
func (f trendFit) valueOf(b blockMean, clean bool) (value, gbits float64) {
	if clean {
		return b.trends.clean[f.metric], b.clean[delivered] / 1000
	}
	return b.trends.dut[f.metric], b.dut[delivered] / 1000
}

// seen returns the metric's figures of the two routers and the logarithm of their ratio.
func (f trendFit) seen() seen {
	value := func(clean bool) func(blockMean) float64 {
		return func(b blockMean) float64 { v, _ := f.valueOf(b, clean); return v }
	}
	router, clean := value(f.name == Clean), value(true)
	return seen{router, clean, func(b blockMean) float64 { return finite(math.Log(Over(router(b), clean(b)))) }}
}

// fitBlocks fits a line for each block, after the router's values at each level are multiplied by that level's factor.
// overs are the logarithms of the slopes divided by the clean router's.
func (f trendFit) fitBlocks(factors []float64) (slopes, intercepts, overs []float64) {
	factorAt := map[float64]float64{}
	for i, level := range f.usable {
		factorAt[level[0].offered()] = factors[i]
	}
	for _, block := range grouped(slices.Concat(f.usable...), func(b blockMean) blockID { return b.id }, nil) {
		intercept, slope := f.fitLine(f.name == Clean, block, func(b blockMean) float64 { return factorAt[b.offered()] })
		_, cleanSlope := f.fitLine(true, block, func(blockMean) float64 { return 1 })
		if !math.IsNaN(slope) {
			slopes, intercepts, overs = append(slopes, slope), append(intercepts, intercept),
				append(overs, finite(math.Log(Positive(slope/cleanSlope))))
		}
	}
	return slopes, intercepts, overs
}

// fitLine fits a line through the blocks' values, each multiplied by its scale.
func (f trendFit) fitLine(clean bool, blocks []blockMean, scale func(blockMean) float64) (intercept, slope float64) {
	var gbits, values, weights []float64
	for _, b := range blocks {
		if value, carried := f.valueOf(b, clean); value > 0 && carried > 0 {
			gbits, values, weights = append(gbits, carried), append(values, value*scale(b)), append(weights, 1/(value*value))
		}
	}
	if len(gbits) < fewestLevels {
		return math.NaN(), math.NaN()
	}
	intercept, slope = stat.LinearRegression(gbits, values, weights, false)
	return finite(intercept), finite(slope)
}

// A fitted figure has an estimate from all blocks, and a span for the possible effect of noise.

func slopesOf(slopes, _, _ []float64) float64         { return mean(slopes) }
func interceptsOf(_, intercepts, _ []float64) float64 { return mean(intercepts) }
func oversOf(_, _, over []float64) float64            { return mean(over) }

func ownOf(m moved) span        { return m.cpu }
func ratioOfMoved(m moved) span { return m.ratio }

// swing returns the possible effect of noise on a figure of the fit.
func (f trendFit) swing(figure func(slopes, intercepts, over []float64) float64, part func(moved) span) span {
	moves := spansOf(f.usable, func(level []blockMean) span { return part(f.noise(level, f.seen())) })
	return swing(moves, func(factors []float64) float64 { return figure(f.fitBlocks(factors)) })
}
