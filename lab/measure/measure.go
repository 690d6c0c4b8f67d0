// Package measure is the table of measures. Three other packages know single measures by name: lab/report chooses views
// by measure, lab/studies names dimensions and metrics of the measures that studies use, and lab/compare those of cost.
package measure

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/measure/capture"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/measure/failover"
	"github.com/gateweigh/gateweigh/lab/measure/logins"
	"github.com/gateweigh/gateweigh/lab/measure/rate"
	"github.com/gateweigh/gateweigh/lab/measure/roaming"
	"github.com/gateweigh/gateweigh/lab/measure/throughput"
	"github.com/gateweigh/gateweigh/lab/measure/transfer"
	"github.com/gateweigh/gateweigh/lab/measure/transition"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/topology"
)

// Measure is one thing that experiments measure. It owns its keys and its plan, how a block is
// measured, and its records.
type Measure interface {
	// Rules says which keys an experiment of the measure may set, and how it is planned. The result is the same at every
	// call.
	Rules() experiment.Measure
	// Run returns the functions that carry out the blocks of one run. Each run needs its own call.
	Run() runner.Measure
	// Records are the measure's own kinds of record, besides trials and blocks.
	Records() []result.Kind
	// Summarise computes the summary of a run that measured it, from the run's records alone.
	Summarise(run result.Run, opts analysis.Options) analysis.Summary
}

// Table is a list of measures; the first is the measure of experiments that name none.
type Table []Measure

// All are the measures that ship with the lab.
func All() Table {
	return Table{cost.Measure{}, logins.Measure{}, throughput.Measure{}, capture.Measure{}, rate.Measure{},
		transfer.Measure{}, transition.Measure{}, failover.Measure{}, roaming.Measure{}}
}

// Catalogue returns the names that experiments may use: these measures, and the devices and topologies that ship with
// the lab.
func (t Table) Catalogue() experiment.Catalogue {
	c := experiment.Catalogue{DUTs: dut.Names(), Topologies: topologies(), Links: dut.LinkNeeds}
	for _, m := range t {
		c.Measures = append(c.Measures, m.Rules())
	}
	return c
}

// For returns the first shipped experiment that measures a device. If no experiment does, it returns the first one.
func (t Table) For(device string) *experiment.Experiment {
	list := t.Catalogue().Builtins()
	i := slices.IndexFunc(list, func(e *experiment.Experiment) bool { return slices.Contains(e.DUTs, device) })
	return list[max(0, i)]
}

// topologies lists the topologies that ship with the lab.
func topologies() (list []experiment.Topology) {
	for _, name := range topology.Names() {
		t := topology.Topologies[name](topology.Spec{})
		list = append(list, experiment.Topology{Name: name, Roles: t.Roles(), Gateways: t.Gateways()})
	}
	return list
}

// Of returns the measure of an experiment that was read with the table's catalogue.
func (t Table) Of(e *experiment.Experiment) Measure { return t[t.indexOf(e.Measure)] }

// indexOf returns the index of the measure with a name, or -1.
func (t Table) indexOf(name string) int {
	return slices.IndexFunc(t, func(m Measure) bool { return m.Rules().Name == name })
}

// measured returns the place of the measure that a run names; -1 if the table lacks it. A run of an early version, or
// without its environment, names none: its kinds of record tell which measure it is.
func (t Table) measured(run result.Run) int {
	if name := run.Environment.Measure; name != "" {
		return t.indexOf(name)
	}
	return max(0, slices.IndexFunc(t, func(m Measure) bool {
		return slices.ContainsFunc(m.Records(), func(k result.Kind) bool {
			return slices.ContainsFunc(run.MeasureRecords, func(l result.Entry) bool { return l.Kind == k.Name })
		})
	}))
}

// ReadRun reads a run from a folder, as result.ReadRun does, with the records of the table's measures. A run of another
// measure is an error.
func (t Table) ReadRun(dir string) (result.Run, error) {
	env, _ := result.ReadEnvironment(filepath.Join(dir, result.EnvironmentFile)) // result.ReadRun reports an error of it
	run, err := result.ReadRun(dir, t.kinds(env.Measure)...)
	return t.read(run, dir, err)
}

// Open reads a run from a folder or a bundle, as result.Open does, with the records of the table's measures. A run of
// another measure is an error. The caller calls forget when it has read the run's files.
func (t Table) Open(ctx context.Context, name string) (_ result.Run, forget func(), _ error) {
	dir, forget, err := result.Folder(ctx, name)
	if err != nil {
		return result.Run{}, forget, err
	}
	run, err := t.ReadRun(dir)
	return run, forget, err
}

// kinds lists the kinds of record in a run of the named measure. The kinds "trial" and "block", which several measures
// have, are read with the figures of the named measure; if the name is "", with those of the first measure that has
// them. All other kinds are known in all runs.
func (t Table) kinds(measured string) (list []result.Kind) {
	var others []result.Kind
	for _, m := range t {
		own := measured == "" || m.Rules().Name == measured
		for _, k := range m.Records() {
			switch {
			case own:
				list = append(list, k)
			case k.Name != result.KindTrial && k.Name != result.KindBlock:
				others = append(others, k)
			}
		}
	}
	return append(list, others...)
}

