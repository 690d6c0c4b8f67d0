package analysis

import (
	"math"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Until is the rule of a run that measures each cell until its interval is narrow enough. A look is a check of all
// cells after a number of blocks.
type Until struct {
	PrecisionPct float64 `json:"precision_pct"`    // half the width that is enough, % of the figure
	Metric       string  `json:"metric,omitempty"` // metric of the interval
	// confidence of each interval; it is higher than the summary's, so that intervals hold the mean as often as the
	// summary says
	Confidence    Number  `json:"confidence"`
	Planned       []int   `json:"planned"`                   // blocks after which a look was planned
	Looks         []int   `json:"looks"`                     // blocks after which a look was made
	AtMostSeconds float64 `json:"at_most_seconds,omitempty"` // bound of the time; 0: none
}

// Ended says after how many blocks a cell ended, and why.
type Ended struct {
	Blocks   int    `json:"blocks"`          // blocks of the plan that it had at its last look
	WidthPct Number `json:"width_pct"`       // half the interval's width at that look, % of the figure
	Bound    string `json:"bound,omitempty"` // what ended it: blocks or time; absent: it was exact enough
}

// Exact reports whether the cell ended because its interval was narrow enough.
func (e Ended) Exact() bool { return e.Bound == "" }

// until records the rule of a run that measures cells until they are exact enough. It returns the options with the
// confidence for such intervals.
func (s *Summary) until(u *result.Until, opts Options) Options {
	if u == nil {
		return opts
	}
	opts.Confidence = inference.LookConfidence(opts.Confidence)
	s.Until = &Until{PrecisionPct: u.PrecisionPct, Confidence: Number(opts.Confidence), Planned: u.Planned, Looks: []int{},
		AtMostSeconds: u.AtMostSeconds}
	for _, look := range u.Looks {
		s.Until.Looks = append(s.Until.Looks, look.Blocks)
		for _, w := range look.Cells {
			s.Until.Metric = w.Metric
		}
	}
	return opts
}

// end records for each cell how it ended.
func (s *Summary) end(u *result.Until) {
	ended := u.Ended()
	for i, c := range s.Cells {
		if e, known := ended[c.Cell]; known {
			width := Absent()
			if e.WidthPct != nil {
				width = Number(*e.WidthPct)
			}
			s.Cells[i].Ended = &Ended{Blocks: e.Look, WidthPct: width, Bound: e.Bound}
		}
	}
}

// Widths returns the interval width of each cell's judged figure: the comparison with the clean router, or else the
// device's figure.
func (s Summary) Widths() (list []result.Width) {
	m := s.Judged()
	for _, c := range s.Cells {
		w := result.Width{Dimensions: c.Cell, Metric: m.Name, Blocks: c.Device(m.Name).N}
		if pct := 100 * s.width(c, m); !math.IsNaN(pct) && !math.IsInf(pct, 0) {
			w.WidthPct = &pct
		}
		list = append(list, w)
	}
	return list
}

// width returns half of a cell's interval as a share of the figure, measured to the bound that is farther from the
// mean. For a difference it is a share of the clean router's figure. It is NaN without an interval.
func (s Summary) width(c Cell, m Metric) float64 {
	e := c.Device(m.Name)
	whole := e.Mean
	switch m.Against {
	case AsRatio:
		e = c.Change(m.Name)
		whole = e.Mean
	case AsDifference:
		e, whole = c.Change(m.Name), c.Clean(m.Name).Mean
	}
	half := math.Max(float64(e.Hi-e.Mean), float64(e.Mean-e.Lo))
	return half / math.Abs(float64(whole))
}
