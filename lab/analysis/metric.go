package analysis

import (
	"encoding/json"
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/lab/result"
)

// Better says which direction of a metric is an improvement.
type Better string

// Directions; most metrics only explain others and have none.
const (
	Less    Better = "less"
	More    Better = "more"
	Neither Better = ""
)

// Against says how a device is compared with the clean router of its pair.
type Against string

// Both compare window by window (or record by record) and average over blocks: the ratio
// of device over clean router geometrically, the difference arithmetically.
const (
	AsRatio      Against = "ratio"
	AsDifference Against = "difference"
	NotCompared  Against = ""
)

// Per says which record a metric is read from.
type Per string

// PerWindow metrics have one value a window, and a block's value is their mean;
// PerLoad metrics have one value for each load of a block, PerBlock metrics one a block.
// PerPool is the median over all windows of a cell, and PerCell follows from the
// cell's metrics before it: neither has an interval. A measure may have further kinds
// of sample.
const (
	PerWindow Per = "window"
	PerLoad   Per = "load"
	PerBlock  Per = "block"
	PerPool   Per = "pool"
	PerCell   Per = "cell"
)

// Metric describes one figure of a cell. The CSV, comparisons, summary.json and the view
// of measures without one of their own read this list.
type Metric struct {
	Name    string  `json:"name"`              // under which cells have it
	Unit    string  `json:"unit"`              // none: a ratio
	Text    string  `json:"text,omitempty"`    // what it is, where the name does not say
	Better  Better  `json:"better,omitempty"`  // less or more; absent: neither
	Against Against `json:"against,omitempty"` // how device and clean router are compared: ratio or difference
	Host    string  `json:"host,omitempty"`    // whose it is: RoleRouter, RoleClient, …; empty: of the whole lab
	Per     Per     `json:"per"`               // the record that one value is of
	// Both: the clean router's lab has the figure too.
	Both bool `json:"both,omitempty"`
	// Short is its heading beside the judged metric where two runs are compared; empty:
	// it is not shown there.
	Short string `json:"-"`

	// With is a figure of trials without which the metric is not listed: runs of before it was recorded have no empty
	// column. Empty: the metric is always listed.
	With string `json:"-"`

	Range  Scale                     `json:"-"` // what the figure can be
	Median bool                      `json:"-"` // a block's value is the median of its windows, not their mean
	Of     func(MetricInput) float64 `json:"-"` // NaN: not known
	From   func(Figures) Number      `json:"-"` // replaces Of in a PerCell metric
}

// MetricInput has the values that a metric is computed from, of one side of a pair.
type MetricInput struct {
	result.Values
	Cell result.Cell
	CPUs int // of the machine
}

// Sample is a record that is not of a window: of a load or of a block. It counts for all
// cells with the dimensions of its cell. A block whose windows were all rejected has such
// records too, so the n of their metrics may exceed the number of blocks with an accepted
// trial.
type Sample struct {
	Per           Per
	Cell          result.Cell
	AA            bool // of an A/A block
	Device, Clean result.Values
}

// of reports whether the sample counts for a cell.
func (s Sample) of(cell result.Cell) bool {
	for _, v := range s.Cell.Values() {
		if value, ok := cell.Value(v.Dimension); !ok || value != v {
			return false
		}
	}
	return true
}

// Figure is a metric of one cell.
type Figure struct {
	Device Estimate  `json:"device"`          // the device's
	Clean  *Estimate `json:"clean,omitempty"` // the clean router's
	// Change compares the device with the clean router as Metric.Against says.
	Change *Estimate `json:"change,omitempty"`
}

// Figures are the metrics of a cell by name. In JSON they are sorted by name; metrics
// unknown for both sides are left out.
type Figures map[string]Figure

// MarshalJSON leaves out figures of which nothing is known.
func (f Figures) MarshalJSON() ([]byte, error) {
	known := map[string]Figure{}
	for name, figure := range f {
		if figure.Device.Mean.Known() || figure.Clean != nil && figure.Clean.Mean.Known() {
			known[name] = figure
		}
	}
	return json.Marshal(known)
}

// Device is a metric of the device, Clean of the clean router, Change how they compare;
// absent when the cell lacks it.
func (f Figures) Device(name string) Estimate {
	return f.part(name, func(f *Figure) *Estimate { return &f.Device })
}

func (f Figures) Clean(name string) Estimate {
	return f.part(name, func(f *Figure) *Estimate { return f.Clean })
}

func (f Figures) Change(name string) Estimate {
	return f.part(name, func(f *Figure) *Estimate { return f.Change })
}

func (f Figures) part(name string, of func(*Figure) *Estimate) Estimate {
	if figure, ok := f[name]; ok && of(&figure) != nil {
		return *of(&figure)
	}
	return Unknown()
}

// listed are the metrics of which trials can have a figure: see Metric.With.
func listed(list []Metric, trials []Trial) []Metric {
	return slices.DeleteFunc(slices.Clone(list), func(m Metric) bool {
		return m.With != "" && !slices.ContainsFunc(trials, func(t Trial) bool { return t.Device[m.With] > 0 })
	})
}

// MetricNamed finds a metric; the zero Metric when there is none.
func MetricNamed(list []Metric, name string) Metric {
	return firstOf(list, func(m Metric) bool { return m.Name == name })
}

func firstOf(list []Metric, is func(Metric) bool) Metric {
	if i := slices.IndexFunc(list, is); i >= 0 {
		return list[i]
	}
	return Metric{}
}

// Judged is the metric by which runs of a measure are compared: the primary metric, or the
// first that has a better direction.
func (s Summary) Judged() Metric {
	if s.Primary != "" {
		return MetricNamed(s.Metrics, s.Primary)
	}
	return firstOf(s.Metrics, func(m Metric) bool { return m.Better != Neither })
}

// compare is the figure of a pair on the scale its mean is taken on: the
// logarithm of a ratio, or a difference. NaN where a side has none.
func (m Metric) compare(p pair) float64 {
	a, b := m.Of(p.device), m.Of(p.clean)
	if m.Against == AsDifference {
		return finite(a - b)
	}
	return finite(math.Log(Positive(a) / Positive(b)))
}

// changes compares the two sides: one value a unit.
func (m Metric) changes(units [][]pair) []float64 {
	return each(units, func(unit []pair) float64 { return mean(each(unit, m.compare)) })
}

// unscaled turns an estimate on the scale of compare into ratios or differences;
// scaled is a ratio or difference on that scale.
func (m Metric) unscaled(e Estimate) Estimate {
	if m.Against == AsRatio {
		return e.geometric()
	}
	return e
}

func (m Metric) scaled(change Number) float64 {
	if m.Against == AsRatio {
		return math.Log(float64(change))
	}
	return float64(change)
}

// limit is the largest change that does not matter, on the scale of compare: δ, for
// differences as a share of the clean router's figure.
func (m Metric) limit(units [][]pair, opts Options) float64 {
	if m.Against == AsRatio {
		return opts.limit()
	}
	clean := mean(each(slices.Concat(units...), func(p pair) float64 { return m.Of(p.clean) }))
	return opts.Delta * math.Abs(clean)
}

// Field is a metric's Of that reads one figure as it was recorded.
func Field(name string) func(MetricInput) float64 {
	return func(r MetricInput) float64 { return r.Get(name) }
}

// PositiveField is Field of what cannot be zero: zero stands for "not measured".
func PositiveField(name string) func(MetricInput) float64 {
	return func(r MetricInput) float64 { return Positive(r.Get(name)) }
}
