package measure_test

import (
	"slices"
	"testing"

	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/runner"
)

// TestShippedExperimentsHaveTheirDevices: all devices of all experiments that ship with the lab can be made.
func TestShippedExperimentsHaveTheirDevices(t *testing.T) {
	for _, e := range measure.Catalogue().Builtins() {
		for _, name := range e.DUTs {
			if _, err := dut.New(name, slices.Max(e.Clients), e); err != nil {
				t.Errorf("%s: %v", e.Name, err)
			}
		}
	}
}

// TestShippedExperimentsHaveRoom: no experiment that ships with the lab is refused on a machine with the kernel's
// default limits and little memory.
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
				t.Errorf("%s: %s: the machine has %d, and the experiment needs %d", e.Name, l.What, have, need)
			}
		}
	}
}
