// Package trend follows a figure over many runs of one experiment. Runs whose figures lab/compare would not show in one
// table row are in different groups. The package computes a Trend from digests of the runs and nothing else.
package trend

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/internal/near"
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/compare"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Version of the JSON of a Trend.
const Version = 1

// Ways to name the runs on the axis.
const (
	ByDate    = "date"
	ByVersion = "version" // of gateweigh: what git describe said of the commit
)

// Digest is the part of a run that a trend needs. It holds no trials.
type Digest struct {
	Name    string // the run's folder or bundle, or its name in an archive
	Run     result.Run
	Summary analysis.Summary
}

// DigestOf makes the digest of a run.
func DigestOf(name string, run result.Run, s analysis.Summary) Digest {
	run.Trials, run.Blocks, run.MeasureRecords = nil, nil, nil
	return Digest{name, run, s}
}

// Options of TrendOf. The zero value is usable.
type Options struct {
	Metric  string   // name of the metric; default: the one that verdicts judge
	Devices []string // default: all
	By      string   // ByDate or ByVersion; default ByDate
}

// Trend is the output of trend --json.
type Trend struct {
	Version    int                 `json:"version"` // of the format: 1
	Experiment string              `json:"experiment"`
	Metric     analysis.Metric     `json:"metric"`
	By         string              `json:"by"`         // date or version
	Confidence float64             `json:"confidence"` // of all intervals
	Runs       []Run               `json:"runs"`       // the earliest first
	Groups     []Group             `json:"groups"`     // of runs that stand in one row
	Series     []Series            `json:"series"`     // one a cell and group
	LeftOut    []Left              `json:"left_out"`   // runs
	dimensions analysis.Dimensions // of the cells
}

// Run is one run of the trend.
type Run struct {
	Name    string    `json:"name"`    // folder or bundle
	Start   time.Time `json:"start"`   // UTC
	Version string    `json:"version"` // of gateweigh
	Kernel  string    `json:"kernel"`
	CPU     string    `json:"cpu_model"`
	Group   int       `json:"group"` // index
	// Changed lists the differences from the run before it in its group.
	Changed     []string `json:"changed"`
	Interrupted bool     `json:"interrupted,omitempty"` // it has not come to its end
	Mark        string   `json:"mark,omitempty"`        // result.VM.Mark
}

// Group has runs whose figures can be compared.
type Group struct {
	Letter string `json:"letter"` // A, B, …
	// Apart lists the reasons why the group's figures cannot be compared with those of the first group. It is empty for
	// the first group.
	Apart []string `json:"apart"`
}

// Series has the figures of one cell in one group, run by run.
type Series struct {
	Cell   result.Cell `json:"dimensions"`
	Group  int         `json:"group"`
	Points []Point     `json:"points"`
}

// Point is the figure of one run.
type Point struct {
	Run int `json:"run"` // index
	analysis.Estimate
}

// Left is a run that the trend leaves out.
type Left struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// TrendOf makes the trend of the runs. They are of one experiment. It is an error if no run has the figure.
func TrendOf(digests []Digest, opts Options) (Trend, error) {
	t := Trend{Version: Version, By: cmp.Or(opts.By, ByDate), Runs: []Run{}, Groups: []Group{}, Series: []Series{},
		LeftOut: []Left{}}
	if t.By != ByDate && t.By != ByVersion {
		return t, fmt.Errorf("by %q: want %s or %s", t.By, ByDate, ByVersion)
	}
	digests = slices.Clone(digests)
	slices.SortStableFunc(digests, func(a, b Digest) int {
		return a.Run.Environment.Start.Compare(b.Run.Environment.Start)
	})
	if err := t.choose(digests, opts); err != nil {
		return t, err
	}
	var firsts []result.Run      // first run of each group
	last := map[int]result.Run{} // last run of each group
	for _, d := range digests {
		if reason := t.unfit(d); reason != "" {
			t.LeftOut = append(t.LeftOut, Left{d.Name, reason})
			continue
		}
		group := slices.IndexFunc(firsts, func(first result.Run) bool { return len(compare.Apart(first, d.Run)) == 0 })
		if group < 0 {
			group = len(firsts)
			t.Groups = append(t.Groups, groupOf(group, firsts, d.Run))
			firsts = append(firsts, d.Run)
		}
		env := d.Run.Environment
		run := Run{Name: d.Name, Start: env.Start, Version: env.GateweighVersion, Kernel: env.Kernel, CPU: env.CPUModel,
			Group: group, Changed: []string{}, Interrupted: env.Interrupted, Mark: env.VM.Mark()}
		if before, known := last[group]; known {
			run.Changed = changes(before, d.Run)
		}
		last[group] = d.Run
		t.Runs = append(t.Runs, run)
		t.add(d, opts)
	}
	slices.SortStableFunc(t.Series, func(a, b Series) int { return cmp.Compare(a.Group, b.Group) })
	if len(t.Series) == 0 {
		return t, fmt.Errorf("none of %s has %s%s", words.Counted(len(digests), "run"), t.Figure(), t.whyNone())
	}
	return t, nil
}