// read completes a run that was read from a folder or a bundle with err. From the run's experiment it adds the planned
// windows and cells without a record, and the order of frame sizes. A run of a measure that the table lacks is an
// error.
func (t Table) read(run result.Run, from string, err error) (result.Run, error) {
	if err == nil && t.measured(run) < 0 {
		err = fmt.Errorf("%s measured %q, which this program does not know (known: %s): use a newer gateweigh",
			from, run.Environment.Measure, strings.Join(t.Catalogue().MeasureNames(), ", "))
	}
	if err != nil {
		return run, err
	}
	// Without a readable experiment the plan is not known, and the run stays as it is.
	if e, err := t.Catalogue().Load(filepath.Join(run.Dir, result.ExperimentFile)); err == nil {
		run.Unrecorded, run.Unmeasured, run.FrameSizes = unrecorded(e, run), unmeasured(e, run), e.FrameSizes
	}
	return run, nil
}

// unrecorded counts the planned windows of a run without a record. Some do not count, because other records explain
// them: windows of interrupted runs, of devices that failed or were skipped, and of cells that were left out. If all
// devices were skipped, nothing ran, not even A/A blocks of two clean routers.
func unrecorded(e *experiment.Experiment, run result.Run) (n int) {
	if run.Environment.End.IsZero() || run.Environment.Interrupted {
		return 0
	}
	excused := map[string]bool{}
	for _, s := range run.Skipped {
		excused[s.DUT] = true
	}
	plan := e.Plan()
	if len(run.Skipped) > 0 &&
		!slices.ContainsFunc(plan, func(b experiment.Block) bool { return !b.AA && !b.Control && !excused[b.DUT()] }) {
		return 0
	}
	type window struct {
		cell          result.Cell
		aa            bool
		block, number int
	}
	recorded, left := map[window]bool{}, experiment.NotNeeded(plan, run.Environment.Until)
	for _, b := range run.Blocks {
		excused[b.DUT] = excused[b.DUT] || b.Error != "" || b.Broke != ""
		for _, cell := range b.LeftOut {
			for number := range e.Windows {
				recorded[window{cell, b.AA, b.Block, number}] = true
			}
		}
	}
	for _, l := range result.Attempts(run.Trials, run.MeasureRecords) {
		recorded[window{l.Cell, l.AA, l.Block, l.Window}] = true
	}
	for _, b := range plan {
		if len(b.For) > 0 && !slices.ContainsFunc(b.For, func(name string) bool { return !excused[name] }) {
			continue
		}
		for _, cell := range b.Cells {
			for number := range e.Windows {
				if !excused[b.DUT()] && !left(b, cell) && !recorded[window{cell, b.AA, b.Index, number}] {
					n++
				}
			}
		}
	}
	return n
}

// unmeasured lists the planned cells without a recorded attempt, each once. Cells of skipped devices and cells that
// were left out are not listed. The list is nil if no measured cell is in the plan: the run then has another plan.
func unmeasured(e *experiment.Experiment, run result.Run) []result.Cell {
	list, excused := []result.Cell{}, map[string]bool{}
	for _, s := range run.Skipped {
		excused[s.DUT] = true
	}
	known := map[result.Cell]bool{}
	for _, b := range run.Blocks {
		for _, cell := range b.LeftOut {
			known[cell] = known[cell] || !b.AA
		}
	}
	for _, l := range result.Attempts(run.Trials, run.MeasureRecords) {
		known[l.Cell] = known[l.Cell] || !l.AA
	}
	foreign := slices.Contains(slices.Collect(maps.Values(known)), true)
	for _, b := range e.Plan() {
		for _, cell := range b.Cells {
			switch {
			case b.AA, b.Control, excused[cell.Text(result.DUT)]:
			case known[cell]:
				foreign = foreign && slices.Contains(list, cell)
			default:
				list, known[cell] = append(list, cell), true
			}
		}
	}
	if foreign {
		return nil
	}
	return list
}

// Uses reports whether a key of experiments has a meaning for a run's measure.
func Uses(run result.Run, key string) bool {
	t := All()
	return slices.Contains(t[t.measured(run)].Rules().Uses, key)
}

// Summarise computes the summary of a run that ReadRun or Open has read. It panics if the table lacks the run's
// measure.
func (t Table) Summarise(run result.Run, opts analysis.Options) analysis.Summary {
	return t[t.measured(run)].Summarise(run, opts)
}

// Widths returns the widths of the cells' intervals, for the run in a folder.
func (t Table) Widths(dir string) ([]result.Width, error) {
	run, err := t.ReadRun(dir)
	if err != nil {
		return nil, err
	}
	return t.Summarise(run, analysis.Options{}).Widths(), nil
}

// Summarise is Table.Summarise of all measures.
func Summarise(run result.Run, opts analysis.Options) analysis.Summary {
	return All().Summarise(run, opts)
}

// ReadRun is Table.ReadRun of all measures.
func ReadRun(dir string) (result.Run, error) { return All().ReadRun(dir) }

// Open is Table.Open of all measures.
func Open(ctx context.Context, name string) (result.Run, func(), error) { return All().Open(ctx, name) }

// Catalogue is Table.Catalogue of all measures.
func Catalogue() experiment.Catalogue { return All().Catalogue() }
