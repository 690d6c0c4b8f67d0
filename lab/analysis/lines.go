package analysis

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Line says how a metric of a router follows the payload it carried: straight lines by least squares of relative
// errors, one a block, without saturated levels and those above Laws.LinesTo.
type Line struct {
	Metric    string   `json:"metric"`    // CPU of which gateway
	Slope     Estimate `json:"slope"`     // the metric's unit per Gbit/s of payload
	Intercept Estimate `json:"intercept"` // the metric's unit
	R2        Number   `json:"r2"`        // of the line through the level means
	// OverClean is the slope over the clean router's in the same block, in which the machine's drift cancels; absent for
	// the clean router.
	OverClean  Estimate `json:"over_clean"`
	LevelsUsed int      `json:"levels_used"` // how many
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
	for i, metric := range laws.Lines {
		f := lineFit{r, usable, i}
		slopes, intercepts, over := f.blocks(slices.Repeat([]float64{1}, len(usable)))
		if len(slopes) == 0 {
			continue
		}
		l := Line{Metric: metric, LevelsUsed: len(usable), OverClean: Unknown(),
			Slope:     Changes.Estimate(slopes, opts.Confidence).widened(f.swing(slopesOf, ownOf)),
			Intercept: Changes.Estimate(intercepts, opts.Confidence).widened(f.swing(interceptsOf, ownOf))}
		if r.name != Clean {
			l.OverClean = contrast{Sample: inference.Of(over), moved: f.swing(oversOf, ratioOfMoved)}.estimate(
				opts.Confidence).geometric()
		}
		var gbits, values []float64
		for _, level := range usable {
			gbits = append(gbits, mean(each(level, func(b blockMean) float64 { _, at := f.own(b, r.name == Clean); return at })))
			values = append(
				values, mean(each(level, func(b blockMean) float64 { value, _ := f.own(b, r.name == Clean); return value })))
		}
		l.R2 = Number(finite(stat.RSquared(gbits, values, nil, float64(l.Intercept.Mean), float64(l.Slope.Mean))))
		out = append(out, l)
	}
	return out
}

// lineFit fits lines of one of Laws.Lines to the usable levels of a row.
type lineFit struct {
	row
	usable [][]blockMean
	metric int
}

// own is a router's value and the Gbit/s that it carried.
func (f lineFit) own(b blockMean, clean bool) (value, gbits float64) {
	if clean {
		return b.lines.clean[f.metric], b.clean[delivered] / 1000
	}
	return b.lines.dut[f.metric], b.dut[delivered] / 1000
}

// seen is the metric.
func (f lineFit) seen() seen {
	value := func(clean bool) func(blockMean) float64 {
		return func(b blockMean) float64 { v, _ := f.own(b, clean); return v }
	}
	own, clean := value(f.name == Clean), value(true)
	return seen{own, clean, func(b blockMean) float64 { return finite(math.Log(Over(own(b), clean(b)))) }}
}

// blocks are the lines of the blocks, and the logarithms of their slopes over the clean router's, where the router's
// values at each level are multiplied by a factor.
func (f lineFit) blocks(factors []float64) (slopes, intercepts, over []float64) {
	at := map[float64]float64{}
	for i, level := range f.usable {
		at[level[0].offered()] = factors[i]
	}
	for _, of := range grouped(slices.Concat(f.usable...), func(b blockMean) blockID { return b.id }, nil) {
		intercept, slope := f.line(f.name == Clean, of, func(b blockMean) float64 { return at[b.offered()] })
		_, beside := f.line(true, of, func(blockMean) float64 { return 1 })
		if !math.IsNaN(slope) {
			slopes, intercepts, over = append(slopes, slope), append(intercepts, intercept),
				append(over, finite(math.Log(Positive(slope/beside))))
		}
	}
	return slopes, intercepts, over
}

// line is the line through the blocks' values, each times its scale.
func (f lineFit) line(clean bool, blocks []blockMean, scale func(blockMean) float64) (intercept, slope float64) {
	var gbits, values, weights []float64
	for _, b := range blocks {
		if value, at := f.own(b, clean); value > 0 && at > 0 {
			gbits, values, weights = append(gbits, at), append(values, value*scale(b)), append(weights, 1/(value*value))
		}
	}
	if len(gbits) < fewestLevels {
		return math.NaN(), math.NaN()
	}
	intercept, slope = stat.LinearRegression(gbits, values, weights, false)
	return finite(intercept), finite(slope)
}

// What of a fit is asked for, and what noise moves of it.

func slopesOf(slopes, _, _ []float64) float64         { return mean(slopes) }
func interceptsOf(_, intercepts, _ []float64) float64 { return mean(intercepts) }
func oversOf(_, _, over []float64) float64            { return mean(over) }

func ownOf(m moved) span        { return m.own }
func ratioOfMoved(m moved) span { return m.ratio }

// swing is what noise may have done to a figure of the fit.
func (f lineFit) swing(figure func(slopes, intercepts, over []float64) float64, of func(moved) span) span {
	moves := spansOf(f.usable, func(level []blockMean) span { return of(f.noise(level, f.seen())) })
	return swing(moves, func(factors []float64) float64 { return figure(f.blocks(factors)) })
}
