// Package bench is one lab of a block: a router with its device, clients that are admitted, the traffic they send, and
// the meters of all hosts. Every measure works on these labs, one at a time or as a pair of device and clean router:
//
//	Labs.Admitted, Started, Pair   open labs, call what the measure does in them, and leave them, however that ended
//	Bench.StartTraffic, Read, …    what a measure does with a lab
//	Bench.Judge                    says by the measure's rules why what was measured does not count
package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/send"
)

// Bench is one lab of a block.
type Bench struct {
	Lab     *topology.Lab
	Router  *backend.Host   // the first metered host, with the device; nil: the router has no agent
	Routers []*backend.Host // all metered hosts: of a tunnel both gateways
	Server  *backend.Host   // the far end of the traffic
	Hosts   []ClientHost
	DUT     dut.DUT
	Traits  dut.Traits
	Env     dut.Env
	Clients []dut.ClientAddr // those that have an address
	Has     experiment.Side  // the clients that were asked for, and what they send
	Guests  int              // further clients that come and go; their numbers follow the clients'
	Load    agent.Traffic    // what runs now or ran last, of all client hosts together

	// How long the lab and its device, the leases and the logins of all clients took.
	Setup, Lease, Login time.Duration
	LoginMs             []float64 // one value a client; none where no client logs in itself

	LineMbps float64 // rate of the routers' slowest line; 0: their links have none

	Clock backend.Clock // by which its hosts stamp what they send and receive; its bound when traffic was last started

	spins  bool          // senders of frames never rest
	slowed *backend.Host // the machine of the routers where their CPUs are slowed down
	speed  float64       // to this share of their time
	cpus   int           // of the routers' machine
	most   int           // clients of the larger lab of a pair
	mtu    int           // of the tunnel, which both labs of a pair send packets for; 0: there is none
	singly bool          // the clients make packets one by one: those of PPPoE, and their peers
	enter  bool          // the clients are more than the router's neighbour table may learn: see EntersNeighbours
	static bool          // the clients have addresses without asking for them: see hasStatic

	built func(context.Context, *topology.Lab) // see Labs.Built

	admittedDelay time.Duration // from admission to the first knock that arrived: see ProveAdmitted

	toServer, toClients []send.Stream // of frames, by client: see addressFrames
	shift               int64         // of the server's clock to the clients', ns: see readClocks
}

// ClientHost is a host with its share of the lab's clients.
type ClientHost struct {
	*backend.Host
	first, count int // numbers of its clients: first and on
}

// shareClients spreads n clients evenly over hosts; hosts that would get none
// are left out.
func shareClients(hosts []*backend.Host, n int) []ClientHost {
	var list []ClientHost
	first := 1
	for i, h := range hosts {
		count := n*(i+1)/len(hosts) - n*i/len(hosts)
		if count > 0 {
			list = append(list, ClientHost{h, first, count})
		}
		first += count
	}
	return list
}

// StartOffset is how much later host i begins than the first where hosts share a rate. Without it
// they act at the same moments, in groups at a lower rate.
func StartOffset(i int, perSecond float64) time.Duration {
	if perSecond == 0 {
		return 0
	}
	return time.Duration(float64(i) / perSecond * float64(time.Second))
}

// EachHost works on all client hosts at once.
func (s *Bench) EachHost(fn func(i int, h ClientHost) error) error {
	return backend.Each(s.Hosts, fn)
}

// Each works on all elements of a list at once, and returns what came of each in their order.
func Each[E, T any](list []E, fn func(i int, e E) (T, error)) ([]T, error) {
	out := make([]T, len(list))
	return out, backend.Each(list, func(i int, e E) (err error) { out[i], err = fn(i, e); return err })
}

// admit admits all clients and opens the meters: traffic is forwarded from then on.
func (s *Bench) admit(ctx context.Context) error {
	if err := s.admitClients(ctx); err != nil {
		return s.explainByFlows(ctx, err)
	}
	if err := s.checkFlows(ctx); err != nil {
		return err
	}
	return s.OpenMeters(ctx)
}

