package runner

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Demand of one client, and of a lab without clients. Tests count files, tasks, neighbours and memory in real labs and
// compare them with these numbers.
const (
	FilesPerHost = 128 // agent without clients, while clients log in and get leases
	// For each client the kernel learns an entry of the router's neighbour table. The limit of this table holds for all
	// namespaces of the machine together. Entries that the lab or the device makes do not count against it.
	NeighboursPerClient = 1
	MemoryPerHost       = 64 // MiB

	tasksPerHost = 48 // threads of an agent and of the first process of its jail
	tasksPerLab  = 32 // polling threads and the simultaneous processes of a portal
)

// Demand is the largest need of an experiment for resources of the machine.
type Demand struct {
	Experiment string
	Sides      []experiment.Side // labs that exist at the same time
	Lab        topology.Size     // size of each lab without clients
	// Enters is true if each device makes its clients' entries of the neighbour table itself.
	Enters bool
	// Apart is the kind of the one host that the machine carries. Only clients need namespaces and memory of their own.
	// Empty: the machine carries all hosts.
	Apart string
}

// DemandOf returns the demand of an experiment. Guests (clients that arrive during a measurement) are included.
func DemandOf(e *experiment.Experiment) Demand {
	d := Demand{Experiment: e.Name, Sides: e.LargestLabs(), Enters: !slices.ContainsFunc(e.DUTs, func(name string) bool {
		device, err := dut.New(name, 1, e)
		return err != nil || !device.Traits().Neighbours
	})}
	if build, err := topology.Named(e.Topology); err == nil { // no other name has passed the reading of the file
		d.Lab = build(specOf(e)).Size()
	}
	for i := range d.Sides {
		d.Sides[i].Clients += e.Client.Guests()
	}
	return d
}

// specOf returns the description of the hosts of the experiment's labs.
func specOf(e *experiment.Experiment) topology.Spec {
	lan, wan := e.Backend.AgentlessAddresses()
	return topology.Spec{ClientHosts: e.Client.Hosts, Closed: [2]netip.Prefix{lan, wan}}
}

// Clients returns the number of clients of the larger lab.
func (d Demand) Clients() (n int) {
	for _, s := range d.Sides {
		n = max(n, s.Clients)
	}
	return n
}

// String names the demand: "portal-bandwidth (100 clients)".
func (d Demand) String() string {
	return fmt.Sprintf("%s (%s)", d.Experiment, words.Agreed(d.Clients(), "client", "clients"))
}

// Files returns the largest number of open files of one process.
func (d Demand) Files() (n int64) {
	for _, s := range d.Sides {
		k := client.KindOf(s.Client)
		files := FilesPerHost + k.Needs.Files*s.Clients
		if k.Shared {
			files = client.ReservedFiles + k.Needs.Files*min(s.Clients, agent.StreamsPerWorker)
		}
		n = max(n, int64(files))
	}
	return n
}

// Neighbours returns the number of entries that the kernel learns for the machine's neighbour table. When labs are
// compared, a block of two clean routers needs most, because no device makes entries there.
func (d Demand) Neighbours() int64 {
	if d.Apart != "" && d.Apart != onRouter {
		return int64(d.Lab.Neighbours)
	}
	entered, alone := bench.EntersNeighbours(d.Sides...), len(d.Sides) == 1
	return d.sum(d.Lab.Neighbours, func(s experiment.Side) int {
		k := client.KindOf(s.Client)
		if k.PPPoE || entered && k.MaxLearned > 0 || alone && d.Enters { // a PPPoE session takes the place of an entry
			return 0
		}
		return NeighboursPerClient * s.Clients
	})
}

// Namespaces returns the number of network namespaces.
func (d Demand) Namespaces() int64 {
	return d.sum(d.Lab.Hosts, func(s experiment.Side) int {
		if d.Apart != "" && d.Apart != onClient {
			return 0
		}
		return client.KindOf(s.Client).Needs.Namespaces * s.Clients
	})
}

// MemoryKiB returns the memory of programs and of the kernel.
func (d Demand) MemoryKiB() int64 {
	return d.sum(d.Lab.Hosts*MemoryPerHost<<10, func(s experiment.Side) int {
		if d.Apart != "" && d.Apart != onClient {
			return 0
		}
		return client.KindOf(s.Client).Needs.KiB * s.Clients
	})
}

// Tasks returns the number of processes and threads.
func (d Demand) Tasks() int64 {
	return d.sum(d.Lab.Hosts*tasksPerHost+tasksPerLab, func(s experiment.Side) int {
		if traffic.KindOf(s.Traffic.Kind).Program != "" {
			return 2 * s.Clients // one program at each end
		}
		return 0
	})
}

// Flows returns the number of connections that one router tracks, if its device tracks any.
func (d Demand) Flows() int64 { return int64(bench.FlowsPerClient * d.Clients()) }

// sum adds up the demand of each lab and of its clients.
func (d Demand) sum(lab int, clients func(experiment.Side) int) (n int64) {
	for _, s := range d.Sides {
		n += int64(lab + clients(s))
	}
	return n
}

// Fits returns the largest number of clients, at least 1, with which the demand for one resource does not exceed have.
// taken is the method of Demand for this resource. If the labs differ in size, the larger one is reduced.
func (d Demand) Fits(have int64, taken func(Demand) int64) int {
	lo, hi := 1, d.Clients()
	for lo < hi { // the demand grows with the number of clients
		n := (lo + hi + 1) / 2
		if taken(d.limitedTo(n)) <= have {
			lo = n
		} else {
			hi = n - 1
		}
	}
	return lo
}

// limitedTo returns the demand with at most this number of clients in each lab.
func (d Demand) limitedTo(clients int) Demand {
	d.Sides = slices.Clone(d.Sides)
	for i := range d.Sides {
		d.Sides[i].Clients = min(clients, d.Sides[i].Clients)
	}
	return d
}
