package testbed

import (
	"fmt"
	"slices"

	"github.com/gateweigh/gateweigh/lab/machine"
)

// Placement says which CPUs do whose work. Both labs of a duet get the same
// one: where a router's work runs moves its cost by 40 %.
type Placement struct {
	Router    []int // polling threads and device under test of every metered host
	Endpoints []int // clients, servers, traffic, meters
}

// PlacementOn gives the metered hosts the last of the CPUs that labs may use and
// everything else the others. On a single CPU all share it.
func PlacementOn(cpus []int) Placement {
	last := len(cpus) - 1
	if last <= 0 {
		return Placement{Router: cpus, Endpoints: cpus}
	}
	return Placement{Router: cpus[last:], Endpoints: cpus[:last]}
}

// DefaultPlacement is that of hosts which are namespaces of this machine.
func DefaultPlacement() (Placement, error) {
	cpus, err := machine.UsableCPUs()
	return PlacementOn(cpus), err
}

// of is where the links' polling threads and the programs of a host run.
func (p Placement) of(metered bool) []int {
	if metered {
		return p.Router
	}
	return p.Endpoints
}

// All are the CPUs of the labs, each once.
func (p Placement) All() []int {
	all := slices.Concat(p.Router, p.Endpoints)
	slices.Sort(all)
	return slices.Compact(all)
}

// String is the placement as reports print it.
func (p Placement) String() string {
	return fmt.Sprintf("routers on CPU %v, clients, servers and meters on CPU %v of %d", p.Router, p.Endpoints, len(p.All()))
}