// open builds the lab and starts its device; there are no clients yet. On error nothing is left.
func (s *Bench) open(ctx context.Context, on backend.Backend, described topology.Topology, name string) (err error) {
	start := time.Now()
	if err := s.build(ctx, on, described, name); err != nil {
		return err
	}
	if err := s.startDevice(ctx); err != nil {
		return errors.Join(err, s.Close())
	}
	s.Setup = time.Since(start)
	return nil
}

// build builds the lab.
func (s *Bench) build(ctx context.Context, on backend.Backend, described topology.Topology, name string) (
	err error) {
	s.Traits = s.DUT.Traits()
	if s.Lab, err = described.Build(ctx, on, name); err != nil {
		return err
	}
	s.Routers, s.Server = s.Lab.Metered(), s.Lab.Of(backend.RoleServer)[0]
	if len(s.Routers) > 0 {
		s.Router = s.Routers[0]
	}
	s.Hosts = shareClients(s.Lab.Clients, s.Has.Clients)
	s.Env = DeviceEnv(s.Lab, s.Router)
	s.Env.Capture, s.Env.Clients = s.Lab.Port(topology.PortWAN), s.Has.Clients+s.Guests
	if s.LineMbps, err = s.slowestLine(ctx); err != nil {
		return errors.Join(err, s.Close())
	}
	if s.built != nil {
		s.built(ctx, s.Lab)
	}
	return nil
}

// DeviceEnv is where a device is that stands on a host of a lab, or on none of its hosts (nil); Capture and Clients are the caller's.
func DeviceEnv(lab *topology.Lab, h *backend.Host) dut.Env {
	name := func(h *backend.Host) string { return strings.TrimPrefix(h.Name, lab.Name+"/") }
	env := dut.Env{
		Hosts: map[string]dut.Host{}, Ports: lab.Ports,
		LAN: lab.LAN, Gateway: lab.Gateway, RouterWAN: lab.RouterWAN,
		ServerIP: lab.ServerIP, ServiceIP: lab.ServiceIP, Outer: lab.Outer, Scratch: agent.Scratch,
	}
	if h != nil {
		env.Install, env.On = h.Install, name(h)
	}
	for _, h := range lab.Hosts {
		env.Hosts[name(h)] = h
		if h.Metered {
			env.Routers = append(env.Routers, name(h))
		}
	}
	return env
}

// startTimeout is the last bound of a device's start: each has a shorter one of
// its own, and an experiment may allow its device ten minutes.
const startTimeout = 15 * time.Minute

func (s *Bench) startDevice(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %s", startTimeout))
	defer cancel()
	err := s.serveDHCP(ctx)
	if err == nil {
		err = s.DUT.Start(ctx, s.Env)
	}
	s.Traits = s.DUT.Traits() // addresses in the admission are valid now
	return err
}

// ends are the hosts at both ends of the traffic.
func (s *Bench) ends() []*backend.Host {
	ends := []*backend.Host{s.Server}
	for _, h := range s.Hosts {
		ends = append(ends, h.Host)
	}
	return ends
}

// OpenMeters opens the meters of all hosts.
func (s *Bench) OpenMeters(ctx context.Context) error {
	err := backend.Each(slices.Concat(s.ends(), s.Routers), func(_ int, h *backend.Host) error {
		meter := agent.Meter{IfNames: h.Ifs, Support: true}
		if h.Metered {
			meter = agent.Meter{IfNames: h.Ifs, Counted: s.Traits.Processes, Follow: true}
		}
		if h == s.Router { // once: they are the machine's
			meter.Kernel = s.Traits.KernelThreads
		}
		return h.OpenMeter(ctx, meter)
	})
	if err != nil {
		return fmt.Errorf("opening the meters of lab %s: %w", s.Lab.Name, err)
	}
	return nil
}

// Sleep waits for d, or until ctx ends and returns its cause.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