// choose selects the metric and the devices.
func (t *Trend) choose(digests []Digest, opts Options) error {
	if len(digests) == 0 {
		return errors.New("there is no run to follow a figure over")
	}
	latest := digests[len(digests)-1].Summary
	t.Experiment, t.Confidence, t.dimensions = latest.Experiment, latest.Confidence, latest.Dimensions
	t.Metric = latest.Judged()
	if opts.Metric != "" {
		var names []string
		for _, m := range latest.Metrics {
			names = append(names, m.Name)
		}
		if t.Metric = analysis.MetricNamed(latest.Metrics, opts.Metric); t.Metric.Name == "" {
			return fmt.Errorf("no metric is called %q: there are %s%s", opts.Metric, strings.Join(names, ", "),
				near.Suggestion(opts.Metric, names))
		}
	}
	var devices []string
	for _, d := range digests {
		for _, c := range d.Summary.Cells {
			devices = append(devices, c.DUT())
		}
	}
	slices.Sort(devices)
	devices = slices.Compact(devices)
	for _, name := range opts.Devices {
		if !slices.Contains(devices, name) {
			return fmt.Errorf("no run has the device %q: there are %s%s", name, strings.Join(devices, ", "),
				near.Suggestion(name, devices))
		}
	}
	return nil
}

// unfit says why a run is left out. It is empty for a run that fits.
func (t *Trend) unfit(d Digest) string {
	switch {
	case d.Summary.Experiment != t.Experiment:
		return "it is of the experiment " + words.Or(d.Summary.Experiment, "of no name")
	case analysis.MetricNamed(d.Summary.Metrics, t.Metric.Name).Name == "":
		return "it measured " + d.Summary.Measure + ", and has no " + t.Metric.Name
	case d.Summary.Trials.Accepted == 0:
		return "it has no accepted " + words.Or(d.Summary.Noun, "trial")
	}
	return ""
}

// whyNone returns why the first run was left out, as the end of an error; empty if none was.
func (t *Trend) whyNone() string {
	if len(t.LeftOut) == 0 {
		return ""
	}
	return ": " + t.LeftOut[0].Name + ": " + t.LeftOut[0].Reason
}

// groupOf returns a group that begins with a run.
func groupOf(index int, firsts []result.Run, run result.Run) Group {
	g := Group{Letter: letter(index), Apart: []string{}}
	if index > 0 {
		for _, d := range compare.Apart(firsts[0], run) {
			g.Apart = append(g.Apart, d.String())
		}
	}
	return g
}

// letter returns A, B, …, Z, A2, B2, …
func letter(index int) string {
	name := string(rune('A' + index%26))
	if round := index / 26; round > 0 {
		name += fmt.Sprint(round + 1)
	}
	return name
}

// mostChanges is the largest number of changes listed for a run.
const mostChanges = 8

// changes lists the differences between two runs of a group.
func changes(before, run result.Run) []string {
	list := []string{}
	all, _ := compare.Differences(before, run)
	for _, d := range all {
		if len(list) == mostChanges {
			return append(list, fmt.Sprintf("and %d more", len(all)-mostChanges))
		}
		list = append(list, d.String())
	}
	return list
}

// add adds the figures of the last run.
func (t *Trend) add(d Digest, opts Options) {
	index := len(t.Runs) - 1
	for _, c := range d.Summary.Cells {
		e := c.Device(t.Metric.Name)
		if t.compared() {
			e = c.Change(t.Metric.Name)
		}
		if !e.Mean.Known() || len(opts.Devices) > 0 && !slices.Contains(opts.Devices, c.DUT()) {
			continue
		}
		group := t.Runs[index].Group
		i := slices.IndexFunc(t.Series, func(s Series) bool { return s.Cell == c.Cell && s.Group == group })
		if i < 0 {
			i = len(t.Series)
			t.Series = append(t.Series, Series{Cell: c.Cell, Group: group})
		}
		t.Series[i].Points = append(t.Series[i].Points, Point{index, e})
	}
}

// compared reports whether the figure is a ratio to the clean router of the same run.
func (t *Trend) compared() bool { return t.Metric.Against == analysis.AsRatio }

// Figure names the figure: "CPU per delivered bit, × a clean router's".
func (t *Trend) Figure() string {
	name := words.Or(t.Metric.Text, t.Metric.Name)
	if t.compared() {
		return name + ", × a clean router's"
	}
	return words.Joined(", ", name, t.Metric.Unit)
}

// Label names a run on the axis.
func (t *Trend) Label(run int) string {
	r := t.Runs[run]
	switch {
	case t.By == ByVersion:
		return words.Or(r.Version, "?")
	case r.Start.IsZero():
		return "?"
	case t.lasts() < 4*24*time.Hour:
		return r.Start.UTC().Format("2 Jan 15:04")
	case t.lasts() < 300*24*time.Hour:
		return r.Start.UTC().Format("2 Jan")
	}
	return r.Start.UTC().Format("2 Jan 2006")
}

// lasts returns the time from the first run to the last one.
func (t *Trend) lasts() time.Duration { return t.Runs[len(t.Runs)-1].Start.Sub(t.Runs[0].Start) }
