package backend

import (
	"fmt"
	"slices"
)

// Placement says which CPUs do whose work. Both labs of a duet get the same
// one: where a router's work runs moves its cost by 40 %.
type Placement struct {
	// Apart is that the endpoints are other machines than the metered hosts', with numbers of CPUs of their own.
	Apart bool

	Router    []int // polling threads and device under test of every metered host
	Endpoints []int // clients, servers, traffic, meters
	Second    []int // a further CPU for programs of metered hosts, see WithSecond; none: they have Router
}

// WithSecond gives metered hosts a second CPU, for programs that ask for it. Where the endpoints have several, it is
// one of theirs that they lose, and else it is the endpoints' own. Endpoints of other machines have none to give.
func (p Placement) WithSecond() Placement {
	last := len(p.Endpoints) - 1
	if p.Apart {
		return p
	}
	if last <= 0 || p.Shared() {
		p.Second = p.Endpoints
		return p
	}
	p.Second, p.Endpoints = p.Endpoints[last:], p.Endpoints[:last]
	return p
}

// Shared reports whether endpoints run on the metered hosts' CPUs.
func (p Placement) Shared() bool { return p.endpointsOn(p.Router) }

// SecondShared reports whether the second CPU is also one of the endpoints'.
func (p Placement) SecondShared() bool { return p.endpointsOn(p.Second) }

func (p Placement) endpointsOn(cpus []int) bool {
	return !p.Apart && slices.ContainsFunc(cpus, func(cpu int) bool { return slices.Contains(p.Endpoints, cpu) })
}

// Beside are the CPUs of the metered hosts' machine on which its agents, meters and the like run: the endpoints', where
// these are of that machine.
func (p Placement) Beside() []int {
	if p.Apart {
		return p.Router
	}
	return p.Endpoints
}

// placementOn gives the metered hosts the last of the CPUs that labs may use and
// everything else the others. On a single CPU all share it.
func placementOn(cpus []int) Placement {
	last := len(cpus) - 1
	if last <= 0 {
		return Placement{Router: cpus, Endpoints: cpus}
	}
	return Placement{Router: cpus[last:], Endpoints: cpus[:last]}
}

// of is where the links' polling threads and the programs of a host run.
func (p Placement) of(metered bool) []int {
	if metered {
		return p.Router
	}
	return p.Endpoints
}

// InUse are the CPUs of the metered hosts' machine that labs use, each once.
func (p Placement) InUse() []int {
	all := slices.Concat(p.Router, p.Beside(), p.Second)
	slices.Sort(all)
	return slices.Compact(all)
}

// String is the placement as reports print it.
func (p Placement) String() string {
	second := ""
	if len(p.Second) > 0 {
		second = fmt.Sprintf(" (a second one for programs: %v)", p.Second)
	}
	return fmt.Sprintf(
		"routers on CPU %v%s, clients, servers and meters on CPU %v of %d", p.Router, second, p.Endpoints, len(p.InUse()))
}
