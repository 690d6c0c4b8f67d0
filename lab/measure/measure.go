// Package measure is the table of what can be measured. Apart from it nothing asks which measure
// an experiment names.
package measure

import (
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/measure/logins"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/testbed"
)

// Measure is one thing that experiments measure. It owns its keys and its plan, how a block is
// measured, and its records.
type Measure interface {
	// Rules say what an experiment that names the measure may ask for, and what its plan is. They
	// are the same at every call.
	Rules() experiment.Measure
	// Run returns what carries out the blocks of one run; each run needs one of its own.
	Run() runner.Measure
	// Summarise computes the summary of a run that measured it, from the run's records alone.
	Summarise(run result.Run, opts analysis.Options) analysis.Summary
}

// Table is a list of measures; the first is what experiments measure that name none.
type Table []Measure

// All are the measures that ship with the lab.
func All() Table { return Table{cost.Measure{}, logins.Measure{}} }

// Catalogue is what experiments may name: these measures, and the devices and topologies that ship with the lab.
func (t Table) Catalogue() experiment.Catalogue {
	c := experiment.Catalogue{DUTs: dut.Names(), Topologies: testbed.Names()}
	for _, m := range t {
		c.Measures = append(c.Measures, m.Rules())
	}
	return c
}

// Of is the measure that an experiment names, which was read with the table's catalogue.
func (t Table) Of(e *experiment.Experiment) Measure { return t.named(e.Measure) }

// named is the measure of that name; a name from elsewhere makes it the first.
func (t Table) named(name string) Measure {
	return t[max(0, slices.IndexFunc(t, func(m Measure) bool { return m.Rules().Name == name }))]
}

// Rules are those of the measure that a run measured.
func Rules(run result.Run) experiment.Measure { return All().named(run.Measure()).Rules() }

// Summarise computes the summary of a run.
func (t Table) Summarise(run result.Run, opts analysis.Options) analysis.Summary {
	return t.named(run.Measure()).Summarise(run, opts)
}

// Summarise is that of all measures.
func Summarise(run result.Run, opts analysis.Options) analysis.Summary {
	return All().Summarise(run, opts)
}

// Catalogue is that of all measures.
func Catalogue() experiment.Catalogue { return All().Catalogue() }
