package backend

import (
	"fmt"
	"slices"
)

// Placement says which CPUs are for metered hosts, and which for endpoints. Two labs that run at the same
// time get the same placement, because the CPU on which a router works changes its cost by up to 40 %.
type Placement struct {
	// Apart means that the endpoints are on other machines than the metered hosts. Then CPU 1 of Router and CPU 1 of
	// Endpoints are different CPUs.
	Apart bool

	Router    []int // for polling threads and the device under test of each metered host
	Endpoints []int // for clients, servers, traffic and meters
	Second    []int // another CPU for programs of metered hosts, see WithSecond; empty: they use Router
}

// WithSecond gives metered hosts a second CPU, for programs that need one. It takes a CPU away from the endpoints if
// these have several. Otherwise the programs share the endpoints' CPU. Endpoints on other machines cannot give one.
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

// SecondShared reports whether the endpoints use the second CPU too.
func (p Placement) SecondShared() bool { return p.endpointsOn(p.Second) }

// endpointsOn reports whether endpoints run on any of these CPUs of the metered hosts' machine.
func (p Placement) endpointsOn(cpus []int) bool {
	return !p.Apart && slices.ContainsFunc(cpus, func(cpu int) bool { return slices.Contains(p.Endpoints, cpu) })
}

// Beside returns the CPUs of the metered hosts' machine for work that is not the routers': agents, meters, perf. They
// are the endpoints' CPUs, or the routers' if the endpoints are on other machines.
func (p Placement) Beside() []int {
	if p.Apart {
		return p.Router
	}
	return p.Endpoints
}

// placementOn gives the last of the CPUs that labs may use to the metered hosts, and
// the others to the endpoints. A single CPU is shared.
func placementOn(cpus []int) Placement {
	last := len(cpus) - 1
	if last <= 0 {
		return Placement{Router: cpus, Endpoints: cpus}
	}
	return Placement{Router: cpus[last:], Endpoints: cpus[:last]}
}

// cpusFor returns the CPUs for the links' polling threads and the programs of a host.
func (p Placement) cpusFor(metered bool) []int {
	if metered {
		return p.Router
	}
	return p.Endpoints
}

// InUse returns the CPUs of the metered hosts' machine that labs use, each once.
func (p Placement) InUse() []int {
	all := slices.Concat(p.Router, p.Beside(), p.Second)
	slices.Sort(all)
	return slices.Compact(all)
}

// String describes the placement in the words of reports.
func (p Placement) String() string {
	second := ""
	if len(p.Second) > 0 {
		second = fmt.Sprintf(" (a second one for programs: %v)", p.Second)
	}
	return fmt.Sprintf(
		"routers on CPU %v%s, clients, servers and meters on CPU %v of %d", p.Router, second, p.Endpoints, len(p.InUse()))
}
