package runner

import (
	"fmt"
	"slices"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// What one client takes, and what a lab takes without any. Tests count files, tasks,
// neighbours and memory in real labs and hold these numbers to it.
const (
	FilesPerHost   = 128 // of an agent without clients, with log-ins and leases under way
	FlowsPerClient = 16  // tracked by the router: stream, probe, and the log-in's connections until they expire
	HostsPerLab    = 3
	// Each client is a neighbour of the router, unless that is told of them; the router is
	// one of each client, but of those that are not counted. Client host, router and
	// server add three. The table is one for the whole machine, namespaces and all.
	NeighboursPerClient = 1
	NeighboursPerLab    = 3
	MemoryPerHost       = 64 // MiB

	tasksPerHost = 48 // threads of an agent and of the first process of its jail
	tasksPerLab  = 32 // polling threads, and what a portal runs at once
)

// Demand is what an experiment asks of the machine at its largest.
type Demand struct {
	Experiment string
	Sides      []experiment.Side // the labs that stand at the same time
}

// DemandOf is an experiment's, guests included. A storm of logins has one lab.
func DemandOf(e *experiment.Experiment) Demand {
	device, clean := e.Sides(experiment.Block{Clients: slices.Max(e.Clients)})
	d := Demand{Experiment: e.Name, Sides: []experiment.Side{device, clean}}
	if e.Measure == result.MeasureLogins {
		d.Sides = d.Sides[:1]
		d.Sides[0].Traffic.Kind = "" // it has none
	}
	for i := range d.Sides {
		d.Sides[i].Clients += e.Client.Guests()
	}
	return d
}

// Clients is how many the larger lab has.
func (d Demand) Clients() (n int) {
	for _, s := range d.Sides {
		n = max(n, s.Clients)
	}
	return n
}

// String names it: "portal-bandwidth (100 clients)".
func (d Demand) String() string { return fmt.Sprintf("%s (%d clients)", d.Experiment, d.Clients()) }

// Files are the open files of one process, the one that has most.
func (d Demand) Files() (n int64) {
	for _, s := range d.Sides {
		k := client.KindOf(s.Client)
		own := FilesPerHost + k.Needs.Files*s.Clients
		if k.Shared {
			own = client.FilesBeside + k.Needs.Files*min(s.Clients, agent.StreamsPerWorker)
		}
		n = max(n, int64(own))
	}
	return n
}

// Neighbours are entries of the machine's table.
func (d Demand) Neighbours() int64 {
	told := tellsRouter(d.Sides...)
	return d.sum(NeighboursPerLab, func(s experiment.Side) int {
		if told && client.KindOf(s.Client).LearnMost > 0 {
			return 0
		}
		return NeighboursPerClient * s.Clients
	})
}

// Namespaces are network namespaces.
func (d Demand) Namespaces() int64 {
	return d.sum(HostsPerLab, func(s experiment.Side) int {
		return client.KindOf(s.Client).Needs.Namespaces * s.Clients
	})
}

// MemoryKiB is memory of programs and of the kernel.
func (d Demand) MemoryKiB() int64 {
	return d.sum(HostsPerLab*MemoryPerHost<<10, func(s experiment.Side) int {
		return client.KindOf(s.Client).Needs.KiB * s.Clients
	})
}

// Tasks are processes and threads.
func (d Demand) Tasks() int64 {
	return d.sum(HostsPerLab*tasksPerHost+tasksPerLab, func(s experiment.Side) int {
		if traffic.KindOf(s.Traffic.Kind).Program != "" {
			return 2 * s.Clients // a program at each end
		}
		return 0
	})
}

// Flows are connections that one router tracks, where its device has any tracked.
func (d Demand) Flows() int64 { return int64(FlowsPerClient * d.Clients()) }

// sum is what each lab takes, and beside that its clients.
func (d Demand) sum(lab int, clients func(experiment.Side) int) (n int64) {
	for _, s := range d.Sides {
		n += int64(lab + clients(s))
	}
	return n
}

// Fits is how many clients a lab may have so that one thing that is taken, a method of
// Demand, stays within what there is; where labs differ in size, the larger one. At least 1.
func (d Demand) Fits(have int64, taken func(Demand) int64) int {
	lo, hi := 1, d.Clients()
	for lo < hi { // it grows with the clients
		n := (lo + hi + 1) / 2
		fewer := Demand{d.Experiment, slices.Clone(d.Sides)}
		for i := range fewer.Sides {
			fewer.Sides[i].Clients = min(n, fewer.Sides[i].Clients)
		}
		if taken(fewer) <= have {
			lo = n
		} else {
			hi = n - 1
		}
	}
	return lo
}
