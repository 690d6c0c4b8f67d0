package studies_test

import (
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/studies"
)

// measuredCourse is how much dearer a bit is for a device, "clean" for the clean router,
// in a cell than it would be if CPU were proportional to bandwidth and free of
// the number of clients.
type measuredCourse func(dut string, cell result.Cell) float64

func proportional(string, result.Cell) float64 { return 1 }

// overLoad is a course that depends on the bandwidth alone, the same for all.
func overLoad(costs map[float64]float64) measuredCourse {
	return func(_ string, cell result.Cell) float64 { return costs[cell.Number(result.OfferedMbps)] }
}

func overClients(costs map[int]float64) measuredCourse {
	return func(_ string, cell result.Cell) float64 { return costs[cell.Int(result.Clients)] }
}

// onlyDevice gives one device a course, the others are proportional.
func onlyDevice(name string, c measuredCourse) measuredCourse {
	return func(dut string, cell result.Cell) float64 {
		if dut == name {
			return c(dut, cell)
		}
		return 1
	}
}

func bandwidthSpec(duts ...analysistest.DUT) analysistest.Spec {
	return analysistest.Spec{
		Seed: 3, DUTs: duts, Clients: []int{100}, Offered: []float64{100, 200, 400, 800, 1000},
		Blocks: 12, Windows: 20, AABlocks: 4, BlockSD: 0.01, WindowSD: 0.02, MachineSD: 0.03,
	}
}

func clientsSpec(duts ...analysistest.DUT) analysistest.Spec {
	spec := bandwidthSpec(duts...)
	spec.Clients, spec.Offered = []int{1, 10, 50, 100}, []float64{1000}
	return spec
}

func portal(name string, ratio float64) analysistest.DUT {
	return analysistest.DUT{Name: name, Ratio: ratio}
}

// simulate runs a spec with a course and summarises it under the name of an experiment.
func simulate(name string, spec analysistest.Spec, c measuredCourse) analysis.Summary {
	run := analysistest.Run(spec)
	run.Environment.Experiment = name
	for i := range run.Trials {
		t := &run.Trials[i]
		scale(&cost.SidesOf(*t).Clean, c("clean", t.Cell))
		if t.AA {
			scale(&cost.SidesOf(*t).DUT, c("clean", t.Cell))
		} else {
			scale(&cost.SidesOf(*t).DUT, c(t.Cell.Text(result.DUT), t.Cell))
		}
	}
	return measure.Summarise(run, analysis.Options{})
}

func scale(m *cost.Measurement, factor float64) {
	m.NAPINs = int64(float64(m.NAPINs) * factor)
	m.ProcessNs = int64(float64(m.ProcessNs) * factor)
}

func bandwidth(c measuredCourse, duts ...analysistest.DUT) analysis.Summary {
	return simulate("portal-bandwidth", bandwidthSpec(duts...), c)
}

func clients(c measuredCourse, duts ...analysistest.DUT) analysis.Summary {
	return simulate("portal-clients", clientsSpec(duts...), c)
}

func findingByID(t *testing.T, findings []analysis.Finding, id string) analysis.Finding {
	t.Helper()
	for _, f := range findings {
		if f.ID == id {
			return f
		}
	}
	t.Fatalf("no finding %s", id)
	return analysis.Finding{}
}

// study1Outcome is what runs say of study 1.
func study1Outcome(runs ...analysis.Summary) studies.Outcome { return studies.Beside(runs...)[0] }
