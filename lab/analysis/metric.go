package analysis

import (
	"encoding/json"
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/lab/result"
)

// Better says which direction of a metric is an improvement.
type Better string

// Directions. Most metrics have none, because they only explain others.
const (
	Less    Better = "less"
	More    Better = "more"
	Neither Better = ""
)

// Against says how a device is compared with the clean router of its pair.
type Against string

// A ratio is the device's figure divided by the clean router's, a difference is the first less the second. Both are
// computed for each window (or record) and then averaged over blocks: ratios geometrically, differences arithmetically.
const (
	AsRatio      Against = "ratio"
	AsDifference Against = "difference"
	NotCompared  Against = ""
)

// Per says which records a metric is read from.
type Per string

// A PerWindow metric has one value for each window, and a block's value is their mean. A PerLoad metric has one value
// for each load of a block, and a PerBlock metric one for each block. A PerPool metric is the median over all windows
// of a cell. A PerCell metric is computed from the metrics before it in the list. The last two have no interval. A
// measure may have further kinds.
const (
	PerWindow Per = "window"
	PerLoad   Per = "load"
	PerBlock  Per = "block"
	PerPool   Per = "pool"
	PerCell   Per = "cell"
)

// Metric describes one figure of a cell. The CSV, comparisons and summary.json read the list of metrics. So does the
// page of a measure that has no view of its own.
type Metric struct {
	Name    string  `json:"name"`              // key of the metric in cells
	Unit    string  `json:"unit"`              // empty: it is a ratio
	Text    string  `json:"text,omitempty"`    // what it is, where the name does not say
	Better  Better  `json:"better,omitempty"`  // less or more; absent: neither
	Against Against `json:"against,omitempty"` // how device and clean router are compared: ratio or difference
	Host    string  `json:"host,omitempty"`    // host that it concerns: RoleRouter, RoleClient, …; empty: the whole lab
	Per     Per     `json:"per"`               // kind of record that has one value
	// Both is true if the clean router's lab has the figure too.
	Both bool `json:"both,omitempty"`
	// Short is the metric's heading where two runs are compared and another metric is judged. Empty: it is not shown
	// there.
	Short string `json:"-"`

	// With names a figure of trials. The metric is listed only in runs whose trials have this figure, so that older runs
	// have no empty column. Empty: the metric is always listed.
	With string `json:"-"`

	Range  Scale                     `json:"-"` // range of possible values
	Median bool                      `json:"-"` // a block's value is the median of its windows, not their mean
	Value  func(MetricInput) float64 `json:"-"` // NaN: not known
	From   func(Figures) Number      `json:"-"` // replaces Value in a PerCell metric
}

// MetricInput has the values that a metric is computed from. They are of one side of a pair: the device or the clean
// router.
type MetricInput struct {
	result.Values
	Cell result.Cell
	CPUs int // number of the machine's CPUs
}

// Sample is a record of a load or of a block, not of a window. It counts for all cells with the dimensions of its cell.
// A block whose windows were all rejected has such records too, so the n of their metrics may exceed the number of
// blocks with an accepted trial.
type Sample struct {
	Per           Per
	Cell          result.Cell
	AA            bool // of an A/A block
	Device, Clean result.Values
}

// countsFor reports whether the sample counts for a cell.
func (s Sample) countsFor(cell result.Cell) bool {
	for _, v := range s.Cell.Values() {
		if value, ok := cell.Value(v.Dimension); !ok || value != v {
			return false
		}
	}
	return true
}

// Figure is the value of a metric in one cell.
type Figure struct {
	Device Estimate  `json:"device"`          // figure of the device
	Clean  *Estimate `json:"clean,omitempty"` // figure of the clean router
	// Change compares the device with the clean router as Metric.Against says.
	Change *Estimate `json:"change,omitempty"`
}

// Figures has the metrics of a cell by name. In JSON they are sorted by name, and metrics unknown for both sides are
// left out.
type Figures map[string]Figure

// MarshalJSON leaves out figures without a known value.
func (f Figures) MarshalJSON() ([]byte, error) {
	known := map[string]Figure{}
	for name, figure := range f {
		if figure.Device.Mean.Known() || figure.Clean != nil && figure.Clean.Mean.Known() {
			known[name] = figure
		}
	}
	return json.Marshal(known)
}

// Device returns a metric of the device, Clean that of the clean router, and Change the device compared with the clean
// router. They return Unknown when the cell lacks the metric.
func (f Figures) Device(name string) Estimate {
	return f.part(name, func(f *Figure) *Estimate { return &f.Device })
}

func (f Figures) Clean(name string) Estimate {
	return f.part(name, func(f *Figure) *Estimate { return f.Clean })
}

func (f Figures) Change(name string) Estimate {
	return f.part(name, func(f *Figure) *Estimate { return f.Change })
}

func (f Figures) part(name string, choose func(*Figure) *Estimate) Estimate {
	if figure, ok := f[name]; ok && choose(&figure) != nil {
		return *choose(&figure)
	}
	return Unknown()
}

// listed returns the metrics that trials of the run can have (see Metric.With).
func listed(list []Metric, trials []Trial) []Metric {
	return slices.DeleteFunc(slices.Clone(list), func(m Metric) bool {
		return m.With != "" && !slices.ContainsFunc(trials, func(t Trial) bool { return t.Device[m.With] > 0 })
	})
}

// MetricNamed finds a metric by its name. It returns the zero Metric when there is none.
func MetricNamed(list []Metric, name string) Metric {
	return firstOf(list, func(m Metric) bool { return m.Name == name })
}

func firstOf(list []Metric, matches func(Metric) bool) Metric {
	if i := slices.IndexFunc(list, matches); i >= 0 {
		return list[i]
	}
	return Metric{}
}

// Judged returns the metric by which runs of a measure are compared: the primary metric, or else the first one with a
// better direction.
func (s Summary) Judged() Metric {
	if s.Primary != "" {
		return MetricNamed(s.Metrics, s.Primary)
	}
	return firstOf(s.Metrics, func(m Metric) bool { return m.Better != Neither })
}

// compare returns the logarithm of a pair's ratio, or the pair's difference. Means are computed on this scale. It is
// NaN where a side has no figure.
func (m Metric) compare(p pair) float64 {
	a, b := m.Value(p.device), m.Value(p.clean)
	if m.Against == AsDifference {
		return finite(a - b)
	}
	return finite(math.Log(Positive(a) / Positive(b)))
}

// changes compares the two sides. It returns one value for each unit, such as a block.
func (m Metric) changes(units [][]pair) []float64 {
	return each(units, func(unit []pair) float64 { return mean(each(unit, m.compare)) })
}

// unscaled turns an estimate on the scale of compare into ratios or differences. scaled does the reverse for one ratio
// or difference.
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

// limit returns the largest change that does not matter, on the scale of compare. It comes from δ. For a difference, δ
// is a share of the clean router's figure.
func (m Metric) limit(units [][]pair, opts Options) float64 {
	if m.Against == AsRatio {
		return opts.limit()
	}
	clean := mean(each(slices.Concat(units...), func(p pair) float64 { return m.Value(p.clean) }))
	return opts.Delta * math.Abs(clean)
}

// Field returns a function for Metric.Value that reads one figure as it was recorded.
func Field(name string) func(MetricInput) float64 {
	return func(r MetricInput) float64 { return r.Get(name) }
}

// PositiveField is Field for a figure that cannot be zero. Zero means "not measured".
func PositiveField(name string) func(MetricInput) float64 {
	return func(r MetricInput) float64 { return Positive(r.Get(name)) }
}
