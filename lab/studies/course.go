package studies

import (
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
)

// course is one router's figures along a dimension: measured in a run, or published.
type course struct {
	dut     string
	Profile string
	at      result.Cell // what is held
	levels  []float64   // ascending
	figures figures
	flags   map[float64][]string // what weakens the figures of a level; see Value
	// rises are those of normalised CPU; nil: they follow from the figures.
	rises map[step]increase
	fits  string // what fits over all levels found, for the end of a sentence
}

// step is from one level to another.
type step struct{ from, to float64 }

// increase is what becomes of a metric from one level to another.
type increase struct {
	Net      analysis.Estimate // absent between levels that are no neighbours
	Relative analysis.Estimate // per cent
	// Beside is the increase of the overhead ratio, per cent. The clean router is on
	// the same machine at the same time, so this is free of the machine's drift
	// between blocks. Absent for the clean router.
	Beside analysis.Estimate
	next   bool // from a level to its neighbour
}

// figures are by level and metric.
type figures map[float64]map[string]analysis.Estimate

// estimate is a metric at a level.
func (c course) estimate(m Metric, at float64) analysis.Estimate {
	if e, ok := c.figures[at][m.Name]; ok {
		return e
	}
	return nothing()
}

// rise is the increase between two levels, whether there are levels in between or not.
func (c course) rise(m Metric, st step) (increase, bool) {
	if c.rises != nil {
		inc, ok := c.rises[st]
		return inc, ok
	}
	from, to := c.estimate(m, st.from).Mean, c.estimate(m, st.to).Mean
	return increase{exact(to - from), exact(100 * (to/from - 1)), nothing(), true}, (to / from).Known()
}

// taken is the increase between neighbouring levels at which the device carried the load.
func (c course) taken(m Metric, st step) (increase, bool) {
	inc, ok := c.rise(m, st)
	return inc, ok && inc.next && c.carries(st.from) && c.carries(st.to)
}

func (c course) has(at float64) bool { return c.figures[at] != nil }

// atLimit reports whether the device could not carry the load: what it cost at
// this level says nothing of what the whole load would cost.
func (c course) atLimit(at float64) bool {
	return slices.Contains(c.flags[at], result.FlagSaturated) || slices.Contains(c.flags[at], cost.FlagShortfall)
}

func (c course) carries(at float64) bool { return c.has(at) && !c.atLimit(at) }

// split are the levels among those given, and the others.
func (c course) split(levels []float64) (kept, extra []float64) {
	for _, at := range c.levels {
		if slices.Contains(levels, at) {
			kept = append(kept, at)
		} else {
			extra = append(extra, at)
		}
	}
	return kept, extra
}
