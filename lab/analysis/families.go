package analysis

import (
	"maps"
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
	"github.com/gateweigh/gateweigh/lab/result"
)

// FamilyRatio compares a device with itself: with clients of IPv6, or of both families, over clients of IPv4.
type FamilyRatio struct {
	Cell   result.Cell `json:"dimensions"` // of the dividend, with its family
	Metric string      `json:"metric"`     // of the device
	// Ratio is the geometric mean. Where two or more rounds of the run have both families, the rounds are compared as
	// pairs, and n is their number. Otherwise the blocks are compared as independent ones (see inference.Welch).
	Ratio Estimate `json:"ratio"`
}

// byFamily compares the cells of other families with those of IPv4, by the metrics of Input.ByFamily.
func (input Input) byFamily(cells map[result.Cell][]Trial, opts Options) (out []FamilyRatio) {
	for _, key := range slices.SortedFunc(maps.Keys(cells), input.inOrder) {
		over, found := cells[key.With(result.Family, "4")]
		if !found || !key.HasDimension(result.Family) || key.Text(result.Family) == "4" {
			continue
		}
		for _, name := range input.ByFamily {
			m := MetricNamed(input.Metrics, name)
			if m.Value == nil {
				continue
			}
			ratio := estimateOf(quotientOf(input.logsOf(m, cells[key]), input.logsOf(m, over)), opts.Confidence).geometric()
			if ratio.Mean.Known() {
				out = append(out, FamilyRatio{key, name, ratio})
			}
		}
	}
	return out
}

// logsOf returns the logarithm of a metric of the device in each round, the mean of its accepted windows.
func (input Input) logsOf(m Metric, trials []Trial) map[round]float64 {
	out := map[round]float64{}
	for _, windows := range input.byBlock(accepted(trials)) {
		id := input.blockOf(windows[0])
		log := math.Log(Positive(mean(each(windows, func(t Trial) float64 { return m.Value(input.pairOf(t).device) }))))
		if !math.IsNaN(log) {
			out[round{id.block, id.sitting}] = log
		}
	}
	return out
}

// quotientOf estimates the logarithm of the quotient of two figures from their logarithms.
func quotientOf(figure, from map[round]float64) inference.Sample {
	inOrder := func(figures map[round]float64) (list []float64) {
		for _, v := range figures { // the random order of a map would change the last digit
			list = append(list, v)
		}
		slices.Sort(list)
		return list
	}
	paired := map[round]float64{}
	for r, v := range figure {
		if other, both := from[r]; both {
			paired[r] = v - other
		}
	}
	if len(paired) > 1 || len(paired) == 1 && len(figure) == 1 && len(from) == 1 {
		return inference.SampleOf(inOrder(paired))
	}
	return inference.Welch(inOrder(from), inOrder(figure))
}
