package testbed

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Placement says which CPUs do whose work. Both labs of a duet get the same
// one: where a router's work runs moves its cost by 40 %.
type Placement struct {
	Router    []int // polling threads and device under test of every router
	Endpoints []int // clients, servers, traffic, meters
}

// DefaultPlacement gives the routers the last CPU the process may use and
// everything else the others. On a single CPU all share it.
func DefaultPlacement() (Placement, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return Placement{}, fmt.Errorf("asking for this process's CPUs: %w", err)
	}
	var cpus []int
	for cpu := 0; len(cpus) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	last := len(cpus) - 1
	if last == 0 {
		return Placement{Router: cpus, Endpoints: cpus}, nil
	}
	return Placement{Router: cpus[last:], Endpoints: cpus[:last]}, nil
}

// of is where the links' polling threads and the programs of a host run.
func (p Placement) of(role Role) []int {
	if role == RoleRouter {
		return p.Router
	}
	return p.Endpoints
}

// String is the placement as reports print it.
func (p Placement) String() string {
	return fmt.Sprintf("routers on CPU %v, clients, servers and meters on CPU %v of %d", p.Router, p.Endpoints, runtime.NumCPU())
}
