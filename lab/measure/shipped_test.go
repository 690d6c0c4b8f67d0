package measure_test

import (
	"slices"
	"testing"

	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/runner"
)

// TestShippedExperimentsHaveTheirDevices: each of them can be made.
func TestShippedExperimentsHaveTheirDevices(t *testing.T) {
	for _, e := range measure.Catalogue().Builtins() {
		for _, name := range e.DUTs {
			if _, err := dut.New(name, slices.Max(e.Clients), e); err != nil {
				t.Errorf("%s: %v", e.Name, err)
			}
		}
	}
}

// TestShippedExperimentsHaveRoom: what is shipped is not refused on a machine with a
// kernel's own limits and little memory.
func TestShippedExperimentsHaveRoom(t *testing.T) {
	small := machine.Machine{
		Limits: machine.Limits{
			Neighbours: [3]int64{128, 512, 1024}, PIDMax: 32768, Tasks: 500, Namespaces: 30_000, FilesHard: 20_000},
		Memory: machine.Memory{Available: 3 << 20},
	}
	for _, e := range measure.Catalogue().Builtins() {
		for _, l := range runner.Limits {
			have, need := l.Have(small), l.Need(runner.DemandOf(e))
			if l.Taken != nil {
				have -= l.Taken(small)
			}
			if l.Refusal != "" && l.Have(small) > 0 && need > have {
				t.Errorf("%s: %s: %d, and it takes %d", e.Name, l.What, have, need)
			}
		}
	}
}
